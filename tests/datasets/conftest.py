from __future__ import annotations

import functools
import http.server
import threading
from types import MappingProxyType, SimpleNamespace

import pytest
from toy_rows import TOY_LABELS, TOY_ROWS

from trsvr.datasets import download, loading, write_libsvm
from trsvr.datasets import read_libsvm as reader
from trsvr.datasets.registry import DataFile, Entry


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    """Every test has a cache of its own, no folder of data, and a site that nobody listens at."""
    monkeypatch.setenv("TRSVR_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TRSVR_DATA_URL", "http://127.0.0.1:9/")
    monkeypatch.delenv("TRSVR_DATA_DIR", raising=False)
    monkeypatch.setenv("TRSVR_QUIET", "1")
    monkeypatch.setattr(download, "RETRIES", 0)


@pytest.fixture
def write(tmp_path):
    """Write bytes or text into a file and return its path."""

    def write(content: bytes | str, name: str = "some.svm"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


@pytest.fixture
def read(write):
    """Read text through a file."""

    def read(content: bytes | str, name: str = "some.svm", **options):
        return reader(write(content, name), **options)

    return read


@pytest.fixture
def toy(monkeypatch):
    """A data set called toy, of four rows, whose hash nobody knows beforehand."""
    file = DataFile("toy.binary.bz2", "toy.svm", 4, 3, 6, ((1, 2), (2, 2)))
    entries = MappingProxyType({"toy": Entry("toy", "four rows", train=file)})
    monkeypatch.setattr(loading, "ENTRIES", entries)
    return file


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A server on this machine: its folder, what was asked of it."""
    folder = tmp_path / "site"
    folder.mkdir()
    asked: list[str] = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        redirect_to = None

        def do_GET(self):
            asked.append(self.path)
            if Handler.redirect_to:
                self.send_response(302)
                self.send_header("Location", Handler.redirect_to)
                self.end_headers()
            else:
                super().do_GET()

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=folder)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/"
        monkeypatch.setenv("TRSVR_DATA_URL", url)
        yield SimpleNamespace(folder=folder, asked=asked, url=url, handler=Handler)
        server.shutdown()


@pytest.fixture
def served_toy(toy, site):
    """The toy data set, to be downloaded from the server on this machine."""
    write_libsvm(site.folder / toy.upstream, TOY_ROWS, TOY_LABELS)
    return site
