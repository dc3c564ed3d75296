"""How well data determine a curve: four constants with their standard errors, and the band around the fit.

Fifteen weights of onion bulbs over their growing time (Ratkowsky 1983, in NIST's collection of certified regressions):
y = b1 / (1 + exp(b2 − b3 t))^(1/b4). The certified digits are printed beside ours. The band is that of the curve at
95 per cent, from the covariance: the variance of f(t) is gᵀCg with g its derivatives in the constants.

    python examples/calibration.py [--fast] [--out FOLDER]
"""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import scipy.stats

import trsvr
from drawing import options, save

WEIGHT = np.array(
    [16.08, 33.83, 65.80, 97.20, 191.55, 326.20, 386.87, 520.53, 590.03, 651.92, 724.93, 699.56, 689.96, 637.56, 717.41]
)
TIME = np.arange(1.0, 16.0)
CERTIFIED = np.array([6.9964151270e2, 5.2771253025, 7.5962938329e-1, 1.2792483859])


def curve(t: np.ndarray, b1: float, b2: float, b3: float, b4: float) -> np.ndarray:
    """The weight at time t."""
    return b1 / (1.0 + np.exp(b2 - b3 * t)) ** (1.0 / b4)


def main() -> None:
    chosen = options(__doc__ or "")
    found, covariance = trsvr.curve_fit(curve, TIME, WEIGHT, p0=[100.0, 10.0, 1.0, 1.0])
    errors = np.sqrt(np.diagonal(covariance))
    print("constant   estimate          certified         standard error")
    for k, (value, known, error) in enumerate(zip(found, CERTIFIED, errors, strict=True), start=1):
        print(f"b{k}         {value:<17.11g} {known:<17.11g} {error:.4g}")
    print(f"digits: {-np.log10(np.abs(found / CERTIFIED - 1).max()):.1f}")

    t = np.linspace(0.0, 16.0, 40 if chosen.fast else 400)
    steps = 1e-6 * np.abs(found) * np.eye(4)
    slopes = np.stack([(curve(t, *(found + h)) - curve(t, *(found - h))) / (2 * h.sum()) for h in steps])
    width = np.sqrt(np.einsum("it,ij,jt->t", slopes, covariance, slopes)) * scipy.stats.t.ppf(0.975, len(TIME) - 4)
    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    axes.fill_between(t, curve(t, *found) - width, curve(t, *found) + width, alpha=0.25, label="95 % band of the curve")
    axes.plot(t, curve(t, *found), label="fit")
    axes.plot(TIME, WEIGHT, "k.", label="data")
    axes.set(xlabel="growing time", ylabel="dry weight", title="A growth curve with four constants")
    axes.legend(loc="lower right")
    save(figure, chosen.out, "calibration")


if __name__ == "__main__":
    main()
