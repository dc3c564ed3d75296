"""What leaves a command: files, written beside their place and renamed, and tables."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from trsvr import _files


def check_folder(folder: Path) -> None:
    """Refuse, before a long run, a folder that cannot be written in the end."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"--out must be a folder, got the file {folder}")
    above = folder.absolute()
    while not above.exists():
        above = above.parent
    if not above.is_dir():
        raise ValueError(f"--out {folder} cannot be made: {above} is a file")
    _check_writable(folder, above)


def check_file(file: Path) -> None:
    """Refuse, before any work, a file that cannot be written in the end."""
    if file.is_dir():
        raise ValueError(f"--out must be a file, got the folder {file}")
    above = file.absolute().parent
    if not above.is_dir():
        raise ValueError(f"--out {file} cannot be written: {above} is {'a file' if above.exists() else 'no folder'}")
    _check_writable(file, above)


def _check_writable(place: Path, folder: Path) -> None:
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(f"--out {place} cannot be written: no permission in {folder}")


def write_folder(folder: Path, writers: Mapping[str, Callable[[Path], None]]) -> list[Path]:
    """Write files into a folder, all or none: each writer gets the path to write to.

    They are written into a folder beside it, which is then renamed, or whose files are where the folder exists.
    """
    folder.absolute().parent.mkdir(parents=True, exist_ok=True)
    with _files.folder_beside(folder) as beside:
        for name, write in writers.items():
            write(beside / name)
        if folder.exists():
            for name in writers:
                os.replace(beside / name, folder / name)
        else:
            beside.chmod(_files.usual_rights(0o777))
            os.rename(beside, folder)
    return [folder / name for name in writers]


def plain(value: Any) -> Any:
    """The same as JSON knows it: no NaN, no NumPy numbers."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)


def as_json(value: Any) -> str:
    """JSON text; infinite and undefined numbers are null."""
    return json.dumps(plain(value), indent=2, ensure_ascii=False, allow_nan=False)


def show_pairs(title: str, pairs: list[tuple[str, str]]) -> None:
    """A table of names and values on stdout."""
    table = Table(title=Text(title, style="bold"), title_justify="left", box=SIMPLE_HEAD, show_header=False)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in pairs:
        table.add_row(Text(name), Text(value))
    Console().print(table)


def show_rows(title: str, head: list[str], rows: list[list[str]]) -> None:
    """A table with a head on stdout; where it is too wide its first column is folded, which has names."""
    table = Table(title=Text(title, style="bold"), title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for k, name in enumerate(head):
        style, justify = ("cyan", "left") if k == 0 else (None, "right")
        table.add_column(Text(name), style=style, justify=justify, overflow="fold", no_wrap=k > 0)  # type: ignore[arg-type]
    for row in rows:
        table.add_row(*map(Text, row))
    Console().print(table)
