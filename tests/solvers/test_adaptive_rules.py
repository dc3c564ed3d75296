"""The adaptive mode's rules, state, caution, endings and next tolerance, without any data."""

from __future__ import annotations

import json
import math
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from trsvr._draws import Draws
from trsvr.parts.acceptance import Point, gained_nothing
from trsvr.parts.caution import Caution
from trsvr.parts.negative_curvature import Escape
from trsvr.parts.norm_choice import first_rows, kind_of_norm
from trsvr.parts.norms import DenseNorm, DiagonalNorm, IdentityNorm
from trsvr.parts.pairs import Pairs
from trsvr.problems import logistic
from trsvr.problems.steps import Exit, NormedStep
from trsvr.problems.views import CurvatureView, Prices, Raising
from trsvr.solvers.adaptive import AdaptiveTRSVR, Rules
from trsvr.solvers.adaptive.endings import estimate
from trsvr.solvers.adaptive.judgement import _next_tolerance, _unless_doubtful
from trsvr.solvers.adaptive.state import AdaptiveState, Measured, NormState, Outcome, Radius
from trsvr.solvers.base import AUTO_DECREASE, Goal, State
from trsvr.solvers.dual_start import DualRules
from trsvr.solvers.gauss_newton import GaussNewtonRules
from trsvr.solvers.matrix_norm import MatrixRules

RULES = Rules()


def outcome(
    norm=None, exit=Exit.TOLERANCE, predicted=0.5, decrease=0.5, length=1.0, predicted_gradient=None, value=1.0
):
    """An outer iteration from x = (1, 1) with gradient (1, 0)."""
    nothing = np.zeros(2)
    taken = NormedStep(nothing, nothing, 1.0, exit, 1)
    measured = Measured(DiagonalNorm(np.ones(2)) if norm is None else norm, nothing)
    before = Point(np.ones(2), value, np.array([1.0, 0.0]), decrease)
    return Outcome(before, measured, taken, predicted, length, predicted_gradient)


# --------------------------------------------------------------------------------------------------------------- rules


def test_every_rule_is_a_number_of_its_own_and_can_be_replaced():
    for rule in fields(Rules):
        assert isinstance(vars(RULES)[rule.name], int | float), rule.name
        changed = replace(RULES, **{rule.name: 7})
        differing = [
            other.name for other in fields(Rules) if getattr(changed, other.name) != getattr(RULES, other.name)
        ]
        assert differing == [rule.name]
    with pytest.raises(AttributeError):
        RULES.shrink = 0.5
    assert RULES.little == AUTO_DECREASE
    assert AdaptiveTRSVR().rules == RULES


def test_every_rule_is_explained_on_the_page():
    page = (Path(__file__).parents[2] / "docs/adaptive.md").read_text(encoding="utf-8")
    numbers = {rule.name for rule in (*fields(DualRules), *fields(MatrixRules), *fields(GaussNewtonRules))}
    assert sorted(name for name in numbers if f"`{name}`" not in page) == []


def test_which_norm_pays():
    tall, wide = Prices.of_rows(100_000, 50, 1, 5_000_000), Prices.of_rows(1000, 1500, 1, 1_500_000)
    assert kind_of_norm("auto", tall, 100_000, 50, RULES) == "dense"
    assert kind_of_norm("auto", wide, 1000, 1500, RULES) == "diagonal"
    assert kind_of_norm("auto", tall, 100_000, 50, replace(RULES, widest_matrix=49)) == "diagonal"
    assert kind_of_norm("auto", tall._replace(matrix_row=math.inf), 100_000, 50, RULES) == "diagonal"
    assert kind_of_norm("auto", Prices(), 1000, 10, RULES) == "identity"
    assert kind_of_norm("identity", tall, 100_000, 50, RULES) == "identity"
    embeddings = Prices.of_rows(5000, 100, 10, 5000 * 100)._replace(shared=1.0)
    assert kind_of_norm("auto", embeddings, 5000, 100, RULES) == "diagonal"  # ten matrices are no model of H
    assert kind_of_norm("auto", embeddings._replace(shared=math.inf), 5000, 100, RULES) == "dense"
    assert Prices().bear_directions(10**6, 0.0)
    assert tall.bear_directions(20, RULES.cheap_pairs)
    assert not tall._replace(direction=math.inf).bear_directions(20, RULES.cheap_pairs)


def test_rows_of_the_first_matrix_lie_between_their_bounds():
    assert first_rows(10**6, 50, RULES) == 400 * 50
    assert first_rows(80_000, 50, RULES) == 4 * 80_000 // 50
    assert first_rows(10_000, 100, RULES) == 8 * 100
    assert first_rows(2000, 100, RULES) == 2000  # 800 of them would be more than a third: all


