"""Checkpoints: a resumed run has the bits of an uninterrupted one; what is damaged or foreign is refused."""

from __future__ import annotations

import dataclasses
import datetime
import errno
import json
import logging
import os
import shutil
import threading

import numpy as np
import pytest

import trsvr
from trsvr import CheckpointError, Status
from trsvr.engine import Tolerance, fingerprint
from trsvr.engine import checkpoint as files
from trsvr.engine.draws import RowSource
from trsvr.engine.keeper import Every
from trsvr.parts import ExactHessian, GradientRadius, InverseTime, PlainGradient, SAGAGradient, SARAHGradient
from trsvr.problems import FunctionProblem, logistic
from trsvr.solvers.adaptive import AdaptiveTRSVR
from trsvr.solvers.base import flat
from trsvr.theory import recommended_step

SOLVERS = {
    "adaptive": trsvr.TRSVR(),
    "adaptive, short batches": trsvr.TRSVR(batch_size=20, inner_steps=6),
    "adaptive, diagonal": trsvr.TRSVR(norm="diagonal"),
    "adaptive, identity": trsvr.TRSVR(norm="identity"),
    "trsvr": trsvr.TRSVR(alpha=0.5, batch_size=20, inner_steps=10),
    "svrg": trsvr.SVRG(),
    "saga": trsvr.SAGA(),
    "sdca": trsvr.SDCA(),
    "sarah": trsvr.SARAH(batch_size=10),
    "sgd": trsvr.SGD(schedule=InverseTime(0.5)),
    "adam": trsvr.Adam(),
    "trust region": trsvr.TrustRegion(),
    "trish": trsvr.TRish(),
    "lbfgs": trsvr.LBFGS(memory=3),
    "parts": trsvr.TrustRegionMethod(
        SARAHGradient(), ExactHessian(), GradientRadius(0.3), batch_size=20, inner_steps=9
    ),
    "table of parts": trsvr.TrustRegionMethod(SAGAGradient(), radius=GradientRadius(0.3), batch_size=20, inner_steps=9),
}
#: every one on both kinds; the dual needs an L2 penalty
CASES = [(name, kind) for name in SOLVERS for kind in ("convex", "nonconvex") if (name, kind) != ("sdca", "nonconvex")]
EPOCHS = 8


def run(problem, solver, **options):
    return trsvr.minimize(problem, solver, **{"max_epochs": EPOCHS, "tol": 1e-12, **options})


@pytest.mark.parametrize("solver", [trsvr.TRSVR(), trsvr.SVRG(step=0.1)], ids=["by tolerance", "by limit"])
def test_what_dies_after_its_last_epoch_is_not_continued(convex, tmp_path, solver):
    """In its last callback: the run has ended, and its last checkpoint knows."""
    whole = run(convex[0], solver)

    def die(result):
        if result.epochs == whole.epochs:
            raise RuntimeError("killed")

    kept = {"checkpoint": tmp_path / "run.ckpt", "checkpoint_every": 1}
    with pytest.raises(RuntimeError, match="killed"):
        run(convex[0], solver, callback=die, **kept)
    again = run(convex[0], solver, **kept)
    assert (again.epochs, again.status, again.message) == (whole.epochs, whole.status, whole.message)
    assert np.array_equal(again.x, whole.x)


def interrupt_at(epoch):
    def callback(result):
        if result.epochs >= epoch:
            raise KeyboardInterrupt

    return callback


def assert_same(one, other):
    assert one.status is other.status
    assert one.message == other.message
    assert np.array_equal(one.x, other.x)
    assert np.array_equal(one.gradient, other.gradient)
    assert one.value == other.value or np.isnan(one.value)
    assert one.gradient_evaluations == other.gradient_evaluations
    drop = {"columns": "seconds"}
    assert one.trace.drop(**drop).equals(other.trace.drop(**drop))


# ------------------------------------------------------------------------------------------------------- the same bits


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_interrupted_after_every_epoch_and_continued_each_time(request, tmp_path, kind, name):
    problem, _ = request.getfixturevalue(kind)
    solver = SOLVERS[name]
    whole = run(problem, solver)
    path = tmp_path / "run.ckpt"
    for epoch in range(whole.epochs):
        part = run(problem, solver, callback=interrupt_at(epoch), checkpoint=path, checkpoint_every=1000)
        assert part.status is Status.INTERRUPTED
        assert part.epochs == epoch
    assert_same(trsvr.resume(path, problem), whole)
    assert_same(trsvr.resume(path, problem), whole)  # a finished run is returned
    assert_same(run(problem, solver, checkpoint=path), whole)


