"""Nonlinear sums beside other solvers: NIST's regressions from both starts, and larger problems with three seeds.

    python benchmarks/nonlinear.py [--only nist,teacher,...] [--seeds 3] [--out FILE.csv]
    python benchmarks/nonlinear.py --endings

Every method sees the same functions. A pass is one sweep over all rows: residuals, a Jacobian, a value with its
gradient, or a product count one each. `passes` is when the target is first met: NIST, the certified sum of squares to
1e-6; elsewhere the best value that any method has found to 1e-10 of itself, or of the starting value where the minimum
is zero. Seconds are of the processor, to the end of the run: use one thread (OPENBLAS_NUM_THREADS=1) and a quiet
machine. A run ends after 3000 passes or 15 seconds.

`--endings` asks of NIST's 54 runs, by residuals and by functions, and of the larger problems, which of those that ended
well were at a minimum: SciPy, started at the end and beside it, must gain less than 1e-8 of f.
"""

import argparse
import sys
import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import scipy.optimize
import scipy.special

import trsvr
from trsvr.problems import FunctionProblem, LeastSquares

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "nonlinear"))
from certified import MODELS, regression

MOST_PASSES = 3000
MOST_SECONDS = 15.0


class Enough(Exception):
    """The budget is used up."""


@dataclass
class Task:
    """One minimisation: residuals with their Jacobian, or value with gradient and product; all of the whole sum."""

    name: str
    start: np.ndarray
    rows: int
    residuals: object = None
    jacobian: object = None
    smooth: object = None  # x -> f, gradient
    product: object = None  # x, v -> Hessian times v
    module: object = None  # -> the same as a module of PyTorch's, with inputs and targets
    target: float | None = None
    begun: float = field(default_factory=time.process_time)
    passes: int = 0
    curve: list = field(default_factory=list)  # (passes, f)

    def __post_init__(self):
        self.start = np.asarray(self.start, dtype=float)
        if self.residuals is not None:
            self.smooth = self._half_squares

    def _half_squares(self, x):
        r = self.residuals(x)
        return 0.5 * float(r @ r) / self.rows, self.jacobian(x).T @ r / self.rows

    def _count(self, value=None):
        self.passes += 1
        if value is not None and np.isfinite(value):
            self.curve.append((self.passes, float(value)))
        if self.passes > MOST_PASSES or time.process_time() - self.begun > MOST_SECONDS:
            raise Enough

    def r(self, x):
        """Residuals, counted."""
        found = self.residuals(x)
        self._count(0.5 * float(found @ found) / self.rows)
        return found

    def J(self, x):
        """Their Jacobian, counted."""
        self._count()
        return self.jacobian(x)

    def fg(self, x):
        """Value and gradient, counted."""
        value, gradient = self.smooth(x)
        self._count(value)
        return value, gradient

    def Hv(self, x, v):
        """A product with the Hessian, counted."""
        self._count()
        return self.product(x, v)


# --------------------------------------------------------------------------------------------------------- the problems


def complex_step(residuals):
    def jacobian(x):
        columns = []
        for j in range(x.size):
            shifted = x.astype(complex)
            shifted[j] += 1e-30j
            columns.append(residuals(shifted).imag / 1e-30)
        return np.stack(columns, axis=1)

    return jacobian


def nist(seed):
    for name in MODELS:
        known = regression(name)
        # The residuals of Lanczos1 are rounding errors: what counts there is that nothing else is left.
        squares = 1e-19 if name == "Lanczos1" else known.sum_of_squares * (1 + 1e-6)
        n = known.y.size
        yield Task(f"nist {name}", known.starts[seed], n, known.residuals, known.jacobian, target=0.5 * squares / n)


def sigmoid(seed):
    from sklearn.datasets import load_breast_cancer

    X, y = load_breast_cancer(return_X_y=True)
    A = np.column_stack([(X - X.mean(axis=0)) / X.std(axis=0), np.ones(len(X))]) * np.where(y > 0, 1.0, -1.0)[:, None]

    def smooth(x):
        s = scipy.special.expit(-(A @ x))
        return s.mean() + 0.5e-3 * x @ x, -(A.T @ (s * (1 - s))) / len(A) + 1e-3 * x

    def product(x, v):
        s = scipy.special.expit(-(A @ x))
        return A.T @ (s * (1 - s) * (1 - 2 * s) * (A @ v)) / len(A) + 1e-3 * v

    start = 0.3 * np.random.default_rng(seed).normal(size=A.shape[1])
    yield Task("sigmoid", start, len(A), smooth=smooth, product=product)


