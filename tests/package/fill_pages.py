"""Break the long lines of pages: ``python tests/package/fill_pages.py PAGE...``.

Paragraphs without a long line stay as they are. Tables, headings, HTML and fenced or indented code are left alone.
"""

from __future__ import annotations

import re
import sys
import textwrap
from pathlib import Path

LONGEST = 120
_ITEM = re.compile(r"^(\s*)([-*+]|\d+\.)(\s+)")
_FENCE = re.compile(r"^\s*(`{3,}|~{3,})")
_NOT_PROSE = re.compile(r"^(\s{4,}|\s*(\||#|<|:::|!!!|\$\$|\[[^\]]+\]:))")
#: What a line of a paragraph must not begin with: Markdown would take it for a list, a heading or a quotation.
_MARKER = re.compile(r"^\s*([-*+>#]|\d+\.)(\s|$)")


def long_lines(text: str) -> list[tuple[int, str]]:
    """Numbers, from 1, and texts of lines that are too long; those of tables and of links alone may be."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > LONGEST and not line.lstrip().startswith("|") and len(line.split()) > 2:
            found.append((number, line))
    return found


def filled(text: str) -> str:
    """The page with its long paragraphs and list items broken."""
    made: list[str] = []
    block: list[str] = []
    fence = ""
    for line in [*text.splitlines(), ""]:
        mark = _FENCE.match(line)
        if fence or mark:
            made += _block(block)
            block = []
            made.append(line)
            if mark and not fence:
                fence = mark[1]
            elif mark and mark[1].startswith(fence) and not line.strip().strip(fence[0]):
                fence = ""
        elif not line.strip() or _NOT_PROSE.match(line) or _ITEM.match(line):
            made += _block(block)
            block = []
            if _ITEM.match(line):
                block = [line]
            else:
                made.append(line)
        else:
            block.append(line)
    return "\n".join(made[:-1]) + "\n"


def _block(lines: list[str]) -> list[str]:
    """A paragraph or a list item, broken if it has a long line."""
    if not any(len(line) > LONGEST for line in lines):
        return lines
    item = _ITEM.match(lines[0])
    first = item[0] if item else re.match(r"\s*", lines[0])[0]  # type: ignore[index]
    words = " ".join([lines[0][len(first) :], *(line.strip() for line in lines[1:])])
    for width in range(LONGEST, LONGEST - 40, -1):
        broken = textwrap.wrap(
            words,
            width,
            initial_indent=first,
            subsequent_indent=" " * len(first),
            break_long_words=False,
            break_on_hyphens=False,
        )
        if not any(_MARKER.match(line) for line in broken[1:]):
            return broken
    return lines


if __name__ == "__main__":
    for name in sys.argv[1:]:
        page = Path(name)
        page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")
