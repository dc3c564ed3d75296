"""Solved models as files: ``result.npz``, arrays and one JSON text, nothing pickled."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.special
from numpy.typing import NDArray

from trsvr.cli.categories import encoded_names
from trsvr.cli.options import loss_from
from trsvr.datasets.arrays import read_arrays
from trsvr.datasets.errors import DataFileError
from trsvr.problems.families import LOG_LINK, mean_of, outside_domain

_KIND, _VERSION = "trsvr model", 1


@dataclass(frozen=True)
class Model:
    """What predictions need.

    Attributes
    ----------
    x : array
        Weights, followed by the intercepts.
    classes : array or None
        The labels, None for regression.
    facts : dict
        loss, intercept, n_features, n_outputs, columns, target, zero_based; where they are not as usual: power,
        dispersion, offset, and raw_columns, levels and drop_first of encoded categories.
    """

    x: NDArray[np.float64]
    classes: NDArray[Any] | None
    facts: dict[str, Any]

    def decision(self, X: Any) -> NDArray[np.float64]:
        """Margins of the rows of X, shape (N, K)."""
        margins = np.asarray(X @ self.coefficients, dtype=np.float64)
        return margins if self.intercepts is None else margins + self.intercepts

    @property
    def names(self) -> list[str]:
        """Of the columns; numbers, as the file counts them, where it has no names."""
        first = 0 if self.facts["zero_based"] else 1
        return list(self.facts["columns"] or map(str, range(first, first + self.facts["n_features"])))

    @property
    def outputs(self) -> list[str]:
        """Names of the outputs: the classes where there are several."""
        several = self.facts["n_outputs"] > 1
        return [str(label) for label in self.classes] if several and self.classes is not None else ["coefficient"]

    @property
    def coefficients(self) -> NDArray[np.float64]:
        """One row per column of the data, one column per output."""
        return self.x.reshape(-1, self.facts["n_outputs"])[: self.facts["n_features"]]

    @property
    def intercepts(self) -> NDArray[np.float64] | None:
        """One per output."""
        return self.x.reshape(-1, self.facts["n_outputs"])[-1] if self.facts["intercept"] else None

    @property
    def loss(self) -> Any:
        """The loss, with its parameters."""
        return loss_from(self.facts["loss"], 1.0, self.facts.get("power", 1.5), self.facts.get("dispersion", 1.0))

    def predict(self, X: Any, offset: NDArray[np.float64] | None = None) -> NDArray[Any]:
        """Labels, or numbers on the scale of y for regression."""
        margins = self.decision(X) if offset is None else self.decision(X) + offset.reshape(len(offset), -1)
        if self.classes is None:
            return np.asarray(mean_of(self.loss, margins[:, 0]))
        places = margins.argmax(axis=1) if margins.shape[1] > 1 else (margins[:, 0] > 0).astype(int)
        return self.classes[places]

    def probabilities(self, X: Any) -> NDArray[np.float64]:
        """Probabilities of the classes, shape (N, number of classes); for logistic and softmax models."""
        if self.facts["loss"] not in ("logistic", "softmax"):
            raise ValueError(f"--probabilities are for logistic and softmax models, not for {self.facts['loss']}")
        margins = self.decision(X)
        if margins.shape[1] > 1:
            return np.asarray(scipy.special.softmax(margins, axis=1))
        upper = scipy.special.expit(margins[:, 0])
        return np.column_stack([scipy.special.expit(-margins[:, 0]), upper])


def save_model(path: Path, model: Model, **more: NDArray[Any]) -> None:
    """Write a model; ``more`` are further arrays for the reader's use."""
    arrays = {"x": model.x, "model": np.array(json.dumps({"kind": _KIND, "version": _VERSION, **model.facts})), **more}
    if model.classes is not None:
        arrays["classes"] = model.classes.astype(str) if model.classes.dtype.kind == "O" else model.classes
    with path.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