def test_interrupted_where_a_run_seemed_to_end(tmp_path):
    """A second look has found a way further down: the step that it has found is part of the checkpoint."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(80, 9))
    X[:, :3] = 3.0 * X[:, 6:]
    y = np.where(X @ rng.normal(size=9) + 3.0 * rng.normal(size=80) > 0.0, 1.0, -1.0)
    problem, solver, x0 = logistic(X, y, 1e-8), trsvr.TRSVR(norm="diagonal"), rng.normal(size=9)
    options = {"x0": x0, "tol": "auto", "max_epochs": 50}
    whole = run(problem, solver, **options)
    assert 0 in whole.trace["cg_iterations"].tolist()  # the epoch that only takes that step
    path = tmp_path / "run.ckpt"
    for epoch in range(whole.epochs):
        run(problem, solver, **options, callback=interrupt_at(epoch), checkpoint=path, checkpoint_every=1000)
    assert_same(trsvr.resume(path, problem), whole)


@pytest.mark.parametrize(("name", "kind"), [pair for pair in CASES if pair[0] != "lbfgs"])
def test_nothing_that_changes_is_outside_the_record(request, kind, name):
    """A fresh state with everything spoilt but the record: the next epoch must be the same, bit for bit."""
    problem, _ = request.getfixturevalue(kind)
    solver = SOLVERS[name].resolve(problem, np.zeros(problem.n_parameters), recommended_step)
    source = RowSource(5, problem.n_samples)
    state = solver.init(problem, np.zeros(problem.n_parameters))
    evaluate(solver, problem, state)
    for epoch in range(5):
        one_epoch(solver, problem, state, source, epoch)
        record = {
            key: np.copy(entry) if isinstance(entry, np.ndarray) else entry for key, entry in state.snapshot().items()
        }
        fresh = solver.init(problem, np.zeros(problem.n_parameters))
        spoil(fresh.work)
        fresh.restore(json_like(record))
        one_epoch(solver, problem, fresh, source, epoch + 1)
        one_epoch(solver, problem, state, source, epoch + 1)
        for key, entry in state.snapshot().items():
            assert np.array_equal(entry, fresh.snapshot()[key], equal_nan=True), key
        state = solver.init(problem, np.zeros(problem.n_parameters))
        state.restore(record)


def evaluate(solver, problem, state):
    state.value, state.gradient = solver.evaluate(problem, state, None)


def one_epoch(solver, problem, state, source, epoch):
    source.begin(epoch, 1e9)
    report = solver.epoch(problem, state, source)
    evaluate(solver, problem, state)
    if solver.judges:
        solver.judge(problem, state, report)


def json_like(record):
    """What comes back from a file: Python's own numbers."""
    return {key: entry.item() if isinstance(entry, np.generic) else entry for key, entry in record.items()}


def spoil(work):
    """Fill every scratch array with NaN, in place; tables of constants (of the lazy steps) are left."""
    if isinstance(work, np.ndarray):
        if work.dtype == np.float64:
            work[...] = np.nan
    elif type(work).__name__ in ("DescentWork", "StepWork", "CGWork") or type(work) is tuple:
        for entry in work:
            spoil(entry)


def test_a_field_that_cannot_be_recorded_is_noticed(convex):
    """Who adds a field of a new kind to the adaptive solver's state hears of it at the first checkpoint, not later."""
    own = AdaptiveTRSVR().init(convex[0], np.zeros(6)).own
    kept = {name.split(".")[0] for name in own.snapshot()}
    assert kept >= {"here", "norm", "radius", "caution", "batch_size", "begun"}

    @dataclasses.dataclass
    class Odd:
        lines: object = dataclasses.field(default_factory=lambda: {1, 2})

    with pytest.raises(TypeError, match="lines: set cannot be kept in a checkpoint"):
        flat(Odd())


def test_functions_of_the_users_own(tmp_path):
    A = np.random.default_rng(0).normal(size=(60, 4))
    problem = FunctionProblem(60, 4, lambda x, i: A[i].T @ (A[i] @ x - 1) / len(i))
    for solver in (trsvr.TRSVR(), trsvr.SAGA(step=0.01), trsvr.TRSVR(alpha=0.1, batch_size=5, inner_steps=5)):
        whole = run(problem, solver, tol=None)
        path = tmp_path / f"{type(solver).__name__}-{solver.__hash__()}.ckpt"
        run(problem, solver, tol=None, callback=interrupt_at(3), checkpoint=path)
        assert_same(trsvr.resume(path, problem), whole)


