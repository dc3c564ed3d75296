"""Medians, bands, costs and profiles against definitions worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from trsvr.experiments import curves, profiles


def test_band_is_the_quantile_of_the_logarithms():
    x = np.array([0.0, 1.0, 2.0])
    runs = [np.array([1.0, 10.0**-k, 10.0 ** (-2 * k)]) for k in range(1, 6)]
    found = curves.band([x] * 5, runs, 1e-30, points=3)
    assert found.x == pytest.approx([0, 1, 2])
    assert np.log10(found.middle) == pytest.approx([0, -3, -6])
    assert np.log10(found.low) == pytest.approx([0, -4.2, -8.4])
    assert np.log10(found.high) == pytest.approx([0, -1.8, -3.6])


def test_band_goes_as_far_as_half_of_the_runs():
    xs = [np.array([0.0, end]) for end in (1.0, 2.0, 9.0)]
    found = curves.band(xs, [np.array([1.0, 0.1])] * 3, 1e-9)
    assert found.x[-1] == 2.0
    # There the first has ended and keeps its height, the second ends, the third is at 2 of 9.
    assert found.middle[-1] == pytest.approx(0.1)
    assert np.log10(found.high[-1]) == pytest.approx(np.quantile([-1.0, -1.0, -2.0 / 9.0], 0.8))


def test_a_run_that_diverges_leaves_the_picture_at_the_top():
    x = np.array([0.0, 1.0])
    found = curves.band([x, x], [np.array([2.0, np.inf]), np.array([2.0, np.nan])], 1e-9, points=2)
    assert found.middle == pytest.approx([2.0, 2000.0])


def test_what_a_logarithm_cannot_take():
    assert curves.drawable(np.array([-1.0, 0.0, np.nan, np.inf]), 1e-16).tolist() == [1e-16, 1e-16, 1e300, 1e300]


def test_costs_and_medians():
    x, y = np.array([0.0, 1.0, 2.0, 3.0]), np.array([1.0, 0.1, 0.5, 0.01])
    assert curves.cost_of(x, y, 0.2) == 1.0
    assert curves.cost_of(x, y, 1e-3) == np.inf
    assert curves.upper_median([3.0, np.inf, 1.0]) == 3.0
    assert curves.upper_median([3.0, np.inf]) == np.inf
    assert curves.height_at([x, x, x], [y, y, 10 * y], 1.0, 1e-9) == pytest.approx(0.1)
    assert curves.mean_decades([x], [np.full(4, 1e-3)], 3.0, 1e-9) == pytest.approx(-3.0)


def test_profiles_of_dolan_and_more():
    """Three solvers, four problems; the last is solved by nobody and says nothing."""
    never = np.inf
    costs = np.array([[1.0, 2.0, never, never], [2.0, 2.0, 5.0, never], [4.0, 1.0, 10.0, never]])
    assert profiles.ratios(costs).tolist() == [[1.0, 2.0, never], [2.0, 2.0, 1.0], [4.0, 1.0, 2.0]]
    taus = np.array([1.0, 2.0, 4.0])
    assert profiles.profile(costs, taus) == pytest.approx(
        np.array([[1 / 3, 2 / 3, 2 / 3], [1 / 3, 1, 1], [1 / 3, 2 / 3, 1]])
    )
    assert profiles.profile(np.full((2, 3), never), taus).tolist() == [[0.0] * 3] * 2
    assert profiles.profile(np.empty((0, 0)), taus).shape == (0, 3)


def test_a_curve_that_came_to_rest_is_continued():
    x, y = np.arange(4.0), np.array([1.0, 1e-2, 1e-4, 1e-6])
    short = curves.band([x], [y], 1e-16, points=5)
    assert short.x[-1] == 3.0
    long = curves.band([x], [y], 1e-16, points=5, until=8.0)
    assert long.x[-1] == 8.0
    assert long.middle[-2:] == pytest.approx([1e-6, 1e-6])


def test_spread_is_the_width_of_the_band():
    x = np.arange(3.0)
    runs = [10.0**shift * np.ones(3) for shift in range(11)]  # 20 % is 10^2, 80 % is 10^8
    assert curves.spread([x] * 11, runs, 1e-16) == pytest.approx(6.0)
    assert curves.spread([x] * 3, [np.ones(3)] * 3, 1e-16) == 0.0
