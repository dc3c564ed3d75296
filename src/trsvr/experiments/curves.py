"""Runs as curves: medians and bands over seeds, costs of a precision, heights at equal cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from trsvr._arrays import Vector

#: Shares of the seeds that a band spans, and the median between them.
BAND = (0.2, 0.5, 0.8)
HIGHEST = 1e300
TALLEST = 1e3


@dataclass(frozen=True)
class Band:
    """A median with its band along an axis."""

    x: Vector
    low: Vector
    middle: Vector
    high: Vector


def drawable(heights: Vector, floor: float) -> Vector:
    """Numbers that a logarithm can take: not below the floor, not infinite."""
    return np.clip(np.nan_to_num(heights, nan=HIGHEST, posinf=HIGHEST), floor, HIGHEST)


def band(
    xs: Sequence[Vector], ys: Sequence[Vector], floor: float, points: int = 400, until: float | None = None
) -> Band:
    """Median and band of several runs, between their rows on a logarithmic scale.

    It goes as far as half of the runs still go, or ``until`` there; a run that has ended keeps its last height, and one
    that diverges is drawn up to `TALLEST` times the first height and no further.
    """
    places = np.linspace(0.0, upper_median(float(x[-1]) for x in xs) if until is None else until, points)
    top = TALLEST * max(float(drawable(y[:1], floor)[0]) for y in ys)
    heights = [np.interp(places, x, np.log10(np.minimum(drawable(y, floor), top))) for x, y in zip(xs, ys, strict=True)]
    low, middle, high = 10.0 ** np.quantile(heights, BAND, axis=0)
    return Band(places, low, middle, high)


def height_at(xs: Sequence[Vector], ys: Sequence[Vector], place: float, floor: float) -> float:
    """Median height at one place of the axis."""
    heights = [np.interp(place, x, np.log10(drawable(y, floor))) for x, y in zip(xs, ys, strict=True)]
    return float(10.0 ** np.median(heights))


def median_curve(xs: Sequence[Vector], ys: Sequence[Vector], places: Vector, floor: float) -> Vector:
    """Median of log10 of the heights at the places."""
    heights = [np.interp(places, x, np.log10(drawable(y, floor))) for x, y in zip(xs, ys, strict=True)]
    return np.asarray(np.median(heights, axis=0))


def spread(xs: Sequence[Vector], ys: Sequence[Vector], floor: float) -> float:
    """Mean width of the band, in decades, as far as half of the runs go: how much a run depends on its seed."""
    places = np.linspace(0.0, upper_median(float(x[-1]) for x in xs), 400)
    heights = [np.interp(places, x, np.log10(drawable(y, floor))) for x, y in zip(xs, ys, strict=True)]
    low, _, high = np.quantile(heights, BAND, axis=0)
    return float(np.mean(high - low))


def mean_decades(xs: Sequence[Vector], ys: Sequence[Vector], until: float, floor: float) -> float:
    """Mean of log10 of the median curve from 0 to ``until``: how high it lies on the whole. Lower is faster."""
    return float(median_curve(xs, ys, np.linspace(0.0, until, 400), floor).mean())


def cost_of(x: Vector, y: Vector, target: float) -> float:
    """Where a run first is at a target or below; infinite if never."""
    places = np.flatnonzero(y <= target)
    return float(x[places[0]]) if places.size else np.inf


def upper_median(numbers: Iterable[float]) -> float:
    """The middle number, the upper one of two: an infinite one is not averaged away."""
    ordered = sorted(numbers)
    return float(ordered[len(ordered) // 2]) if ordered else np.nan
