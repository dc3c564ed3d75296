"""A report as plain content: headings, paragraphs, tables, figures. `report` renders it as Markdown and as HTML."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Heading:
    """A heading of level 2 or 3, with a name to link to."""

    text: str
    level: int = 2


@dataclass(frozen=True)
class Paragraph:
    """Words. ``notice`` is set apart."""

    text: str
    notice: bool = False


@dataclass(frozen=True)
class Bullets:
    """A list; ``summary`` is what a closed one shows."""

    items: list[str]
    summary: str = ""


@dataclass(frozen=True)
class Table:
    """Rows of texts under a head; the first column is text, the others are numbers unless ``words`` names them."""

    head: list[str]
    rows: list[list[str]]
    words: tuple[int, ...] = (0,)


@dataclass(frozen=True)
class Figure:
    """A drawn figure by its file name without suffix."""

    name: str
    caption: str
    interactive: bool = False


Block = Heading | Paragraph | Bullets | Table | Figure


@dataclass
class Document:
    """Title and blocks."""

    title: str
    blocks: list[Block] = field(default_factory=list)

    def add(self, *blocks: Block) -> None:
        """Append."""
        self.blocks.extend(blocks)


# ------------------------------------------------------------------------------------------------- numbers as texts


def small(number: float) -> str:
    """A gap or a squared norm."""
    if np.isnan(number):
        return "–"
    if not np.isfinite(number):
        return "∞"
    return "0" if number == 0.0 else f"{number:.1e}"


def plain(number: float, digits: int = 3) -> str:
    """Any other number; a dash where there is none."""
    return f"{number:.{digits}g}" if np.isfinite(number) else "–"


def cost(number: float) -> str:
    """Passes or epochs; a dash for never."""
    if not np.isfinite(number):
        return "–"
    return f"{number:.1f}" if number < 100 else f"{number:.0f}"


def duration(seconds: float) -> str:
    """A time in words."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
