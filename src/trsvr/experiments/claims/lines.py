"""Which results a claim speaks of."""

from __future__ import annotations

from trsvr.experiments.results import Line, Results, SubjectResults

BASELINES = ("SVRG", "SARAH", "SAGA")
#: How heights and axes are called in a sentence.
CALLED = {"gap": "gap", "gradient_norm_sq": "‖∇f‖²", "passes": "passes", "passes_without": "passes without H·v"}


def subject_of(results: Results, study: str, data: str) -> SubjectResults | None:
    """A data set of a study, if it was run."""
    found = results.study(study)
    return None if found is None else found.subject(data)


def lines_of(subject: SubjectResults | None, *labels: str, role: str = "paper") -> list[Line]:
    """The lines of these labels that were run."""
    found = [] if subject is None else [subject.line(label, role) for label in labels]
    return [line for line in found if line is not None]


def first_order_problems(results: Results) -> list[tuple[SubjectResults, Line, list[Line]]]:
    """The problems of studies 1 and 2 with TRSVR-EstH and the variance-reduced first-order methods."""
    found = []
    for study, data in (("convex", "synthetic"), ("double-well", "rcv1"), ("double-well", "mushrooms")):
        subject = subject_of(results, study, data)
        ours = lines_of(subject, "TRSVR-EstH")
        if subject is not None and ours:
            found.append((subject, ours[0], lines_of(subject, *BASELINES)))
    return found
