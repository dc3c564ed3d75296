"""Damped models: what is left to gain, against the projection onto the space that J reaches."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from trsvr.parts.damping import CholeskyFactors, SingularValues, Sums


@pytest.mark.parametrize("reached", [0.0, 1e-3, 1.0])
def test_what_is_left_is_the_part_of_the_residuals_that_J_can_reach(reached):
    """More unknowns than residuals, and J without full rank: what it cannot reach cancels, and once was negative."""
    random = np.random.default_rng(0)
    for _ in range(50):
        turn = np.linalg.qr(random.normal(size=(6, 6)))[0]
        J = turn @ np.diag([1.0, 0.5, 0.2, 0.0, 0.0, 0.0]) @ random.normal(size=(6, 150))
        r = turn[:, 3:] @ random.normal(size=3) + reached * turn[:, :3] @ random.normal(size=3)
        sums = Sums(J, r, J.T @ r, np.linalg.norm(J, axis=0), False)
        wanted = 0.5 * np.sum((turn[:, :3].T @ r) ** 2)
        for model in (CholeskyFactors(sums, np.ones(150)), SingularValues.of(sums, np.ones(150))):
            assert_allclose(model.left(), wanted, rtol=1e-2, atol=1e-15)