# ------------------------------------------------------------------------------------------------------------- caution


class Bare(CurvatureView):
    """A view that can do no more than the protocol demands: H = 3·1."""

    n_rows = 10

    def prices(self):
        return Prices()

    def evaluate(self, x, coming=None):
        return 1.5 * float(x @ x), 3.0 * x

    def product(self, v):
        return 3.0 * v


def test_what_a_view_cannot_do_costs_infinitely_much_and_says_so():
    bare, x = Bare(), np.ones(2)
    arguments = {
        "raise_curvatures": (0.0, 0.0), "diagonal": (), "blocks": (5, None), "shared": (), "line": (x, x, x),
        "changes": (x, 4, False, None, 0), "ascent": (), "start_ascent": (None, x, x),
    }  # fmt: skip
    for name, given in arguments.items():
        with pytest.raises(NotImplementedError, match=r"this view has no .*its price says so"):
            getattr(bare, name)(*given)
    prices = bare.prices()
    assert prices.matrix_row == prices.diagonal == prices.shared == prices.batch_row == math.inf
    assert prices.dual == prices.line == math.inf
    assert kind_of_norm("auto", prices, 10, 2, RULES) == "identity"
    assert (bare.penalty_curvatures(x) == 0.0).all()
    assert math.isnan(bare.gap_bound(x, 3.0, 3.0 * x))
    assert math.isnan(bare.total_weight())


def test_steps_and_walks_are_the_usual_ones_unless_a_view_has_its_own():
    asked = []
    request = SimpleNamespace(usual=lambda product, request: asked.append(product(np.ones(2))), penalty=np.ones(2))
    Bare().step(request)
    assert asked[0].tolist() == [4.0, 4.0]  # losses and penalty
    bare = Bare()
    walk = SimpleNamespace(usual=lambda view, request: view)
    assert bare.walk(walk) is bare


def test_prices_of_a_matrix_are_its_rows_and_its_factor():
    prices = Prices.of_rows(1000, 10, 1, 10_000)
    assert prices.of_matrix(100) == pytest.approx(100 * prices.matrix_row + prices.factor)
    assert prices.of_matrix(1000) < 0.25 * 1000 * 10 * 10 / 10_000 + prices.factor  # d/4 products, less the call's part
    assert Prices.of_rows(1000, 10, 3, 10_000).with_shared(1000, 10, 3).shared < prices.of_matrix(1000)


def test_caution_is_raised_then_deepened_then_spent():
    caution = Caution(RULES.first_caution)
    assert caution.answers_refusal(Raising.GRADED, False, RULES.more_caution, RULES.most_in_vain)
    assert caution.raised
    levels = []
    while caution.answers_refusal(Raising.GRADED, True, RULES.more_caution, RULES.most_in_vain):
        levels.append(caution.level)
    assert levels == sorted(levels)
    assert levels[-1] == 1.0
    caution.after_a_good_step(RULES.more_caution)
    assert caution.level == 1.0 / RULES.more_caution


def test_caution_that_cannot_be_had_answers_nothing():
    caution = Caution(RULES.first_caution)
    assert not caution.answers_refusal(Raising.NOT, False, RULES.more_caution, RULES.most_in_vain)
    assert not caution.raised
    caution.after_a_good_step(RULES.more_caution)
    assert caution.level == RULES.first_caution


def test_caution_that_was_given_up_too_early_is_taken_up_again():
    caution = Caution(RULES.first_caution, raised=True)
    caution.give_up_by_degrees(RULES.first_caution)
    assert caution.by_degrees
    assert caution.answers_refusal(Raising.GRADED, True, RULES.more_caution, RULES.most_in_vain)
    assert not caution.by_degrees
    assert caution.raised


# --------------------------------------------------------------------------------------------------------------- state


def test_pairs_are_remembered_if_their_curvature_is_more_than_rounding():
    norm = Pairs()
    unit = np.eye(3)
    norm.remember([(unit[0], 2.0 * unit[0]), (unit[1], unit[2]), (unit[1], -unit[1])], 2)
    assert np.array_equal(norm.directions, unit[:1])
    norm.remember([(unit[1], unit[1]), (unit[2], unit[2])], 2)
    assert np.array_equal(norm.directions, unit[1:])  # the newest two
    assert norm.forget()
    assert norm.directions is None
    assert not norm.forget()


