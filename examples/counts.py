"""How often people see a doctor: a Poisson model with honest standard errors, and whether it is calibrated.

The health insurance experiment of the RAND corporation (statsmodels ships it): 20 190 person-years, their outpatient
visits, and what the insurance left to pay. Counts vary more than Poisson's variance says: the model's own standard
errors are too small, and the sandwich's (HC1) are shown beside them. The other panels are of rows held out.

    python examples/counts.py [--fast] [--out FOLDER]
"""

from __future__ import annotations

import numpy as np
import statsmodels.api as sm

from drawing import options, panels, save
from trsvr.sklearn import TRSVRRegressor


def main() -> None:
    chosen = options(__doc__)
    frame = sm.datasets.randhie.load_pandas().data.astype(float)
    y = frame.pop("mdvis")
    X = (frame - frame.mean()) / frame.std()  # coefficients for a standard deviation of each column
    train = np.random.default_rng(0).random(len(y)) < 0.5
    model = TRSVRRegressor(alpha=0.0, loss="poisson").fit(X[train], y[train])
    plain, robust = (model.summary(X[train], y[train], kind=kind) for kind in ("model", "HC1"))
    print(robust)
    print(f"D² on the other half: {model.score(X[~train], y[~train]):.4f}")

    figure, (left, middle, right) = panels(12, 4, 3)
    places = np.arange(len(frame.columns))
    for shift, found, label in ((0.15, plain, "Poisson's variance"), (-0.15, robust, "HC1")):
        table = found.table.drop("(intercept)")
        width = (table["upper"] - table["lower"]) / 2
        left.errorbar(table["coefficient"], places + shift, xerr=width, fmt="o", markersize=3, label=label)
    left.axvline(0.0, color="black", linewidth=0.8)
    left.set(
        title="Coefficients with 95 % intervals", yticks=places, yticklabels=frame.columns, xlabel="log of the mean"
    )
    left.legend()

    mean, seen = model.predict(X[~train]), y[~train].to_numpy()
    order = np.argsort(mean)
    bins = np.array_split(order, 20)
    middle.plot([mean[rows].mean() for rows in bins], [seen[rows].mean() for rows in bins], "o")
    middle.axline((2.0, 2.0), slope=1.0, color="black", linewidth=0.8)
    middle.set(title="Calibration", xlabel="visits predicted", ylabel="visits seen")

    share = np.linspace(0.0, 1.0, len(order) + 1)
    right.plot(share, np.append(0.0, np.cumsum(seen[order[::-1]])) / seen.sum(), label="highest prediction first")
    right.plot(share, np.append(0.0, np.cumsum(np.sort(seen)[::-1])) / seen.sum(), ":", label="perfect order")
    right.plot([0, 1], [0, 1], color="black", linewidth=0.8)
    right.set(title="Lift", xlabel="share of the rows", ylabel="share of all visits")
    right.legend(loc="lower right")
    save(figure, chosen.out, "counts")


if __name__ == "__main__":
    main()