class Halved(PlainGradient):
    """An estimator from outside the package, with nothing to compile."""

    def estimate(self, memory, problem, x, batch, margins, out):
        problem.batch_gradient(x, batch, margins, out)
        out *= 0.5


def test_a_solver_with_parts_of_the_users_own_must_be_given(convex, tmp_path):
    solver = trsvr.TrustRegionMethod(gradient=Halved(), radius=GradientRadius(0.1), batch_size=20, inner_steps=5)
    path = tmp_path / "run.ckpt"
    whole = run(convex[0], solver)
    run(convex[0], solver, callback=interrupt_at(2), checkpoint=path)
    with pytest.raises(ValueError, match=r"its solver contains .*; pass it as solver="):
        trsvr.resume(path, convex[0])
    assert_same(trsvr.resume(path, convex[0], solver=solver), whole)
    with pytest.raises(CheckpointError, match=r"another configuration: solver was .*, is 'SVRG'"):
        trsvr.resume(path, convex[0], solver=trsvr.SVRG())


def test_a_thinned_trace_and_a_start_of_ones_own(convex, tmp_path):
    """Epochs that are not recorded are epochs too: a method without a reference point is kept between them."""
    options = {"trace_every": 4, "x0": np.ones(6), "seed": 9, "max_epochs": 11, "tol": None}
    for solver in (trsvr.SGD(), trsvr.SVRG(step=0.1, batch_size=20)):
        path = tmp_path / f"{type(solver).__name__}.ckpt"
        whole = run(convex[0], solver, **options)
        killed = _Killed()
        with pytest.raises(_Killed):
            run(convex[0], _Dying(solver, 6, killed), **options, checkpoint=path, checkpoint_every=1)
        content = files.read(path)
        assert content["run"]["epoch"] == 6
        content["configuration"]["solver"] = fingerprint.of_solver(solver)
        files.write(path, content)
        assert_same(trsvr.resume(path, convex[0]), whole)


def test_a_tolerance_of_two_numbers(convex, tmp_path):
    path = tmp_path / "run.ckpt"
    tol = Tolerance(1e-6, 1e-10, relative=True)
    whole = run(convex[0], trsvr.TRSVR(), tol=tol)
    run(convex[0], trsvr.TRSVR(), tol=tol, callback=interrupt_at(2), checkpoint=path)
    with pytest.raises(CheckpointError, match="tol gradient was 1e-06, is 1e-05"):
        run(convex[0], trsvr.TRSVR(), tol=Tolerance(1e-5, 1e-10, relative=True), checkpoint=path)
    assert_same(trsvr.resume(path, convex[0]), whole)


class _Killed(Exception):
    pass


@dataclasses.dataclass(frozen=True)
class _Dying:
    """A solver that raises in a certain epoch."""

    solver: object
    epochs: int
    error: Exception
    done: list = dataclasses.field(default_factory=list)

    def __getattr__(self, name):
        return getattr(self.solver, name)

    def epoch(self, problem, state, rows):
        if len(self.done) == self.epochs:
            state.x[:] = 1e9  # the epoch is half done
            raise self.error
        self.done.append(1)
        return self.solver.epoch(problem, state, rows)


# ------------------------------------------------------------------------------------------------------- going further


def test_new_limits_carry_a_run_further(convex, tmp_path):
    problem, _ = convex
    path = tmp_path / "run.ckpt"
    short = run(problem, trsvr.SVRG(), max_epochs=3, checkpoint=path)
    assert short.status is Status.EPOCH_LIMIT
    assert trsvr.resume(path, problem, max_epochs=3).epochs == 3
    assert_same(trsvr.resume(path, problem, max_epochs=EPOCHS), run(problem, trsvr.SVRG()))
    with pytest.raises(CheckpointError, match="limits epochs was 8, is 9"):
        run(problem, trsvr.SVRG(), max_epochs=9, checkpoint=path)


def test_a_converged_run_is_over_whatever_the_limits(convex, tmp_path):
    path = tmp_path / "run.ckpt"
    first = trsvr.minimize(convex[0], checkpoint=path)
    assert first.status is Status.CONVERGED
    assert_same(trsvr.resume(path, convex[0], max_epochs=10**6), first)


