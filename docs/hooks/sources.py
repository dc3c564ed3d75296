"""Links that leave docs/, such as ``../examples/alpha.py``, lead to a page of the site that shows the file.

So a page's links work in the repository, where it is read as it is, and in the site, which knows nothing of a
repository. Text in Markdown becomes a page like any other, everything else a page of code.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
_LINK = re.compile(r"(?<=\]\()(?P<path>[^)\s#:]+)(?P<anchor>#[^)\s]*)?(?=\))")
_PICTURES = (".png", ".svg")
_LANGUAGES = {".py": "python", ".toml": "toml", ".sh": "bash", ".json": "json"}

# Where a page's text comes from, by its place in the site: filled while files are collected.
_origins: dict[str, str] = {}


def on_files(files: Files, config: Any) -> Files:
    """Add a page for every file that a page links to, and for those that these link to."""
    _origins.clear()
    waiting = [(f"docs/{file.src_uri}", file.content_string) for file in files.documentation_pages()]
    while waiting:
        origin, markdown = waiting.pop()
        for found in _LINK.finditer(markdown):
            source = _resolved(origin, found["path"])
            page = None if source is None else _page_of(source)
            if source is None or page is None or page in _origins:
                continue
            _origins[page] = source
            if Path(source).suffix in _PICTURES:
                files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
                continue
            text = (ROOT / source).read_text(encoding="utf-8")
            if source.endswith(".md"):
                waiting.append((source, text))
            else:
                text = _code_page(source, text)
            files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: object) -> str:
    """Turn links to files of the repository into links to their pages."""
    here = page.file.src_uri
    origin = _origins.get(here, f"docs/{here}")
    if not origin.endswith(".md"):
        return markdown

    def replaced(found: re.Match[str]) -> str:
        source = _resolved(origin, found["path"])
        if source is None:
            return found[0]
        target = _page_of(source) or source.removeprefix("docs/")
        return posixpath.relpath(target, posixpath.dirname(here)) + (found["anchor"] or "")

    return _LINK.sub(replaced, markdown)


def _resolved(origin: str, link: str) -> str | None:
    """The file of the repository that a link in ``origin`` means, if there is one."""
    path = posixpath.normpath(posixpath.join(posixpath.dirname(origin), link))
    return path if not path.startswith("..") and (ROOT / path).is_file() else None


def _page_of(source: str) -> str | None:
    """The page that shows a file; None for those in docs/, which have their own."""
    if source.startswith("docs/"):
        return None
    shown_as_it_is = Path(source).suffix in (".md", *_PICTURES)
    return f"source/{source.lower()}" if shown_as_it_is else f"source/{source}.md"


def _code_page(source: str, text: str) -> str:
    language = _LANGUAGES.get(Path(source).suffix, "text")
    return f"---\nsearch:\n  exclude: true\n---\n\n# {source}\n\n````{language}\n{text}````\n"
