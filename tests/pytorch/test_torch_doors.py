"""``device=`` of the estimators and ``--device`` of the command, with tensors on the CPU in the GPU's place."""

from __future__ import annotations

import functools
import json

import numpy as np
import pytest
import torch

from trsvr.cli import main
from trsvr.problems import LinearModel as CompiledModel
from trsvr.sklearn import TRSVRClassifier, TRSVRClassifierCV, TRSVRRegressor
from trsvr.torch import LinearModel

without_cuda = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")


@pytest.fixture
def built(monkeypatch):
    """Any device but the CPU gives tensors on the CPU; the list of devices asked for when problems were built."""
    asked = []

    def stand_in(device=None):
        if device in (None, "cpu"):
            return CompiledModel

        def build(*arguments, **options):
            asked.append(device)
            return functools.partial(LinearModel, device="cpu")(*arguments, **options)

        return build

    for place in ("trsvr.sklearn.base", "trsvr.cli.options", "trsvr.cli.solve"):
        monkeypatch.setattr(f"{place}.linear_model", stand_in)
    return asked


def rows(classes):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(150, 3))
    score = X @ [1.0, -2.0, 0.5] + rng.logistic(size=150)
    return X, np.digitize(score, np.quantile(score, np.linspace(0, 1, classes + 1)[1:-1]))


@pytest.mark.parametrize(
    ("estimator", "classes"),
    [
        (TRSVRClassifier(), 2),
        (TRSVRClassifier(), 3),
        (TRSVRClassifier(loss="squared_hinge"), 3),
        (TRSVRClassifierCV(Cs=[0.1, 1.0], cv=2, n_jobs=2), 2),
        (TRSVRRegressor(), 3),
    ],
    ids=["binary", "softmax", "hinges", "cross-validated", "regressor"],
)
def test_estimators(estimator, classes, built):
    X, y = rows(classes)
    weights = np.random.default_rng(3).integers(0, 3, len(y))
    wanted = estimator.fit(X, y, sample_weight=weights)
    coef, intercept = wanted.coef_.copy(), np.copy(wanted.intercept_)
    assert not built
    found = estimator.set_params(device="cuda").fit(X, y, sample_weight=weights)
    assert set(built) == {"cuda"}
    assert found.coef_ == pytest.approx(coef, abs=1e-6)
    assert found.intercept_ == pytest.approx(intercept, abs=1e-6)


def test_nan_is_refused_in_the_words_of_scikit_learn(built):
    with pytest.raises(ValueError, match="Input X contains NaN"):
        TRSVRRegressor(device="cuda").fit([[1.0], [np.nan]], [1.0, 2.0])


@pytest.mark.parametrize("device", [3, b"cuda"])
def test_a_device_is_a_word(device):
    with pytest.raises(ValueError, match="device must be None, 'cpu' or 'cuda'"):
        TRSVRRegressor(device=device).fit([[1.0], [2.0]], [1.0, 2.0])


@without_cuda
def test_without_a_gpu_nothing_is_read():
    with pytest.raises(ValueError, match="torch finds no CUDA device"):
        TRSVRRegressor(device="cuda").fit(None, None)


@pytest.fixture
def file(tmp_path):
    X, y = rows(2)
    np.savez(tmp_path / "data.npz", X=X, y=y)
    return tmp_path / "data.npz"


def test_the_command_solves_on_a_device_and_goes_on_there(file, built, capsys, tmp_path):
    def report(*arguments):
        assert main([*map(str, arguments), "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    options = ("solve", file, "--l2", "0.01", "--intercept")
    wanted = report(*options)
    kept = tmp_path / "kept"
    found = report(*options, "--device", "cuda", "--checkpoint", kept)
    again = report("resume", kept)
    assert built == ["cuda", "cuda"]
    assert (wanted["device"], found["device"], again["device"]) == ("cpu", "cuda", "cuda")
    assert found["value"] == pytest.approx(wanted["value"], rel=1e-11)
    assert again["value"] == found["value"]
    assert found["gap"]["kind"] == "bound"


@without_cuda
@pytest.mark.parametrize(("device", "words"), [("cuda", "no CUDA device"), ("abacus", "torch knows")])
def test_the_command_refuses_a_device(file, capsys, device, words):
    assert main(["solve", str(file), "--device", device]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert len(shown.err.splitlines()) == 1
    assert words in shown.err


@pytest.mark.parametrize("classes", [2, 4])
def test_tensors_are_fitted_and_predicted_where_they_lie(built, classes):
    rng = np.random.default_rng(0)
    y = rng.integers(classes, size=200)
    X = (rng.normal(size=(classes, 6))[y] + rng.normal(size=(200, 6))).astype(np.float32)
    weights = rng.uniform(size=200)
    there = TRSVRClassifier(device="cuda").fit(torch.from_numpy(X), torch.from_numpy(y), torch.from_numpy(weights))
    here = TRSVRClassifier().fit(X, y, weights)
    assert built == ["cuda"]
    assert there.coef_.dtype == np.float32
    np.testing.assert_allclose(there.coef_, here.coef_, rtol=1e-3, atol=1e-4)
    np.testing.assert_array_equal(there.predict(torch.from_numpy(X)), here.predict(X))
    np.testing.assert_allclose(there.predict_proba(torch.from_numpy(X)), here.predict_proba(X), atol=1e-4)
    assert there.score(torch.from_numpy(X), y) == here.score(X, y)
    with pytest.raises(ValueError, match=r"X must have 6 columns, got shape \(3, 5\)"):
        there.predict(torch.zeros(3, 5))
    with pytest.raises(ValueError, match="X must be a matrix with a row for each of the 200 labels"):
        there.fit(torch.zeros(3, 5), y)
    host = TRSVRClassifier().fit(torch.from_numpy(X), torch.from_numpy(y), weights)  # a tensor of the host is an array
    np.testing.assert_array_equal(host.coef_, here.coef_)
