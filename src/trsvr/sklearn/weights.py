"""Sample weights and class weights, as one vector."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def checked_weights(sample_weight: Any, n_samples: int) -> Array | None:
    """The user's weights as float64; a number is the same weight for all."""
    if sample_weight is None:
        return None
    try:
        weights = np.asarray(sample_weight, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"sample_weight must be numbers, got {sample_weight!r}") from None
    if weights.ndim == 0:
        weights = np.full(n_samples, float(weights))
    if weights.ndim != 1:
        raise ValueError(f"Sample weights must be 1D array or scalar: sample_weight has shape {weights.shape}")
    if weights.size != n_samples:
        raise ValueError(f"sample_weight must have one entry for each of the {n_samples} rows, got {weights.size}")
    if not np.isfinite(weights).all():
        raise ValueError("sample_weight must be finite, got NaN or infinity")
    if (weights < 0.0).any():
        raise ValueError(f"sample_weight must be >= 0, got {weights.min()}")
    if not weights.any():
        raise ValueError("sample_weight must have at least one positive entry, got only zeros")
    return weights


def class_weights(class_weight: Any, classes: Array, places: Array, weights: Array | None) -> Array | None:
    """One weight per class; None where all are one.

    "balanced" gives every class the same total: Σw / (K · Σ_{y = k} w).
    """
    if class_weight is None:
        return None
    if isinstance(class_weight, str):
        if class_weight != "balanced":
            raise ValueError(f"class_weight must be a dict, 'balanced' or None, got {class_weight!r}")
        totals = np.bincount(places, weights=weights, minlength=len(classes))
        with np.errstate(divide="ignore"):
            return np.where(totals > 0, totals.sum() / (len(classes) * totals), 0.0)
    if not isinstance(class_weight, dict):
        raise ValueError(f"class_weight must be a dict, 'balanced' or None, got {class_weight!r}")
    chosen = np.ones(len(classes))
    known = classes.tolist()
    unknown = [label for label in class_weight if label not in known]
    if unknown and any(label not in class_weight for label in known):
        raise ValueError(f"class_weight has a weight for {unknown[0]!r}, which is not a class; the classes are {known}")
    for k, label in enumerate(known):
        chosen[k] = class_weight.get(label, 1.0)
    if not (np.isfinite(chosen) & (chosen >= 0.0)).all():
        raise ValueError(f"class_weight must be finite numbers >= 0, got {class_weight!r}")
    return chosen


def total_weights(class_weight: Any, classes: Array, places: Array, weights: Array | None) -> Array | None:
    """Weight of every row: the sample's times its class's; None where all are one."""
    per_class = class_weights(class_weight, classes, places, weights)
    if per_class is None:
        return weights
    return per_class[places] if weights is None else per_class[places] * weights
