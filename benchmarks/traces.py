"""Many runs pinned bit by bit, so that a refactoring can show that it changed none of them.

    python benchmarks/traces.py record FILE [--groups sets,found,doors,cluster,device]
    python benchmarks/traces.py compare FILE [--groups …]      runs again, says what differs; exit status 1 if anything

Bits belong to a machine and its libraries: record and compare on the same one. Set TRSVR_DATA_DIR for the data sets.
Each group yields its cases: a name, a problem, and what else `trsvr.minimize` is told.
"""

import argparse
import hashlib
import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array
from sklearn.datasets import load_breast_cancer, load_digits

import trsvr
from trsvr import TRSVR, parts, problems
from trsvr.problems import L2, DoubleWell, LinearModel, Logistic, Softmax, double_well_logistic, logistic

SETS = ("synthetic", "mushrooms", "phishing", "madelon", "cod-rna", "ijcnn1", "covtype", "covtype.scale", "rcv1")
SETTINGS = ({"norm": "diagonal"}, {"norm": "identity"}, {"norm": "dense"}, {"batch_size": 200})


def sets():
    for name in SETS:
        X, y = (found := trsvr.datasets.load(name)).X, np.asarray(found.y, dtype=np.float64)
        for l2, seed in ((1e-4, 0), (1e-4, 1), (1e-6, 0), (1e-6, 1)):
            yield f"{name} {l2:.0e} seed {seed}", logistic(X, y, l2=l2), {"seed": seed}
        for gamma in (1e-4, 1e-3 * X.shape[1]) if name in ("mushrooms", "covtype.scale") else ():
            yield f"{name} wells of {gamma:.1e}", double_well_logistic(X, y, gamma=gamma), {}
        for setting in SETTINGS if name in ("phishing", "synthetic") else ():
            yield f"{name} {setting}", logistic(X, y), {"solver": TRSVR(**setting)}
        if name == "ijcnn1":
            yield f"{name} weights", logistic(X, y, intercept=True, sample_weight=np.arange(len(y)) % 4), {}


def found():
    from test_soak import FOUND, soak

    for number, case in ((number, soak.make(number)) for number in [*FOUND, *range(61)]):
        if number in FOUND or (isinstance(case.solver, TRSVR) and case.solver.alpha == "auto"):
            options = case.options | {"solver": case.solver, "max_seconds": None, "max_passes": 20000}
            yield str(number), case.problem, options


def data(n, d):  # rows with zeros, columns of uneven scale; labels of two classes and of three
    random = np.random.default_rng([n, d])
    X = random.normal(size=(n, d)) * (random.random((n, d)) < 0.7) * np.linspace(0.3, 2.0, d)
    score = X @ random.normal(size=d) + random.logistic(size=n)
    return X, np.where(score > 0, 1.0, -1.0), np.digitize(score, [-1.0, 1.0])


def models(make, prefix=""):
    """What every kind of linear model has to solve; ``make`` is its class, or calls it."""
    X, y, classes = data(2000, 9)
    plain = make(X, y, Logistic(), L2(1e-4))
    yield f"{prefix}dense", plain, {}
    yield f"{prefix}far", plain, {"x0": 10 * np.random.default_rng(0).normal(size=9)}
    yield f"{prefix}inner steps", plain, {"solver": TRSVR(inner_steps=10)}
    yield f"{prefix}diagonal", plain, {"solver": TRSVR(norm="diagonal")}
    yield f"{prefix}SVRG", plain, {"solver": trsvr.SVRG(), "max_epochs": 10}
    yield f"{prefix}CSR", make(csr_array(X), y, Logistic(), L2(1e-4)), {}
    yield f"{prefix}softmax", make(X, classes, Softmax(), L2(1e-4)), {}
    yield f"{prefix}nonconvex", make(X, y, Logistic(), L2(0.1) + DoubleWell(9.0, 0.5)), {}


