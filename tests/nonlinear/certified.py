"""NIST's certified nonlinear regressions: data, models, starts and values (StRD, public domain; files under nist/)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parent / "nist"


def _peaks(b, x):
    return b[0] * np.exp(-b[1] * x) + sum(b[k] * np.exp(-((x - b[k + 1]) ** 2) / b[k + 2] ** 2) for k in (2, 5))


def _cubics(b, x):
    return (b[0] + b[1] * x + b[2] * x**2 + b[3] * x**3) / (1 + b[4] * x + b[5] * x**2 + b[6] * x**3)


def _exponentials(b, x):
    return sum(b[k] * np.exp(-b[k + 1] * x) for k in (0, 2, 4))


def _waves(b, x):
    angles = [2 * np.pi * x / period for period in (12.0, b[3], b[6])]
    heights = ((b[1], b[2]), (b[4], b[5]), (b[7], b[8]))
    return b[0] + sum(c * np.cos(a) + s * np.sin(a) for a, (c, s) in zip(angles, heights, strict=True))


MODELS = {
    "Bennett5": lambda b, x: b[0] * (b[1] + x) ** (-1 / b[2]),
    "BoxBOD": lambda b, x: b[0] * (1 - np.exp(-b[1] * x)),
    "Chwirut1": lambda b, x: np.exp(-b[0] * x) / (b[1] + b[2] * x),
    "Chwirut2": lambda b, x: np.exp(-b[0] * x) / (b[1] + b[2] * x),
    "DanWood": lambda b, x: b[0] * x ** b[1],
    "ENSO": _waves,
    "Eckerle4": lambda b, x: b[0] / b[1] * np.exp(-0.5 * ((x - b[2]) / b[1]) ** 2),
    "Gauss1": _peaks,
    "Gauss2": _peaks,
    "Gauss3": _peaks,
    "Hahn1": _cubics,
    "Kirby2": lambda b, x: (b[0] + b[1] * x + b[2] * x**2) / (1 + b[3] * x + b[4] * x**2),
    "Lanczos1": _exponentials,
    "Lanczos2": _exponentials,
    "Lanczos3": _exponentials,
    "MGH09": lambda b, x: b[0] * (x**2 + x * b[1]) / (x**2 + x * b[2] + b[3]),
    "MGH10": lambda b, x: b[0] * np.exp(b[1] / (x + b[2])),
    "MGH17": lambda b, x: b[0] + b[1] * np.exp(-x * b[3]) + b[2] * np.exp(-x * b[4]),
    "Misra1a": lambda b, x: b[0] * (1 - np.exp(-b[1] * x)),
    "Misra1b": lambda b, x: b[0] * (1 - (1 + b[1] * x / 2) ** (-2.0)),
    "Misra1c": lambda b, x: b[0] * (1 - (1 + 2 * b[1] * x) ** (-0.5)),
    "Misra1d": lambda b, x: b[0] * b[1] * x / (1 + b[1] * x),
    "Nelson": lambda b, x: b[0] - b[1] * x[0] * np.exp(-b[2] * x[1]),  # of log y
    "Rat42": lambda b, x: b[0] / (1 + np.exp(b[1] - b[2] * x)),
    "Rat43": lambda b, x: b[0] / (1 + np.exp(b[1] - b[2] * x)) ** (1 / b[3]),
    "Roszman1": lambda b, x: b[0] - b[1] * x - np.arctan(b[2] / (x - b[3])) / np.pi,
    "Thurber": _cubics,
}


@dataclass(frozen=True)
class Regression:
    """One of the 27."""

    name: str
    starts: tuple[np.ndarray, np.ndarray]
    certified: np.ndarray
    deviations: np.ndarray  # standard deviations of the estimates
    sum_of_squares: float
    x: np.ndarray
    y: np.ndarray

    def model(self, b, x):
        """The model's values."""
        return MODELS[self.name](b, x)

    def residuals(self, b):
        """Model minus data; not a number outside its domain, and no warning of that."""
        with np.errstate(all="ignore"):
            return self.model(b, self.x) - self.y

    def jacobian(self, b):
        """Its derivatives to the last digit, by complex steps."""
        columns = []
        with np.errstate(all="ignore"):
            for j, entry in enumerate(b):
                h = 1e-30 * max(abs(entry), 1e-10)
                shifted = np.array(b, dtype=complex)
                shifted[j] += 1j * h
                columns.append(self.model(shifted, self.x).imag / h)
        return np.stack(columns, axis=1)

    def digits(self, b):
        """Digits of the worst parameter that agree with the certified ones."""
        error = np.abs(np.asarray(b) - self.certified) / np.abs(self.certified)
        return float(-np.log10(max(error.max(), 1e-16))) if np.isfinite(error).all() else 0.0


@cache
def regression(name: str) -> Regression:
    """Read its file."""
    lines = (FOLDER / f"{name}.dat").read_text(encoding="ascii").splitlines()
    rows = [line.split("=")[1].split() for line in lines[40:60] if line.strip().startswith("b") and "=" in line]
    first, second, certified, deviations = np.array(rows, dtype=float).T
    squares = next(float(line.split(":")[1]) for line in lines if line.startswith("Residual Sum of Squares"))
    data = np.array([[float(entry) for entry in line.split()] for line in lines[60:] if line.strip()]).T
    y, x = (np.log(data[0]), data[1:]) if name == "Nelson" else (data[0], data[1])
    return Regression(name, (first, second), certified, deviations, squares, x, y)