def test_an_escape_goes_downhill_and_is_given_up_when_it_is_short():
    escape = Escape()
    escape.along(np.array([1.0, 0.0]), np.array([2.0, 0.0]))
    assert np.array_equal(escape.direction, [-1.0, 0.0])
    refusals = 0
    while escape.direction is not None:
        escape.shorten(RULES.shrink)
        refusals += 1
    assert 20 < refusals < 40


def state_of_two():
    problem = logistic(np.eye(2)[[0, 1, 0, 1]], [0, 1, 1, 0])
    views = problem.curvature_view(), problem.curvature_view()
    return AdaptiveState("identity", *views, Radius(1.0, 0.1), NormState(4.0), Caution(1e-3), 4.0, False)


def test_a_snapshot_is_flat_and_comes_back_whole():
    own = state_of_two()
    own.here.evaluate(np.array([1.0, 2.0]))
    own.norm.pairs.remember([(np.eye(2)[0], np.eye(2)[0])], 20)
    own.radius.accepted, own.begun, own.caution.raised, own.norm.rows = False, True, True, 3
    own.escape.along(np.ones(2), -np.ones(2))
    kept = own.snapshot()
    assert all(isinstance(entry, bool | int | float | np.ndarray) for entry in kept.values())
    numbers = {name: entry for name, entry in kept.items() if not isinstance(entry, np.ndarray)}
    other = state_of_two()
    other.restore({**kept, **json.loads(json.dumps(numbers))})
    again = other.snapshot()
    assert set(again) == set(kept)
    for name, entry in kept.items():
        assert np.array_equal(again[name], entry, equal_nan=True), name
        assert type(again[name]) is type(entry), name


def test_a_snapshot_of_another_release_is_refused_with_the_reason():
    own = state_of_two()
    own.here.evaluate(np.zeros(2))
    kept = own.snapshot()
    del kept["version"]
    with pytest.raises(ValueError, match=r"version 1, of a release with other coordinates .*; this one reads"):
        state_of_two().restore(kept)


def test_streams_are_named_and_do_not_depend_on_who_has_drawn_before():
    draws = Draws(3, 5)
    first = draws.stream("batch", 1).random(4)
    draws.stream("matrix").random(100)
    assert np.array_equal(Draws(3, 5).stream("batch", 1).random(4), first)
    kinds = [draws.stream("batch"), draws.stream("matrix"), draws.stream("batch", 1), Draws(3, 6).stream("batch")]
    assert len({generator.random() for generator in kinds}) == 4
    with pytest.raises(KeyError, match="no such purpose"):
        draws.stream("no such purpose")


# ------------------------------------------------------------------------------------------------------------- endings


def test_a_matrix_that_is_the_model_says_itself_what_is_left():
    matrix = DenseNorm(np.eye(2), np.zeros(2))
    assert estimate(outcome(matrix), 1e-3, 0.5, RULES) == 1e-3
    assert estimate(outcome(matrix, predicted=1.5), 1e-3, 0.5, RULES) == 3e-3  # H was softer than P


def test_a_step_that_was_cut_off_says_nothing():
    assert math.isinf(estimate(outcome(exit=Exit.BOUNDARY), 1e-3, 0.5, RULES))


def test_a_gain_that_came_as_predicted_is_believed_and_no_other():
    kept = outcome(predicted_gradient=np.zeros(2))
    assert estimate(kept, 1e-3, 0.5, RULES) == RULES.doubt * 1e-3
    assert estimate(kept, 1e-30, 0.5, RULES) == RULES.believed * 0.5
    assert estimate(kept, 1e-3, 0.1, RULES) == 0.5  # the model was wrong: what it predicts may be left
    assert estimate(outcome(), 1e-3, 0.5, RULES) == 0.5  # it did not say where it would lead


def test_a_step_of_rounding_is_told_from_one_that_gains():
    before = outcome().before
    assert gained_nothing(before, 1.0 - 1e-15, predicted=1e-15)
    assert not gained_nothing(before, 1.0, predicted=1e-3)
    assert not gained_nothing(before, 0.5, predicted=1e-15)


# ------------------------------------------------------------------------------------------------------ next tolerance


def tolerance(left=1e-3, goal=Goal(), gradient=(0.1, 0.0), shared=math.inf, **changes):  # noqa: B008  # a constant
    known = {"predicted_gradient": np.array([0.1, 0.01]), "norm": IdentityNorm(), "value": 1.5, **changes}
    trial = Point(np.zeros(2), 1.0, np.array(gradient), 0.5 * float(np.dot(gradient, gradient)))
    view = SimpleNamespace(prices=lambda: Prices(shared=shared))
    it = SimpleNamespace(rules=RULES, state=State(trial.x, None, goal=goal), own=SimpleNamespace(here=view))
    return _next_tolerance(it, outcome(**known), trial, left)