def test_an_error_of_the_users_function_loses_nothing(tmp_path):
    calls = []

    def gradient(x, i):
        calls.append(1)
        if len(calls) == 40:
            raise RuntimeError("mine")
        return x - 1.0

    problem = FunctionProblem(10, 2, gradient)
    solver = trsvr.SVRG(step=0.1, batch_size=2, inner_steps=2)
    path = tmp_path / "run.ckpt"
    with pytest.raises(RuntimeError, match="mine"):
        trsvr.minimize(problem, solver, tol=None, max_epochs=20, checkpoint=path, checkpoint_every=10**6)
    assert files.read(path)["run"]["epoch"] > 3
    resumed = trsvr.resume(path, problem)
    assert np.array_equal(resumed.x, trsvr.minimize(problem, solver, tol=None, max_epochs=20).x)


# --------------------------------------------------------------------------------------------------------- how often


@pytest.mark.parametrize(
    ("wish", "epochs", "seconds"),
    [(3, 3, None), ("30 s", None, 30), ("5min", None, 300), ("1.5 hours", None, 5400), (None, None, None)],
)
def test_how_often(wish, epochs, seconds):
    every = Every(wish)
    assert (every.epochs, every.seconds) == (epochs, seconds)
    assert Every(datetime.timedelta(minutes=2)).seconds == 120


@pytest.mark.parametrize("wish", [0, -1, 2.5, "soon", "3", "0 s", True, "5 parsecs", datetime.timedelta(0)])
def test_a_bad_wish_is_refused(convex, tmp_path, wish):
    with pytest.raises(ValueError, match="checkpoint_every must be"):
        run(convex[0], trsvr.SVRG(), checkpoint=tmp_path / "run.ckpt", checkpoint_every=wish)


def test_epochs_between_writes(convex, tmp_path, monkeypatch):
    written = []
    write = files.write
    monkeypatch.setattr(files, "write", lambda path, content, **how: written.append(content["run"]["epoch"]))
    run(convex[0], trsvr.SVRG(), checkpoint=tmp_path / "run.ckpt", checkpoint_every=3)
    assert written == [0, 3, 6, 8]
    monkeypatch.setattr(files, "write", write)
    with pytest.raises(ValueError, match="checkpoint_every needs checkpoint"):
        run(convex[0], trsvr.SVRG(), checkpoint_every=3)


# ----------------------------------------------------------------------------------------------------------- refusals


@pytest.fixture
def kept(convex, tmp_path):
    """A run that was interrupted after four epochs, and its file."""
    path = tmp_path / "run.ckpt"
    run(convex[0], trsvr.SVRG(), callback=interrupt_at(4), checkpoint=path, checkpoint_every=1)
    return path


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"seed": 1}, "seed was 0, is 1"),
        ({"tol": 1e-3}, "tol was 1e-12, is 0.001"),
        ({"max_epochs": 9}, "limits epochs was 8, is 9"),
        ({"trace_every": 2}, "trace_every was 1, is 2"),
        ({"x0": np.ones(6)}, "x0 is another one"),
        ({"solver": trsvr.SVRG(batch_size=2)}, "solver batch_size was 1, is 2"),
        ({"solver": trsvr.SAGA()}, "solver was 'SVRG', is 'SAGA'"),
    ],
)
def test_another_configuration_is_refused(convex, kept, change, word):
    before = kept.read_bytes()
    solver = change.pop("solver", trsvr.SVRG())
    with pytest.raises(CheckpointError, match=word):
        run(convex[0], solver, checkpoint=kept, **change)
    assert kept.read_bytes() == before