def load_model(path: Path) -> Model:
    """Read a model: its file, the ``result.json`` beside it, or the folder they are in."""
    if path.is_dir():
        folder, path = path, path / "result.npz"
        if not path.exists():
            raise DataFileError(folder, None, "is not a folder that trsvr solve --out has written: no result.npz there")
    elif path.suffix == ".json":
        path = path.with_suffix(".npz")
    try:
        arrays = read_arrays(path)
        facts = json.loads(str(arrays["model"]))
        if facts["kind"] != _KIND or facts["version"] != _VERSION:
            raise KeyError
        _check_facts(facts)
        x, size = arrays["x"], (facts["n_features"] + facts["intercept"]) * facts["n_outputs"]
        if x.shape != (size,) or x.dtype != np.float64 or not np.isfinite(x).all():
            raise KeyError
        classes = arrays.get("classes")
        if classes is not None and classes.shape != (max(2, facts["n_outputs"]),):
            raise KeyError
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise DataFileError(path, None, "is not a model that trsvr solve --out has written") from None
    return Model(x, classes, facts)


def _check_facts(facts: dict[str, Any]) -> None:
    """Refuse facts of a wrong kind: a model may come from anybody."""
    for name, kind in (
        ("loss", str),
        ("intercept", bool),
        ("zero_based", bool),
        ("n_features", int),
        ("n_outputs", int),
    ):
        if type(facts[name]) is not kind:
            raise TypeError(name)
    if facts["n_features"] < 1 or facts["n_outputs"] < 1:
        raise ValueError("n_features")
    columns, target = facts["columns"], facts["target"]
    if target is not None and not isinstance(target, str):
        raise TypeError("target")
    if columns is not None and not (isinstance(columns, list) and all(isinstance(name, str) for name in columns)):
        raise TypeError("columns")
    if columns is not None and len(columns) != facts["n_features"]:
        raise ValueError("columns")
    loss_from(facts["loss"], 1.0, facts.get("power", 1.5), facts.get("dispersion", 1.0))
    if not isinstance(facts.get("offset"), str | None) or not isinstance(facts.get("drop_first", False), bool):
        raise TypeError("offset")
    raw, levels = facts.get("raw_columns"), facts.get("levels", {})
    texts = [*([] if raw is None else raw), *(level for known in levels.values() for level in known)]
    if not all(isinstance(text, str) for text in texts):
        raise TypeError("levels")
    if raw is not None and len(encoded_names(raw, levels, facts.get("drop_first", False))) != facts["n_features"]:
        raise ValueError("levels")


def text_of(value: Any) -> str:
    """A label or number as a person would write it, and so that it reads back the same."""
    if isinstance(value, float | np.floating):
        number = float(value)
        return str(int(number)) if number.is_integer() and abs(number) < 1e15 else repr(number)
    return str(value)


def why_not_scored(y: NDArray[Any], classes: NDArray[Any] | None) -> str | None:
    """Why labels cannot be compared with a model's predictions: one of them is not among its classes; else None."""
    is_text = y.dtype.kind not in "buif"
    if classes is None:
        return f"the model predicts numbers, and the target holds text such as {str(y[0])!r}" if is_text else None
    known = ", ".join(map(text_of, classes[:8])) + (", …" if len(classes) > 8 else "")
    same_kind = is_text == (classes.dtype.kind not in "buif")
    foreign = y[~np.isin(y, classes)] if same_kind else y
    return f"the target has the label {text_of(foreign[0])}, and the model knows {known}" if foreign.size else None


def scores(
    y: NDArray[Any],
    predicted: NDArray[Any],
    classes: NDArray[Any] | None,
    weights: NDArray[np.float64] | None = None,
    loss: Any = None,
) -> dict[str, float] | None:
    """Accuracy of a classification; root mean square error and R² of a regression, and D² of a family's loss.

    None where y cannot be compared: see `why_not_scored`.
    """
    if why_not_scored(y, classes) is not None:
        return None
    if classes is not None:
        return {"accuracy": float(np.average(predicted == y, weights=weights))}
    numbers = y.astype(np.float64)
    spread = float(np.average((numbers - np.average(numbers, weights=weights)) ** 2, weights=weights))
    mean_square = float(np.average((predicted - numbers) ** 2, weights=weights))
    found = {"rmse": mean_square**0.5, "r2": 1.0 - mean_square / spread if spread > 0 else float("nan")}
    if isinstance(loss, LOG_LINK) and outside_domain(loss, numbers) is None:
        with np.errstate(all="ignore"):
            means = np.log(predicted), np.full(len(numbers), np.log(np.average(numbers, weights=weights)))
            left, whole = (float(np.average(loss.value(z, numbers), weights=weights)) for z in means)
        found["d2"] = 1.0 - left / whole if whole > 0.0 else float("nan")
    return found