def tukey(seed):
    g, random = np.random.default_rng(0), np.random.default_rng(seed + 1)
    scales = 10.0 ** (2.0 * np.arange(20) / 19)
    A = g.normal(size=(2000, 20)) * scales
    y = A @ (g.normal(size=20) / scales) + 0.3 * g.normal(size=2000)
    wrong = g.random(2000) < 0.2
    y[wrong] += 5 + 10 * g.normal(size=wrong.sum())
    c = 4.685 * 0.3

    def smooth(x):
        z = ((A @ x - y) / c) ** 2
        rest = np.maximum(1 - z, 0.0)
        return c**2 / 6 * np.mean(1 - rest**3), A.T @ (rest**2 * (A @ x - y)) / 2000

    def product(x, v):
        z = ((A @ x - y) / c) ** 2
        return A.T @ (np.where(z < 1, (1 - z) * (1 - 5 * z), 0.0) * (A @ v)) / 2000

    start = np.linalg.lstsq(A, y, rcond=None)[0] + 0.1 * random.normal(size=20) / scales
    yield Task("tukey", start, 2000, smooth=smooth, product=product)


def mixture(seed):
    g, random = np.random.default_rng(0), np.random.default_rng(seed + 1)
    kind = g.choice(3, size=1500, p=[0.5, 0.2, 0.3])
    means = np.array([[0, 0], [4, 1], [-2, 5.0]])
    points = means[kind] + g.normal(size=(1500, 2)) * np.array([[1, 0.5], [0.3, 1.5], [1.2, 0.7]])[kind]

    def smooth(x):
        m, logs, logits = x[:6].reshape(3, 2), x[6:12].reshape(3, 2), np.append(x[12:], 0.0)
        z = (points[:, None] - m) / np.exp(logs)
        shares = scipy.special.softmax(logits)
        terms = np.log(shares) - 0.5 * (z**2).sum(axis=2) - logs.sum(axis=1) - np.log(2 * np.pi)
        total = scipy.special.logsumexp(terms, axis=1)
        p = np.exp(terms - total[:, None])
        by_mean = -(p[:, :, None] * z / np.exp(logs)).mean(axis=0)
        by_log = -(p[:, :, None] * (z**2 - 1)).mean(axis=0)
        by_logit = -(p.mean(axis=0) - shares)[:2]
        return -total.mean(), np.concatenate([by_mean.ravel(), by_log.ravel(), by_logit])

    def product(x, v):
        size = np.linalg.norm(v)
        h = 1e-5 * (1 + np.linalg.norm(x)) / size if size else 1.0
        return (smooth(x + h * v)[1] - smooth(x - h * v)[1]) / (2 * h)

    start = np.concatenate([points[random.choice(1500, 3, replace=False)].ravel(), np.full(6, np.log(1.5)), [0, 0]])
    yield Task("mixture", start, 1500, smooth=smooth, product=product)


def completion(seed):
    g = np.random.default_rng(0)
    truth = g.normal(size=(80, 4)) @ g.normal(size=(60, 4)).T
    i, j = np.nonzero(g.random((80, 60)) < 0.35)

    def residuals(x):
        U, V = x[:320].reshape(80, 4), x[320:].reshape(60, 4)
        return np.einsum("nk,nk->n", U[i], V[j]) - truth[i, j]

    def jacobian(x):
        U, V = x[:320].reshape(80, 4), x[320:].reshape(60, 4)
        J, rows = np.zeros((len(i), 560)), np.arange(len(i))
        for k in range(4):
            J[rows, 4 * i + k], J[rows, 320 + 4 * j + k] = V[j, k], U[i, k]
        return J

    yield Task("completion", 0.5 * np.random.default_rng(seed + 1).normal(size=560), len(i), residuals, jacobian)


def phases(seed):
    g = np.random.default_rng(0)
    A = g.normal(size=(500, 64))
    b = (A @ g.normal(size=64)) ** 2
    start = np.random.default_rng(seed + 1).normal(size=64)
    yield Task("phases", start, 500, lambda x: (A @ x) ** 2 - b, lambda x: 2 * (A @ x)[:, None] * A)


