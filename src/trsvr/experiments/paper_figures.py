"""Where each figure and table of the paper is found among ours."""

from __future__ import annotations

from dataclasses import dataclass

#: The panel of a study's figure: its row and its column.
_PANELS = {"gap": "upper row", "gradient_norm_sq": "lower row"}
_COLUMNS = {"epoch": "epochs", "passes": "passes", "time": "seconds"}


@dataclass(frozen=True)
class Place:
    """A figure or table of the paper, and ours."""

    paper: str
    shows: str
    file: str  # below the folder of a run
    panel: str
    command: str


def _panel(paper: str, what: str, study: str, data: str, height: str, axis: str) -> Place:
    """A panel of the figure of one study on one data set."""
    shows = f"{what}: {'gap' if height == 'gap' else '‖∇f‖²'} against {_COLUMNS[axis]}"
    return Place(
        paper, shows, f"figures/{study}-{data}.png", f"{_PANELS[height]}, {_COLUMNS[axis]}", f"trsvr paper run {study}"
    )


def places() -> list[Place]:
    """All figures and tables, in the paper's order; the appendix begins with figure 10."""
    gap, norm = "gap", "gradient_norm_sq"
    found = [
        _panel("Figure 1", "synthetic", "convex", "synthetic", gap, "passes"),
        _panel("Figure 2", "synthetic", "convex", "synthetic", norm, "passes"),
        _panel("Figure 3", "RCV1", "double-well", "rcv1", norm, "epoch"),
        _panel("Figure 4", "Mushroom", "double-well", "mushrooms", norm, "epoch"),
        _panel("Figure 5", "Covertype", "sgd-adam", "covtype", gap, "time"),
        _panel("Figure 6", "IJCNN1", "sgd-adam", "ijcnn1", gap, "time"),
        _panel("Figure 7", "RCV1, pairs of b and S", "sensitivity", "rcv1", norm, "passes"),
        _panel("Figure 8", "Covertype, pairs of b and S", "sensitivity", "covtype", norm, "passes"),
        _six("Figure 9", norm, "epoch"),
    ]
    number = 10
    four = ((gap, "epoch"), (gap, "passes"), (norm, "epoch"), (norm, "passes"))
    timed = ((gap, "epoch"), (gap, "time"), (norm, "epoch"), (norm, "passes"))
    for what, study, data, panels in (
        ("synthetic", "convex", "synthetic", four),
        ("RCV1", "double-well", "rcv1", four),
        ("Mushroom", "double-well", "mushrooms", four),
        ("Covertype", "sgd-adam", "covtype", timed),
        ("IJCNN1", "sgd-adam", "ijcnn1", timed),
        ("RCV1, pairs of b and S", "sensitivity", "rcv1", four),
        ("Covertype, pairs of b and S", "sensitivity", "covtype", four),
    ):
        for height, axis in panels:
            found.append(_panel(f"Figure {number}", what, study, data, height, axis))
            number += 1
    for height, axis in four:
        found.append(_six(f"Figure {number}", height, axis))
        number += 1
    for table, study in (("1", "convex"), ("2", "double-well"), ("3", "sgd-adam"), ("4", "ablation")):
        found.append(
            Place(f"Table {table}", "tuned values", "report.md", "settings of the study", f"trsvr paper run {study}")
        )
    return found


def six_panel_name(height: str, axis: str) -> str:
    """File of a figure with one panel for each data set of study 5, without suffix."""
    return f"ablation-six-{'gap' if height == 'gap' else 'gradient'}-{axis}"


def _six(paper: str, height: str, axis: str) -> Place:
    shows = f"six sets: {'gap' if height == 'gap' else '‖∇f‖²'} against {_COLUMNS[axis]}"
    return Place(
        paper, shows, f"figures/{six_panel_name(height, axis)}.png", "whole figure", "trsvr paper run ablation"
    )