def test_another_problem_is_refused(data, kept):
    X, y = data
    others = {
        "one entry": trsvr.problems.logistic(X + np.eye(400, 6) * 1e-15, y, l2=1e-2),
        "one label": trsvr.problems.logistic(X, np.where(np.arange(400) == 399, -y, y), l2=1e-2),
        "the penalty": trsvr.problems.logistic(X, y, l2=1.0000001e-2),
        "weights": trsvr.problems.logistic(X, y, l2=1e-2, sample_weight=np.arange(400) + 1.0),
        "the loss": trsvr.problems.LinearModel(X, y, trsvr.problems.SquaredHinge(), trsvr.problems.L2(1e-2)),
        "type": trsvr.problems.logistic(X.astype(np.float32), y, l2=1e-2),
    }
    said = {
        "the penalty": r"it was LinearModel.*0\.01\).*, this is LinearModel.*0\.010000001",
        "the loss": "SquaredHinge",
    }
    said |= dict.fromkeys(("one entry", "one label", "weights"), "over other entries, labels or weights")
    for name, problem in others.items():
        with pytest.raises(CheckpointError, match="belongs to another problem.*" + said.get(name, "")):
            trsvr.resume(kept, problem)
    fewer = trsvr.problems.logistic(X[:-1], y[:-1], l2=1e-2)
    with pytest.raises(CheckpointError, match="belongs to another problem"):
        run(fewer, trsvr.SVRG(), checkpoint=kept)


def test_equal_problems_have_equal_fingerprints(data):
    X, y = data
    one = trsvr.problems.logistic(X, y, l2=1e-2)
    assert one.fingerprint() == trsvr.problems.logistic(X.copy(), y > 0, l2=1e-2).fingerprint()
    big = np.random.default_rng(0).normal(size=(3 * 2**15, 64))  # several pieces, several threads
    labels = np.arange(len(big)) % 2
    prints = set()
    for threads in (1, 3):
        with trsvr._threads.limit(threads):
            prints.add(trsvr.problems.logistic(big, labels).fingerprint())
    big[-1, -1] = 0.0
    assert len(prints) == 1
    assert trsvr.problems.logistic(big, labels).fingerprint() not in prints


def test_another_format_another_file_and_no_file(convex, kept, tmp_path):
    files.previous(kept).unlink()
    whole = kept.read_bytes()
    kept.write_bytes(whole.replace(b"trsvr checkpoint 1\n", b"trsvr checkpoint 2\n"))
    with pytest.raises(
        CheckpointError, match="a checkpoint of format 2, from another version of trsvr; this one reads 1"
    ):
        trsvr.resume(kept, convex[0])
    kept.write_bytes(b"PK\x03\x04 something else entirely, long enough to be a file")
    with pytest.raises(CheckpointError, match="is not a checkpoint of trsvr"):
        run(convex[0], trsvr.SVRG(), checkpoint=kept)
    with pytest.raises(FileNotFoundError, match="there is no checkpoint"):
        trsvr.resume(tmp_path / "none.ckpt", convex[0])
    with pytest.raises(ValueError, match="checkpoint must be a file, got the folder"):
        run(convex[0], trsvr.SVRG(), checkpoint=tmp_path)
    with pytest.raises(ValueError, match="checkpoint must be a path, got 3"):
        run(convex[0], trsvr.SVRG(), checkpoint=3)


def test_the_previous_one_is_used_if_the_newest_is_damaged(convex, kept, caplog):
    whole = run(convex[0], trsvr.SVRG())
    spoilt = bytearray(kept.read_bytes())
    spoilt[len(spoilt) // 2] ^= 1
    kept.write_bytes(bytes(spoilt))
    good = files.previous(kept).read_bytes()
    with caplog.at_level(logging.WARNING):
        run(convex[0], trsvr.SVRG(), callback=interrupt_at(3), checkpoint=kept, checkpoint_every=10**6)
    assert "checksum does not agree" in caplog.text
    assert "going on from" in caplog.text
    assert files.previous(kept).read_bytes() == good  # the damaged one has not pushed it out
    assert_same(trsvr.resume(kept, convex[0]), whole)


def test_both_damaged(convex, kept):
    for path in (kept, files.previous(kept)):
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match=r"damaged.*and .*damaged.*remove it to start over"):
        trsvr.resume(kept, convex[0])


def test_a_file_of_another_version_of_the_library_goes_on_and_says_so(convex, kept, caplog):
    content = files.read(kept)
    content["trsvr"] = "0.0.0"
    files.write(kept, content)
    assert_same(trsvr.resume(kept, convex[0]), run(convex[0], trsvr.SVRG()))
    assert "written by trsvr 0.0.0" in caplog.text