def bundle(seed):
    g = np.random.default_rng(0)
    shift = np.column_stack([0.3 * g.normal(size=(8, 2)), 5 + g.random(8)])
    cameras = np.column_stack([0.4 * g.normal(size=(8, 3)), shift])
    points = g.uniform(-1, 1, size=(60, 3))
    c, p = np.nonzero(g.random((8, 60)) < 0.8)

    def project(x):
        w, t, X = x[:48].reshape(8, 6)[c, :3], x[:48].reshape(8, 6)[c, 3:], x[48:].reshape(60, 3)[p]
        angle = np.sqrt((w * w).sum(axis=1))[:, None]
        axis, along = w / angle, (w * X).sum(axis=1)[:, None] / angle
        turned = X * np.cos(angle) + np.cross(axis, X) * np.sin(angle) + axis * along * (1 - np.cos(angle)) + t
        return (turned[:, :2] / turned[:, 2:]).ravel()

    truth = np.concatenate([cameras.ravel(), points.ravel()])
    seen = project(truth) + 1e-3 * g.normal(size=2 * len(c))
    start = truth + 0.25 * np.random.default_rng(seed + 1).normal(size=truth.size)

    def residuals(x):
        return project(x) - seen

    yield Task("bundle", start, len(c), residuals, complex_step(residuals))


def teacher(seed):
    g, random = np.random.default_rng(0), np.random.default_rng(seed + 1)
    X = g.uniform(-1, 1, size=(1000, 4))

    def weights(random, hidden, gain):
        return np.concatenate(
            [random.uniform(-gain, gain, 5 * hidden) / 2, random.uniform(-gain, gain, hidden + 1) / hidden**0.5]
        )

    def net(x, hidden):
        W, b, v = x[: 4 * hidden].reshape(hidden, 4), x[4 * hidden : 5 * hidden], x[5 * hidden : 6 * hidden]
        return np.tanh(X @ W.T + b) @ v + x[-1]

    y = net(weights(g, 6, 3.0), 6)

    def jacobian(x):
        h = np.tanh(X @ x[:40].reshape(10, 4).T + x[40:50])
        inner = (1 - h**2) * x[50:60]
        return np.concatenate(
            [(inner[:, :, None] * X[:, None]).reshape(1000, 40), inner, h, np.ones((1000, 1))], axis=1
        )

    start = weights(random, 10, 1.0)

    def module():
        import torch

        first, second = torch.nn.Linear(4, 10), torch.nn.Linear(10, 1)
        model = torch.nn.Sequential(first, torch.nn.Tanh(), second).double()
        pieces = (start[:40], start[40:50], start[50:60], start[60:])
        with torch.no_grad():
            for parameter, piece in zip(model.parameters(), pieces, strict=True):
                parameter.copy_(torch.from_numpy(piece.copy()).reshape(parameter.shape))
        return model, torch.from_numpy(X), torch.from_numpy(y)[:, None]

    yield Task("teacher", start, 1000, lambda x: net(x, 10) - y, jacobian, module=module)


def peaks(seed, n=200_000):
    g = np.random.default_rng(0)
    t = np.linspace(0, 10, n)
    truth = np.concatenate(
        [np.column_stack([1 + g.random(5), np.arange(1, 10, 2), 0.3 + 0.3 * g.random(5)]).ravel(), [0.5, 0.1]]
    )

    def model(x):
        return sum(x[k] * np.exp(-0.5 * ((t - x[k + 1]) / x[k + 2]) ** 2) for k in range(0, 15, 3)) + x[15] + x[16] * t

    def jacobian(x):
        J = np.empty((n, 17))
        for k in range(0, 15, 3):
            z = (t - x[k + 1]) / x[k + 2]
            J[:, k] = np.exp(-0.5 * z * z)
            J[:, k + 1] = x[k] * J[:, k] * z / x[k + 2]
            J[:, k + 2] = J[:, k + 1] * z
        J[:, 15], J[:, 16] = 1.0, t
        return J

    y = model(truth) + 0.05 * g.normal(size=n)
    start = truth * (1 + 0.1 * np.random.default_rng(seed + 1).normal(size=17))
    yield Task("peaks", start, n, lambda x: model(x) - y, jacobian)


