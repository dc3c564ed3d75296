"""Files from the site of the LIBSVM collection, over https.

A file is downloaded into a folder of its own beside the final place; the caller looks at its content before renaming
it.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import sys
import tempfile
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trsvr.datasets import registry, search
from trsvr.datasets.errors import DownloadError
from trsvr.datasets.registry import DataFile

RETRIES = 3
_TIMEOUT_SECONDS = 30
_CHUNK_BYTES = 2**16


def address(file: DataFile) -> str:
    """Where a file is downloaded from.

    ``TRSVR_DATA_URL`` names another site, for mirrors and tests. It must be https; plain http is accepted for this
    machine only, so that nobody can be talked into an unprotected connection.
    """
    site = os.environ.get("TRSVR_DATA_URL") or registry.SITE
    if not _is_safe(site):
        raise ValueError(
            f"TRSVR_DATA_URL must begin with https:// (http:// only for 127.0.0.1 or localhost), got {site!r}"
        )
    return site.rstrip("/") + "/" + urllib.parse.quote(file.upstream)


def _is_safe(url: str) -> bool:
    parts = urllib.parse.urlsplit(url)
    return parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in ("127.0.0.1", "localhost"))


@contextlib.contextmanager
def downloaded(file: DataFile, *, progress: bool | None = None) -> Iterator[Path]:
    """The downloaded file, in a folder that is removed when the block ends; the caller renames it to keep it.

    Parameters
    ----------
    file : DataFile
        What to download.
    progress : bool, optional
        Whether to show a bar on stderr; by default if that is a terminal.
    """
    url = address(file)
    own = search.own_folder()
    if own is None:
        raise DownloadError("no folder to download to; set TRSVR_CACHE_DIR to one that can be written")
    try:
        import pooch
    except ModuleNotFoundError:
        raise DownloadError("downloading needs the package pooch: pip install 'trsvr[cli]'") from None
    import requests

    own.mkdir(exist_ok=True)
    shown = sys.stderr.isatty() if progress is None else progress
    with tempfile.TemporaryDirectory(prefix=".download.", dir=own) as beside:
        # No hash is handed over: upstream publishes none, and the parsed content is checked instead.
        fetcher = pooch.create(
            path=beside, base_url="", registry={file.upstream: None}, urls={file.upstream: url}, retry_if_failed=RETRIES
        )
        try:
            with _quiet(pooch.get_logger()):
                path = fetcher.fetch(file.upstream, downloader=functools.partial(_download, shown))
        except requests.exceptions.RequestException as error:
            raise DownloadError(f"{url} cannot be downloaded ({_reason(error)})") from error
        yield Path(path)


@contextlib.contextmanager
def _quiet(logger: logging.Logger) -> Iterator[None]:
    """Pooch announces every download on its own channel; the progress bar says it already."""
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


def _reason(error: Exception) -> str:
    """The innermost cause, on one line: libraries wrap the cause in long sentences."""
    response = getattr(error, "response", None)
    if response is not None:
        return f"the server answers {response.status_code} {response.reason}"
    cause: BaseException = error
    while (inner := cause.__cause__ or cause.__context__) is not None:
        cause = inner
    return " ".join(str(cause).split()) or type(cause).__name__


def _download(shown: bool, url: str, output_file: Any, pooch: Any) -> None:
    """What pooch calls to get a file. Its own downloader follows a redirection from https to http; this one refuses."""
    import requests

    with requests.Session() as session:
        if urllib.parse.urlsplit(url).scheme == "http":
            session.trust_env = False  # no proxy stands between this machine and itself
        # Called for every address on the way, the first one and those it redirects to.
        session.mount("http://", _loopback_adapter())
        with session.get(url, stream=True, timeout=_TIMEOUT_SECONDS) as response:
            response.raise_for_status()
            total = int(response.headers.get("content-length", 0)) or None
            with open(output_file, "wb") as stream, _bar(shown, Path(url).name, total) as advance:
                for chunk in response.iter_content(_CHUNK_BYTES):
                    stream.write(chunk)
                    advance(len(chunk))


def _loopback_adapter() -> Any:
    import requests

    class Adapter(requests.adapters.HTTPAdapter):
        def send(self, request: Any, *arguments: Any, **options: Any) -> Any:
            if not _is_safe(request.url):
                raise requests.exceptions.InvalidSchema(f"refused: {request.url} is not https")
            return super().send(request, *arguments, **options)

    return Adapter()


@contextlib.contextmanager
def _bar(shown: bool, name: str, total: int | None) -> Iterator[Any]:
    """A progress bar, or nothing; gives the function that moves it."""
    if shown:
        with contextlib.suppress(ModuleNotFoundError):
            from rich.console import Console
            from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
            with Progress(*columns, console=Console(stderr=True)) as progress:
                task = progress.add_task(name, total=total)
                yield lambda count: progress.advance(task, count)
            return
    yield lambda count: None