def test_a_file_of_an_older_adaptive_mode_is_refused_with_the_reason(convex, tmp_path):
    path = tmp_path / "old"
    trsvr.minimize(convex[0], max_epochs=2, checkpoint=path)
    content = files.read(path)
    (version,) = (name for name in content["state"] if name.endswith("version"))
    content["state"][version] -= 1
    files.write(path, content)
    with pytest.raises(CheckpointError, match=r"of the adaptive mode has version \d.*Begin the run anew"):
        trsvr.resume(path, convex[0], max_epochs=4)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda content: content.pop("state"),
        lambda content: content["state"].update(x=np.zeros(7)),
        lambda content: content["state"].update(x="zeros"),
        lambda content: content["state"].pop("memory.point"),
        lambda content: content["run"].pop("epoch"),
        lambda content: content["run"].update(epoch="seven"),
        lambda content: content["run"].update(seconds=[1.0]),
        lambda content: content["best"].update(x=np.zeros((6, 6))),
        lambda content: content["rows"].update(value=np.zeros(99)),
        lambda content: content["configuration"].update(seed="one"),
        lambda content: content["configuration"].update(solver={"class": "os.system", "fields": {}}),
        lambda content: content["configuration"].update(solver={"class": "SVRG", "fields": {"step": "rm -rf"}}),
        lambda content: content.update(configuration=None),
        lambda content: content.update(start=np.full(6, np.nan)),
    ],
)
def test_a_forged_file_with_a_right_checksum_is_refused(convex, kept, spoil):
    content = files.read(kept)
    spoil(content)
    files.write(kept, content)
    files.previous(kept).unlink()
    with pytest.raises(ValueError):
        trsvr.resume(kept, convex[0])


# ------------------------------------------------------------------------------------------------------------- faults


class Faulty:
    """``os``, with one call of one function that fails."""

    def __init__(self, name, number, fault):
        self._name, self._left, self._fault = name, number, fault

    def __getattr__(self, name):
        function = getattr(os, name)
        if name != self._name:
            return function

        def call(*arguments, **options):
            self._left -= 1
            return self._fault(function, *arguments, **options) if self._left == 0 else function(*arguments, **options)

        return call


def no_space(function, *arguments, **options):
    raise OSError(errno.ENOSPC, "No space left on device")


def input_output(function, *arguments, **options):
    raise OSError(errno.EIO, "Input/output error")