def poisson(seed):
    """The physics-informed net of examples/torch_physics.py; its target is 1e-10 of the start."""
    import torch

    import trsvr.torch

    class Equation(torch.nn.Module):
        def __init__(self):
            super().__init__()
            linear, tanh = torch.nn.Linear, torch.nn.Tanh
            self.net = torch.nn.Sequential(linear(1, 20), tanh(), linear(20, 20), tanh(), linear(20, 1)).double()

        def forward(self, x):
            def slope(at):
                return torch.func.jvp(lambda z: (1.0 - z * z) * self.net(z), (at,), (torch.ones_like(x),))[1]

            curvature = torch.func.jvp(slope, (x,), (torch.ones_like(x),))[1]
            return -curvature - np.pi**2 * torch.sin(np.pi * x) - 4.0 * np.pi**2 * torch.sin(4.0 * np.pi * x)

    def module():
        torch.manual_seed(seed)
        points = torch.linspace(-1.0, 1.0, 256, dtype=torch.double)[:, None]
        return Equation(), points, torch.zeros_like(points)

    torch.set_num_threads(1)
    torch.func.vmap(torch.func.jacrev(torch.sin))(torch.zeros(2))  # imports much, whoever does it first
    model, points, zeros = module()
    problem = trsvr.torch.ModelResiduals(model, (points, zeros))
    start = problem.start()

    def jacobian(x):
        return np.concatenate([rows for _, rows in problem.jacobian_rows(x, problem.residuals_at(x), False)])

    first = problem.value_at(start)[0]
    yield Task("poisson", start, 256, problem.residuals_at, jacobian, module=module, target=1e-10 * first)


PROBLEMS = (nist, sigmoid, tukey, mixture, completion, phases, bundle, teacher, poisson, peaks)


# ---------------------------------------------------------------------------------------------------------- the methods


def ours(task):
    if task.residuals is not None:
        m, d = task.residuals(task.start).size, task.start.size
        problem = LeastSquares(m, d, lambda x, i: task.r(x), lambda x, i: task.J(x), rows_at_once=m)
    else:
        problem = FunctionProblem(task.rows, task.start.size, *_pair(task), lambda x, i, v: task.Hv(x, v))
    return trsvr.minimize(problem, x0=task.start, max_epochs=None, max_passes=MOST_PASSES)


def functions(task):
    """The same without residuals: gradients and products only (of Gauss and Newton, for want of others)."""
    if task.residuals is not None:
        return None
    problem = FunctionProblem(task.rows, task.start.size, *_pair(task))
    return trsvr.minimize(problem, x0=task.start, max_epochs=None, max_passes=MOST_PASSES).x


def _pair(task):
    """Gradient and value for a FunctionProblem, each sweep counted once."""
    kept = {}

    def both(x):
        key = x.tobytes()
        if key not in kept:
            kept.clear()
            kept[key] = task.fg(x)
        return kept[key]

    return lambda x, i: both(x)[1], lambda x, i: both(x)[0]


def scipy_squares(method):
    def solve(task):
        if task.residuals is None:
            return None
        if method == "lm" and task.residuals(task.start).size < task.start.size:
            return None
        return scipy.optimize.least_squares(
            task.r, task.start, task.J, method=method, x_scale="jac", ftol=1e-15, xtol=1e-15, gtol=1e-15, max_nfev=2000
        ).x

    return solve


def scipy_smooth(method, **options):
    def solve(task):
        if method == "BFGS" and task.start.size > 1000:
            return None
        hess = {"hessp": task.Hv} if method == "trust-ncg" else {}
        if method == "trust-ncg" and task.product is None:
            return None
        return scipy.optimize.minimize(task.fg, task.start, jac=True, method=method, options=options, **hess).x

    return solve


def torch_lbfgs(task):
    import torch

    x = torch.tensor(task.start, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [x], max_iter=2000, history_size=50, line_search_fn="strong_wolfe", tolerance_grad=0.0, tolerance_change=0.0
    )

    def closure():
        value, gradient = task.fg(x.detach().numpy())
        x.grad = torch.tensor(gradient)
        return torch.tensor(value)

    optimizer.step(closure)
    return x.detach().numpy()


def optimistix_lm(task):
    import jax
    import optimistix

    jax.config.update("jax_enable_x64", True)
    if task.residuals is None or task.name.startswith("nist"):
        return None  # its functions are NumPy's: only counted through callbacks, which is slow
    shape = jax.ShapeDtypeStruct(task.residuals(task.start).shape, np.float64)

    @jax.custom_jvp
    def residuals(x, _):
        return jax.pure_callback(lambda x: task.r(np.array(x)), shape, x)

    @residuals.defjvp
    def _(primals, tangents):
        matrix = jax.ShapeDtypeStruct((shape.shape[0], task.start.size), np.float64)
        return residuals(*primals), jax.pure_callback(lambda x: task.J(np.array(x)), matrix, primals[0]) @ tangents[0]

    solver = optimistix.LevenbergMarquardt(rtol=1e-12, atol=1e-12)
    try:
        return np.asarray(optimistix.least_squares(residuals, solver, task.start, throw=False, max_steps=2000).value)
    except jax.errors.JaxRuntimeError as error:  # what a callback raises comes as this
        raise Enough from error


