"""After a refused step curvatures are raised: they were too small on its way more often than a sample was wrong."""

from __future__ import annotations

from dataclasses import dataclass

from trsvr.problems.views import CurvatureView, Raising


@dataclass
class Caution:
    """Whether curvatures are raised, because the losses are nearly linear around here, and how far."""

    level: float  # of the largest curvature, so much counts for every row, where there are degrees
    raised: bool = False
    by_degrees: bool = False  # whether it is being given up by degrees, with P of all rows
    given_up: bool = False  # whether it was given up just now, because it made no difference
    in_vain: int = 0  # how often in a row the next step was refused all the same

    def after_a_good_step(self, factor: float) -> None:
        """A step was kept, and so was the one before: less of it."""
        if self.raised:
            self.level /= factor
        else:
            self.given_up, self.in_vain = False, 0

    def answers_refusal(self, raising: Raising, graded: bool, factor: float, most_in_vain: int) -> bool:
        """More caution after a refused step; returns whether there was any to be had."""
        if not self.raised:
            self.in_vain += self.given_up
            self.given_up = False
            if self.in_vain >= most_in_vain:  # that is not why steps are refused
                self.in_vain = 0
                return False
            self.raised = raising is not Raising.NOT
            return self.raised
        if self.by_degrees:
            self.by_degrees = False  # it was too early
            return True
        if graded and self.level < 1.0:
            self.level = min(factor * self.level, 1.0)
            return True
        return False

    def apply(self, view: CurvatureView, graded: bool, first: float) -> float:
        """Raise the view's curvatures; returns which part of them the true ones are."""
        return view.raise_curvatures(*((min(self.level / first, 1.0), self.level) if graded else (1.0, 0.0)))

    def give_up(self) -> None:
        """Raised curvatures are hardly more than the true ones: back among ordinary rows."""
        self.raised, self.given_up = False, True

    def give_up_by_degrees(self, level: float) -> None:
        """P is of all rows and steps are poor all the same: it is the raised curvatures."""
        self.by_degrees, self.level = True, level