def short(function, descriptor, piece):
    return function(descriptor, piece[: len(piece) // 2])  # legal: the rest must be written by another call


def lying(function, descriptor, piece):
    function(descriptor, piece[: len(piece) // 2])
    return len(piece)


class Crash(BaseException):
    """The process ends here."""


def crash(function, *arguments, **options):
    raise Crash


def crash_after(function, *arguments, **options):
    function(*arguments, **options)
    raise Crash


FAULTS = [
    *[("open", 1, fault) for fault in (no_space, input_output, crash)],
    *[("write", number, fault) for number in (1, 2, 4) for fault in (no_space, input_output, short, lying, crash)],
    *[("fsync", 1, fault) for fault in (no_space, input_output, crash)],
    *[("close", 1, fault) for fault in (input_output, crash_after)],
    *[("replace", number, fault) for number in (1, 2) for fault in (input_output, no_space, crash, crash_after)],
    *[("open", 2, fault) for fault in (input_output, crash)],
    *[("fsync", 2, fault) for fault in (input_output, crash)],
]


@pytest.mark.parametrize(("name", "number", "fault"), FAULTS)
def test_a_fault_at_any_write_leaves_a_checkpoint_that_is_whole(tmp_path, monkeypatch, name, number, fault):
    """Whatever fails while the third one is written: the second or the third is there, whole, and nothing else."""
    path = tmp_path / "run.ckpt"
    contents = [{"number": k, "x": np.full(1000, float(k)), "y": np.arange(k)} for k in range(4)]
    files.write(path, contents[1])
    files.write(path, contents[2])
    with monkeypatch.context() as patch:
        patch.setattr(files, "os", Faulty(name, number, fault))
        try:
            files.write(path, contents[3])
        except (OSError, Crash):
            failed = True
        else:
            failed = False
    found, _ = files.newest_intact(path)
    assert found["number"] in ((2, 3) if failed else (3,))
    assert (found["x"] == found["number"]).all()
    for kept in (path, files.previous(path)):
        if kept.exists():
            assert files.read(kept)["number"] in (1, 2, 3)
    files.write(path, contents[0])  # and the next one is written as ever
    assert files.read(path)["number"] == 0
    assert files.read(files.previous(path))["number"] in (2, 3)
    files.remove_leftovers(path)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["run.ckpt", "run.ckpt.previous"]


def test_a_disk_that_lies_is_caught_by_the_checksum(tmp_path, monkeypatch):
    """The right number of bytes, but not the right ones."""
    path = tmp_path / "run.ckpt"
    files.write(path, {"number": 1})
    with monkeypatch.context() as patch:
        patch.setattr(files, "os", Faulty("write", 2, lambda function, fd, piece: function(fd, bytes(len(piece)))))
        files.write(path, {"number": 2, "x": np.ones(9)})
    with pytest.raises(CheckpointError, match="damaged"):
        files.read(path)
    content, is_newest = files.newest_intact(path)
    assert (content["number"], is_newest) == (1, False)


@pytest.mark.parametrize("fault", ["vanished", "read-only", "full"])
def test_the_run_goes_on_in_memory_and_says_so_once(convex, tmp_path, monkeypatch, caplog, fault):
    folder = tmp_path / "folder"
    folder.mkdir()
    path = folder / "run.ckpt"
    whole = run(convex[0], trsvr.SVRG())

    def spoil(result):
        if result.epochs == 2:
            if fault == "vanished":
                shutil.rmtree(folder)
            else:
                code = errno.EROFS if fault == "read-only" else errno.ENOSPC

                def refuse(*arguments, **options):
                    raise OSError(code, os.strerror(code))

                monkeypatch.setattr(files, "_write_through", refuse)

    with caplog.at_level(logging.WARNING):
        result = run(convex[0], trsvr.SVRG(), callback=spoil, checkpoint=path, checkpoint_every=1)
    assert np.array_equal(result.x, whole.x)
    assert result.status is whole.status
    assert "could not be written" in result.message
    assert len([record for record in caplog.records if "goes on in memory" in record.message]) == 1
    if fault != "vanished":
        monkeypatch.undo()
        assert_same(trsvr.resume(path, convex[0]), whole)  # from the last good one


def test_leftovers_of_killed_processes_are_removed_and_those_of_living_ones_are_not(tmp_path):
    path = tmp_path / "run.ckpt"
    dead, living, other = (tmp_path / f"run.ckpt.{pid}.part" for pid in (2**22 + 17, os.getppid(), "x"))
    for part in (dead, living, other):
        part.touch()
    files.remove_leftovers(path)
    assert not dead.exists()
    assert living.exists()
    assert other.exists()


# ---------------------------------------------------------------------------------------------------------- the format


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "run.ckpt"
    content = {
        "numbers": [1, -2.5, float("inf"), True, None, "text ✓", 2**80],
        "nan": float("nan"),
        "tree": {"a": {"b": np.arange(6.0).reshape(2, 3)}, "empty": np.empty((0, 4))},
        "small": np.array([1, 2], dtype=np.uint8),
        "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "flags": np.array([True, False]),
    }
    files.write(path, content)
    found = files.read(path)
    assert found["numbers"] == content["numbers"]
    assert np.isnan(found["nan"])
    for one, other in (
        (found["tree"]["a"]["b"], content["tree"]["a"]["b"]),
        (found["tree"]["empty"], content["tree"]["empty"]),
        (found["small"], content["small"]),
        (found["fortran"], content["fortran"]),
        (found["flags"], content["flags"]),
    ):
        assert np.array_equal(one, other)
        assert one.dtype == other.dtype
    raw = path.read_bytes()
    assert raw.startswith(b"trsvr checkpoint 1\n")
    json.loads(raw[27 : 27 + int.from_bytes(raw[19:27], "little")])
    with pytest.raises(TypeError, match="cannot be kept"):
        files.write(path, {"thing": object()})


def test_runs_in_other_threads_keep_checkpoints_too(convex, tmp_path):
    found = []

    def work():
        found.append(run(convex[0], trsvr.SVRG(), checkpoint=tmp_path / "run.ckpt", checkpoint_every=1))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert_same(found[0], run(convex[0], trsvr.SVRG()))


@pytest.mark.parametrize("content", ["a,b,y\n1,2,0\n", "", "trsvr check"])
def test_nobody_is_told_to_remove_a_file_that_is_not_ours(convex, tmp_path, content):
    data = tmp_path / "data.csv"
    data.write_text(content)
    with pytest.raises(CheckpointError, match=r"is not a checkpoint of trsvr.*left as it is") as error:
        run(convex[0], trsvr.SVRG(), checkpoint=data)
    assert "remove it" not in str(error.value)
    assert "Name another file" in str(error.value)
    assert data.read_text() == content
