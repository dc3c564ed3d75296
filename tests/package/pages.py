"""The pages of the project and the blocks in them: what README.md, CONTRIBUTING.md and docs/ tell people to run."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]

#: Languages of fences, and what is done with them.
KINDS = {
    **dict.fromkeys(("python", "py"), "python"),
    **dict.fromkeys(("sh", "bash", "shell", "console"), "shell"),
    **dict.fromkeys(("text", "json", "yaml", "toml", "bibtex", "mermaid", "html", "diff"), "text"),
}
#: A fence without a language is for the shell if a line of it begins with one of these.
COMMANDS = ("trsvr", "make", "pip", "python", "pytest", "benchopt", "mkdocs", "git", "cd")

_FENCE = re.compile(r"^(?P<indent>[ \t]*)(?P<marks>`{3,}|~{3,})[ \t]*(?:\{\s*\.)?(?P<language>[\w+#-]*)")
_NOT_RUN = re.compile(r"<!--\s*not run\b:?(?P<reason>.*?)-->")
_SPAN = re.compile(r"(?<!`)`(?P<text>(?:trsvr|make|pip install|python) [^`]+)`(?!`)")


class PageError(ValueError):
    """A page that is not written as it should be; the message begins with the place."""


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Attributes
    ----------
    page : str
        The page's path from the repository's root.
    line : int
        Number of the block's first line, from 1.
    kind : str
        "python", "shell" or "text".
    text : str
        What is in it.
    reason : str or None
        Why it is not run, where it is not: from ``<!-- not run: reason -->`` in the line before the fence.
    """

    page: str
    line: int
    kind: str
    text: str
    reason: str | None = None

    @property
    def place(self) -> str:
        """Where it is, for messages."""
        return f"{self.page}:{self.line}"


def pages() -> list[str]:
    """All pages, as paths from the repository's root."""
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [path.relative_to(ROOT).as_posix() for path in found]


def blocks(page: str, text: str | None = None) -> list[Block]:
    """The fenced blocks of a page (or of the text given instead of it), in order."""
    lines = (text if text is not None else (ROOT / page).read_text(encoding="utf-8")).splitlines()
    found = []
    k = 0
    while k < len(lines):
        fence = _FENCE.match(lines[k])
        if fence is None:
            k += 1
            continue
        closing = re.compile(rf"^[ \t]*{re.escape(fence['marks'][0])}{{{len(fence['marks'])},}}[ \t]*$")
        end = next((j for j in range(k + 1, len(lines)) if closing.match(lines[j])), None)
        if end is None:
            raise PageError(f"{page}:{k + 1}: this fence is never closed")
        inside = textwrap.dedent("\n".join(lines[k + 1 : end]))
        reason = _reason(page, k, lines[k - 1] if k else "")
        found.append(Block(page, k + 2, _kind(page, k, fence["language"], inside), inside, reason))
        k = end + 1
    return found


def spans(page: str) -> list[Block]:
    """Commands that stand inside sentences, as blocks of the shell."""
    text = (ROOT / page).read_text(encoding="utf-8")
    outside = re.sub(r"^([ \t]*)(`{3,}|~{3,}).*?^[ \t]*\2[ \t]*$", _blank, text, flags=re.M | re.S)
    return [
        Block(page, outside.count("\n", 0, match.start()) + 1, "shell", " ".join(match["text"].split()))
        for match in _SPAN.finditer(outside)
    ]


def _blank(match: re.Match[str]) -> str:
    """As many lines as before, with nothing in them."""
    return "\n" * match[0].count("\n")


def _kind(page: str, k: int, language: str, text: str) -> str:
    if not language:
        first_words = [line.split()[0] for line in text.splitlines() if line.strip()]
        return "shell" if any(word in COMMANDS for word in first_words) else "text"
    if language not in KINDS:
        raise PageError(f"{page}:{k + 1}: a block's language must be one of {', '.join(KINDS)}, got {language!r}")
    return KINDS[language]


def _reason(page: str, k: int, before: str) -> str | None:
    mark = _NOT_RUN.search(before)
    if mark is None:
        return None
    reason = mark["reason"].strip()
    if not reason:
        raise PageError(f"{page}:{k}: a block that is not run needs a reason: <!-- not run: reason -->")
    return reason
