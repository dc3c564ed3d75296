"""Run the blocks of one page, in order, in the present folder: ``python run_page.py PAGE``.

Python blocks run as somebody pastes them, one after the other: what a page uses it must import or define. Commands may
speak of your data, and find 400 rows of 6 columns and two classes as ``data.svm``, ``new.svm`` and ``data.csv`` (where
the target is called ``label``).
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from commands import run, split
from pages import ROOT, blocks


def write_your_data() -> None:
    """The files that commands speak of."""
    from trsvr.datasets.libsvm import write_libsvm

    rng = np.random.default_rng(1)
    X = rng.normal(size=(400, 6))
    y = np.where(X @ rng.normal(size=6) + rng.logistic(size=400) > 0, 1, -1)
    write_libsvm("data.svm", X, y)
    write_libsvm("new.svm", X[:20], y[:20])
    names = ",".join((*(f"x{k}" for k in range(6)), "label"))
    np.savetxt("data.csv", np.column_stack([X, y]), delimiter=",", header=names, comments="", fmt="%.6g")


def main(page: str) -> None:
    """Run the page; whatever fails ends the process with a traceback that has the page's own line numbers."""
    text = (ROOT / page).read_text(encoding="utf-8")
    write_your_data()
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(page, text):
        if block.reason is not None:
            print(f"not run  {block.place}  {block.reason}")
        elif block.kind == "python":
            exec(compile("\n" * (block.line - 1) + block.text, page, "exec"), namespace)
            print(f"ran      {block.place}")
        elif block.kind == "shell":
            for place, words, variables in split(block):
                reason = run(place, words, variables)
                print(f"{'ran     ' if reason is None else 'checked '} {place}  {' '.join(words)}")


if __name__ == "__main__":
    main(sys.argv[1])