def torch_lm(task):
    """Its steps are counted by calls of the module: a Jacobian is one, and so is every trial point."""
    import torch_levenberg_marquardt

    if task.module is None:
        return None
    model, inputs, targets = task.module()
    model.register_forward_pre_hook(lambda *_: task._count())
    training = torch_levenberg_marquardt.training.LevenbergMarquardtModule(model)
    for _ in range(1000):
        loss, stops = training.training_step(inputs, targets)[1:3]
        task.curve.append((task.passes, 0.5 * float(loss)))
        if stops:
            break
    return np.concatenate([parameter.detach().numpy().ravel() for parameter in model.parameters()])


def trsvr_torch(task):
    """The same net by `trsvr.torch.least_squares`, whose passes are in its trace."""
    import trsvr.torch

    if task.module is None:
        return None
    model, inputs, targets = task.module()
    result = trsvr.torch.least_squares(model, (inputs, targets), max_epochs=None, max_passes=MOST_PASSES)
    task.curve = [(row["passes"], row["value"]) for row in result.rows]
    task.passes = result.passes
    return result.x


METHODS = {
    "trsvr": ours,
    "trsvr.torch": trsvr_torch,
    "trsvr without products": functions,
    "SciPy lm": scipy_squares("lm"),
    "SciPy trf": scipy_squares("trf"),
    "L-BFGS-B 10": scipy_smooth("L-BFGS-B", maxcor=10, maxiter=10000, maxfun=10000, ftol=0.0, gtol=0.0),
    "L-BFGS-B 50": scipy_smooth("L-BFGS-B", maxcor=50, maxiter=10000, maxfun=10000, ftol=0.0, gtol=0.0),
    "BFGS": scipy_smooth("BFGS", gtol=0.0, maxiter=10000),
    "trust-ncg": scipy_smooth("trust-ncg", gtol=0.0, maxiter=2000),
    "torch L-BFGS 50": torch_lbfgs,
    "optimistix LM": optimistix_lm,
    "torch-levenberg-marquardt": torch_lm,
}


def attempt(method, make, seed, number):
    """One run: its curve, seconds and final value; None where a method does not apply or is not installed."""
    task = list(make(seed))[number]
    begun = time.process_time()
    try:
        if METHODS[method](task) is None:
            return None
    except (Enough, FloatingPointError, np.linalg.LinAlgError, ValueError):
        pass
    except ImportError:
        return None
    return task, time.process_time() - begun


# ---------------------------------------------------------------------------------------------------------- the endings


def by_residuals(known, start):
    return trsvr.least_squares(known.residuals, start, known.jacobian).result


def by_functions(solver, with_products):
    def run(known, start):
        n = known.y.size

        def gradient(x, i):
            return known.jacobian(x).T @ known.residuals(x) / n

        def product(x, i, v):
            h = 1e-5 / (np.abs(v / np.where(x != 0.0, x, 1.0)).max() or 1.0)
            return (gradient(x + h * v, i) - gradient(x - h * v, i)) / (2.0 * h)

        def value(x, i):
            return 0.5 * float(np.mean(known.residuals(x) ** 2))

        problem = FunctionProblem(n, start.size, gradient, value, product if with_products else None)
        return trsvr.minimize(problem, solver, x0=start, max_epochs=None, max_passes=4000)

    return run


WAYS = {
    "least_squares": by_residuals,
    "minimize, with products": by_functions(trsvr.TRSVR(), True),
    "minimize, without": by_functions(trsvr.TRSVR(), False),
    "TrustRegion()": by_functions(trsvr.TrustRegion(), False),
}


def gained(known, x, value):
    """What SciPy finds below f, in parts of it, from x and from a thousandth beside it."""
    random, most = np.random.default_rng(0), 0.0
    for aside, method in ((a, m) for a in (0.0, 1e-3) for m in ("trf", "lm")):
        start = x * (1.0 + aside * random.normal(size=x.size))
        tight = {"x_scale": "jac", "ftol": 1e-15, "xtol": 1e-15, "gtol": 1e-15, "max_nfev": 2000}
        try:
            other = scipy.optimize.least_squares(known.residuals, start, known.jacobian, method=method, **tight)
        except ValueError:  # it stepped out of a domain
            continue
        most = max(most, 1.0 - other.cost / known.y.size / value)
    return most