def test_the_next_tolerance_follows_how_wrong_the_model_was():
    # The gradient fell to a tenth, and was wrong by a hundredth of the old one: the root of the fall is to be expected.
    assert tolerance() == pytest.approx(0.01 * math.sqrt(0.1))
    assert tolerance(predicted_gradient=np.array([0.1, 0.001])) == pytest.approx(0.001 * math.sqrt(0.1))
    assert tolerance(predicted_gradient=np.array([1.0, 0.0])) == RULES.cg_loosest


def test_where_outputs_share_a_matrix_no_more_exactly_than_the_last_gain_was_predicted():
    assert tolerance(value=1.42, shared=1.0) == pytest.approx(0.16)  # it was 0.42, and 0.5 was predicted
    assert tolerance(value=1.25, shared=1.0) == RULES.cg_loosest
    assert tolerance(value=1.46, shared=1.0) == tolerance(value=1.25) == pytest.approx(0.01 * math.sqrt(0.1))


def test_the_next_tolerance_is_the_usual_one_where_nothing_was_predicted():
    assert tolerance(predicted_gradient=None) == RULES.cg_tolerance
    assert tolerance(exit=Exit.BOUNDARY) == RULES.cg_tolerance


def test_the_next_tolerance_is_no_smaller_than_ends_the_run():
    enough = tolerance(left=1e-3, goal=Goal(gradient=1.0, decrease=1e-5), predicted_gradient=np.array([0.1, 1e-9]))
    assert enough == pytest.approx(RULES.cg_enough * math.sqrt(1e-2))
    right = np.array([0.1, 1e-9])
    by_gradient = tolerance(goal=Goal(gradient=1e-3), predicted_gradient=right)  # nothing else was asked for
    assert by_gradient == pytest.approx(RULES.cg_enough * 1e-2)
    by_default = tolerance(left=1e-8, predicted_gradient=right)
    assert by_default == pytest.approx(RULES.cg_enough * math.sqrt(RULES.little / 1e-8))
    assert (
        tolerance(gradient=(1e-9, 0.0), predicted_gradient=np.array([1e-9, 0.0])) == RULES.cg_loosest
    )  # rounding of f


# ------------------------------------------------------------------------------ an end that the certificate doubts


def doubted(expected, bound, before=math.inf, small=False, near=math.inf, kind="diagonal", contraction=0.0):
    """What the loop is told where so much is expected and the certificate says ``bound``; f is one."""
    view = SimpleNamespace(
        n_rows=100,
        prices=lambda: Prices(matrix_row=1e-3 if small else 1.0),
        gap_bound=lambda *point: bound,
        gap_bound_near=lambda *point: near,
    )
    own = SimpleNamespace(
        expected_decrease=expected, bound=before, nonconvex=False, here=view, kind=kind,
        norm=SimpleNamespace(rows=100, exact=False), radius=Radius(1.0, 0.1, contraction=contraction),
    )  # fmt: skip
    state = SimpleNamespace(value=1.0, x=np.zeros(2), gradient=np.zeros(2), goal=Goal())
    it = SimpleNamespace(state=state, own=own, rules=RULES, problem=SimpleNamespace(n_samples=100))
    taken = outcome(norm=DenseNorm(np.eye(2), np.zeros(2)))
    return _unless_doubtful(it, taken, False)


def test_an_end_waits_while_the_certificate_says_more_and_falls():
    assert doubted(1e-3, 0.5).expected_decrease == 1e-3  # nothing is asked before an end
    assert doubted(1e-14, 1e-7).expected_decrease == 1e-14
    assert doubted(1e-14, 1e-5).expected_decrease == 1e-5
    assert doubted(1e-14, 1e-5, before=1.5e-5).expected_decrease == 1e-14  # it has hardly fallen: so it is true
    assert doubted(1e-14, math.nan).expected_decrease == 1e-14
    assert doubted(1e-14, 1e-7).gap_bound == 1e-7


def test_on_small_data_it_waits_for_more_digits():
    assert doubted(1e-14, 1e-9, small=True).expected_decrease == 1e-9
    assert doubted(1e-14, 1e-11, small=True).expected_decrease == 1e-14


def test_newton_steps_give_the_certificate_a_second_try():
    found = doubted(1e-14, 1e-3, near=1e-9, kind="dense")
    assert (found.expected_decrease, found.gap_bound) == (1e-14, 1e-9)
    slow = doubted(1e-14, 1e-3, near=1e-4, before=1e-4, kind="dense", contraction=0.5)
    assert slow.expected_decrease == 1e-4  # steps that leave half of the gradient prove nothing