def doors():
    for name, problem, options in models(LinearModel):
        yield name, problem, options
        if name in ("dense", "diagonal", "softmax"):
            with tempfile.TemporaryDirectory() as folder:
                trsvr.minimize(problem, **options, max_epochs=2, checkpoint=f"{folder}/run")
                yield f"{name} resumed", problem, {"checkpoint": f"{folder}/run", "max_epochs": 100}
    X, y, _ = data(2000, 9)
    for loss in ("Squared", "PseudoHuber", "SquaredHinge"):
        yield loss, LinearModel(X, y, getattr(problems, loss)(), L2(1e-4), intercept=True), {}
    yield "no penalty", logistic(X, y, l2=0.0), {}
    yield "float32", logistic(X.astype(np.float32), y), {}
    (digits, digit), (cells, cancer) = load_digits(return_X_y=True), load_breast_cancer(return_X_y=True)
    for kind, rows in (("", digits), (" CSR", csr_array(digits))):
        yield f"digits{kind}", LinearModel(rows, digit, Softmax(), L2(1e-4)), {}
    yield "breast cancer", logistic(cells, cancer), {}
    yield "breast cancer standardised", logistic((cells - cells.mean(axis=0)) / cells.std(axis=0), cancer), {}
    method = trsvr.TrustRegionMethod(parts.FullGradient(), parts.ExactHessian(), parts.RatioTest())
    others = {"TrustRegion": trsvr.TrustRegion(), "alpha 0.1": TRSVR(alpha=0.1), "SARAH": TRSVR(gradient="sarah")}
    for name, solver in {**others, "parts": method, "SAGA": trsvr.SAGA(), "LBFGS": trsvr.LBFGS()}.items():
        yield name, logistic(X, y), {"solver": solver, "max_epochs": 20}
    y += 1.5  # and now the mean of (m² − y)² / 8, m = xᵀrow, by functions: not convex
    known = {
        "value": lambda x, i: np.mean(((X[i] @ x) ** 2 - y[i]) ** 2) / 8,
        "gradient": lambda x, i: X[i].T @ (((X[i] @ x) ** 2 - y[i]) / 2 * (X[i] @ x)) / len(i),
        "hessian_product": lambda x, i, v: X[i].T @ ((1.5 * (X[i] @ x) ** 2 - y[i] / 2) * (X[i] @ v)) / len(i),
    }
    for missing in ("nothing", "value", "value, hessian_product", "hessian_product"):
        problem = problems.FunctionProblem(2000, 9, **{name: known[name] for name in known if name not in missing})
        yield f"functions without {missing}", problem, {"x0": np.ones(9)}
    members = ("n_samples", "n_parameters", "value_and_gradient", "batch_gradient", "gather")
    yield "five members", type("Bare", (), {name: getattr(problem, name) for name in members})(), {"x0": np.ones(9)}


def cluster():
    from small import cut, small_cluster

    with small_cluster(2) as client:
        model = trsvr.dask.LinearModel
        for name, n in (("five blocks, ", [100, 700, 350, 450, 400]), ("one block, ", [2000])):
            yield from models(lambda X, y, *rest, n=n: model(cut(X, n), cut(y, n), *rest, client=client), name)


def device():
    import torch

    from trsvr.torch.linear import LinearModel

    for place in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
        yield from models(lambda *given, place=place: LinearModel(*given, place), f"{place} ")
        for width, kind in ((28, "float32"), (28, "float64"), (100, "float32"), (100, "float64")):
            X, y, _ = data(3000, width)
            yield f"{place} {width} {kind}", LinearModel(X.astype(kind), y, device=place), {}
            yield f"{place} {width} {kind} streamed", LinearModel(X.astype(kind), y, device=place, streamed=True), {}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("record", "compare"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--groups", default="sets,found,doors,cluster,device")
    arguments = parser.parse_args()
    sys.path += [f"{Path(__file__).resolve().parents[1]}/tests{folder}" for folder in ("", "/cluster")]
    traces = {}
    for group in arguments.groups.split(","):
        begun, before = time.perf_counter(), len(traces)
        for name, problem, options in globals()[group]():
            result = (trsvr.resume if "resumed" in name else trsvr.minimize)(problem=problem, **options)
            trace = {"x": hashlib.sha256(result.x.tobytes()).hexdigest(), "status": result.status.name}
            trace |= {"epochs": result.epochs, "passes": result.passes}
            traces[f"{group}: {name}"] = {**trace, "by epoch": [row["passes"] for row in result.rows]}
        print(f"{group}: {len(traces) - before} cases, {time.perf_counter() - begun:.0f} s", flush=True)
    if arguments.what == "record":
        lines = (f"{json.dumps(name)}: {json.dumps(traces[name])}" for name in sorted(traces))
        arguments.file.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    known = json.loads(arguments.file.read_text())  # a resumed run is compared with the one that was not interrupted
    pairs = [(name, known[name.removesuffix(" resumed")], traces[name]) for name in traces if name in known]
    wrong = [f"{name}: {k} was {old[k]}, is {new[k]}" for name, old, new in pairs for k in old if old[k] != new[k]]
    print(f"{len(pairs)} traces compared")
    sys.exit("\n".join(wrong) or 0)