def gained_from(task, x, value):
    """The same of a larger problem."""
    random, most = np.random.default_rng(0), 0.0
    for aside in (0.0, 1e-3):
        start = x * (1.0 + aside * random.normal(size=x.size))
        found = [
            scipy.optimize.minimize(
                task.smooth, start, jac=True, method="L-BFGS-B",
                options={"maxcor": 50, "maxiter": 2000, "maxfun": 2000, "ftol": 0.0, "gtol": 0.0},
            ).fun
        ]  # fmt: skip
        if task.residuals is not None:
            tight = {"x_scale": "jac", "ftol": 1e-15, "xtol": 1e-15, "gtol": 1e-15, "max_nfev": 200}
            other = scipy.optimize.least_squares(task.residuals, start, task.jacobian, **tight)
            found.append(other.cost / task.rows)
        most = max(most, 1.0 - min(found) / value)
    return most


def larger_endings():
    """Of problems with three seeds each: those whose minimum is zero end there, where nothing is left to gain."""
    print("larger problems: runs, ended well, of those not at a minimum")
    for make in (sigmoid, tukey, mixture, completion, phases, bundle, teacher):
        runs = ended = false = 0
        for task in (task for seed in range(3) for task in make(seed)):
            runs, first = runs + 1, task.smooth(task.start)[0]
            try:
                result = ours(task)
            except Enough:
                continue
            ended, value = ended + result.success, task.smooth(result.x)[0]
            if result.success and value > 1e-20 * first and gained_from(task, result.x, value) > 1e-8:
                false += 1
        print(f"  {make.__name__:25} {runs:3} {ended:3} {false:3}", flush=True)


def endings():
    larger_endings()
    print("NIST's 54 runs: solved, ended well, of those not at a minimum")
    for way, run in WAYS.items():
        solved = ended = false = 0
        for name, number in ((name, number) for name in MODELS for number in (0, 1)):
            known = regression(name)
            result = run(known, known.starts[number])
            # The residuals of Lanczos1 are rounding errors.
            nothing = name == "Lanczos1" and result.value * known.y.size <= 0.5e-19
            solved += nothing or 2.0 * result.value * known.y.size <= known.sum_of_squares * (1.0 + 1e-6)
            ended += result.success
            if result.success and not nothing and gained(known, result.x, result.value) > 1e-8:
                false += 1
                print(f"  {way}: {name} from start {number + 1}: {result.status.name}")
        print(f"  {way:25} {solved:3} {ended:3} {false:3}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(make.__name__ for make in PROBLEMS))
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--endings", action="store_true")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    if chosen.endings:
        endings()
        return
    lines = ["problem,seed,method,solved,passes,all_passes,seconds,value"]
    for make in (make for make in PROBLEMS if make.__name__ in chosen.only.split(",")):
        found = {}
        for seed in range(2 if make is nist else chosen.seeds):
            for number, task in enumerate(make(seed)):
                runs = {name: attempt(name, make, seed, number) for name in chosen.methods.split(",")}
                runs = {name: run for name, run in runs.items() if run is not None}
                values = {name: min((f for _, f in run[0].curve), default=np.inf) for name, run in runs.items()}
                first, best = task.smooth(task.start)[0], min(values.values())
                target = task.target or best + 1e-10 * (best if best > 1e-8 * first else first)
                for name, (run, seconds) in runs.items():
                    passes = next((p for p, f in run.curve if f <= target), np.inf)
                    found.setdefault(name, []).append((passes, run.passes, seconds, values[name]))
                    solved = int(np.isfinite(passes))
                    line = f"{task.name},{seed},{name},{solved},{passes},{run.passes},{seconds:.3f},{values[name]:.12e}"
                    lines.append(line)
        print(f"\n{make.__name__}: solved, passes until then (median, mean), all passes, seconds")
        for name, rows in found.items():
            passes, every, seconds, _ = np.array(rows).T
            known = passes[np.isfinite(passes)]
            mean = f"{known.mean():6.0f}" if known.size else "     –"
            median = np.median(passes)
            print(
                f"  {name:25} {known.size:3}/{passes.size:<3} {median:7.0f} {mean} {np.median(every):7.0f} "
                f"{np.median(seconds):8.3f}",
                flush=True,
            )
    if chosen.out:
        chosen.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
