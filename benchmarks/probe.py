"""The linear probe on a CPU: dense float32 embeddings with a few to many classes, beside the solvers people use.

    python benchmarks/probe.py [--sets 20000x512x10,…] [--C 0.1,1,100] [--peers trsvr,lbfgs,…] [--seconds 300] [--out F]

Embeddings are generated: K centres 0.6·N(0, I), x = 0.35·centre + N(0, I), rows scaled to length 0.1·√d, float32;
``--kind 2`` has a spectrum that falls from 1 to 0.1 instead of N(0, I), in directions that are no columns, and
0.1·centre. The objective is scikit-learn's, C Σ ℓ_i + ½‖w‖² with an unpenalised intercept, divided by C N.

A time is the wall clock from arrays in memory to weights, of a fit that stops by the solver's own rule. Each solver is
run with tolerances that fall by ten until the gap of its answer is below 1e-9, or its runs take longer than
``--seconds``; the time to a gap is that of its quickest run with that gap, the best of ``--repeat``. The gap is
f/f* − 1 in float64, f* the lowest value that any run found, a first one to 1e-12 included. What compiles is compiled
before. ``--one-thread`` counts processor time on one thread instead: for machines that do other work meanwhile.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import sys
import time
import warnings
from pathlib import Path

import numpy as np

SETS = ("20000x512x2", "20000x512x10", "20000x512x100", "50000x768x10", "5000x2048x20")
STRENGTHS = (0.1, 1.0, 100.0)
GAPS = (1e-3, 1e-6, 1e-9)
TOLERANCES = tuple(10.0**-k for k in range(1, 11))
# TRSVRClassifier also asks that less than 1e-4 tol² of the objective is left to gain.
OWN_TOLERANCES = (30.0, 10.0, 3.0, 0.3, 0.1, 0.03, 0.01, 1e-3, 1e-4)


def embeddings(n, d, classes, kind=1, seed=0):
    """Rows and labels."""
    random = np.random.default_rng(seed)
    centres = 0.6 * random.standard_normal((classes, d))
    y = random.integers(classes, size=n)
    noise = random.standard_normal((n, d), dtype=np.float32)
    if kind == 2:
        turn = np.linalg.qr(random.standard_normal((d, d)))[0]
        noise = (noise * np.geomspace(1.0, 0.1, d).astype(np.float32)) @ turn.astype(np.float32)
    X = (0.35 if kind == 1 else 0.1) * centres[y].astype(np.float32) + noise
    X *= (0.1 * np.sqrt(d) / np.linalg.norm(X, axis=1))[:, None].astype(np.float32)
    return np.ascontiguousarray(X, dtype=np.float32), y


def objective(X, y, C, W):
    """The value in float64 at (p + 1) × K weights, or p + 1 with two classes."""
    value, C_n = 0.0, C * len(y)
    for start in range(0, len(y), 4096):
        rows = slice(start, start + 4096)
        Z = X[rows].astype(np.float64) @ W[:-1] + W[-1]
        if W.ndim == 1:
            value += np.logaddexp(0.0, np.where(y[rows] > 0, -Z, Z)).sum()
        else:
            top = Z.max(axis=1)
            value += (np.log(np.exp(Z - top[:, None]).sum(axis=1)) + top - Z[np.arange(len(Z)), y[rows]]).sum()
    return value / len(y) + 0.5 * float((W[:-1] ** 2).sum()) / C_n


# ---------------------------------------------------------------------------------------------------------- the peers


def _weights(model):
    W = np.vstack([np.asarray(model.coef_, dtype=float).T, np.asarray(model.intercept_, dtype=float)])
    return W[:, 0] if W.shape[1] == 1 else W


def _trsvr(X, y, C, tol):
    from trsvr.sklearn import TRSVRClassifier

    return _weights(TRSVRClassifier(C=C, tol=tol).fit(X, y))


def _sklearn(solver):
    def fit(X, y, C, tol):
        from sklearn.linear_model import LogisticRegression

        return _weights(LogisticRegression(C=C, solver=solver, tol=tol, max_iter=100_000, random_state=0).fit(X, y))

    return fit


def _sklearnex(X, y, C, tol):
    from sklearnex.linear_model import LogisticRegression

    return _weights(LogisticRegression(C=C, solver="lbfgs", tol=tol, max_iter=100_000).fit(X, y))


def _torch(X, y, C, tol):
    import torch

    rows, n = torch.from_numpy(X), len(y)
    classes = int(y.max()) + 1
    outputs = 1 if classes == 2 else classes
    labels = torch.from_numpy(y).float() if outputs == 1 else torch.from_numpy(y)
    W = torch.zeros(X.shape[1] + 1, outputs, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [W], max_iter=100_000, max_eval=200_000, history_size=20, line_search_fn="strong_wolfe",
        tolerance_grad=tol, tolerance_change=0.01 * tol * tol,
    )  # fmt: skip

    def closure():
        optimizer.zero_grad()
        Z = rows @ W[:-1] + W[-1]
        if outputs == 1:
            loss = torch.nn.functional.binary_cross_entropy_with_logits(Z[:, 0], labels)
        else:
            loss = torch.nn.functional.cross_entropy(Z, labels)
        loss = loss + 0.5 / (C * n) * (W[:-1] ** 2).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    W = W.detach().double().numpy()
    return W[:, 0] if outputs == 1 else W


PEERS = {
    "trsvr": _trsvr,
    "lbfgs": _sklearn("lbfgs"),
    "newton-cg": _sklearn("newton-cg"),
    "newton-cholesky": _sklearn("newton-cholesky"),
    "sag": _sklearn("sag"),
    "saga": _sklearn("saga"),
    "sklearnex": _sklearnex,
    "torch": _torch,
}


# --------------------------------------------------------------------------------------------------------- one solver


def _measure(pipe, peer, size, kind, C, seconds, repeat, one_thread):
    """In a process of its own: send (tolerance, seconds of each run, value), tolerance after tolerance."""
    clock = time.process_time if one_thread else time.perf_counter
    warnings.simplefilter("ignore")
    X, y = embeddings(*size, kind)
    fit = PEERS[peer]
    few = np.concatenate([np.flatnonzero(y == k)[:40] for k in range(int(y.max()) + 1)])
    with contextlib.suppress(Exception):
        fit(X[few], y[few], C, 0.1)
    if one_thread and peer == "torch":
        import torch

        torch.set_num_threads(1)
    if peer == "trsvr":  # what is compiled depends on the size of the data: a first fit that is not timed
        fit(X, y, C, 0.1)
    spent = 0.0
    for tol in OWN_TOLERANCES if peer == "trsvr" else TOLERANCES:
        times = []
        try:
            for _ in range(repeat):
                begun = clock()
                W = fit(X, y, C, tol)
                times.append(clock() - begun)
                if sum(times) > seconds / 4:
                    break
        except Exception as error:
            pipe.send(("failed", f"{type(error).__name__}: {error}"[:200], None))
            return
        spent += sum(times)
        pipe.send((tol, times, objective(X, y, C, W)))
        if pipe.recv() == "enough" or spent > seconds:
            return


def _reference(pipe, size, kind, C):
    from trsvr.sklearn import TRSVRClassifier

    X, y = embeddings(*size, kind)
    pipe.send(objective(X, y, C, _weights(TRSVRClassifier(C=C, tol=1e-9).fit(X.astype(np.float64), y))))


def reference(size, kind, C):
    """The lowest value, from a long run."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.Process(target=_reference, args=(there, size, kind, C))
    process.start()
    value = here.recv()
    process.join()
    return value


def measure(peer, size, kind, C, seconds, repeat, best, one_thread):
    """[(seconds, value)] of a solver's runs; ``best`` is the lowest value known, in a list that is kept up to date."""
    if peer == "newton-cholesky":
        parameters = (size[1] + 1) * (1 if size[2] == 2 else size[2])
        if 8 * parameters**2 > 2**32:
            return [], f"its matrix has {parameters}² numbers"
    here, there = multiprocessing.Pipe()
    process = multiprocessing.Process(target=_measure, args=(there, peer, size, kind, C, seconds, repeat, one_thread))
    process.start()
    there.close()
    runs, why = [], ""
    deadline = time.monotonic() + 2 * seconds + 60
    try:
        while here.poll(max(0.0, min(deadline - time.monotonic(), seconds + 30))):
            tol, times, answer = here.recv()
            if tol == "failed":
                why = times
                break
            runs.append((min(times), answer))
            best[0] = min(best[0], answer)
            here.send("enough" if answer / best[0] - 1.0 <= GAPS[-1] else "more")
        else:
            why = f"more than {seconds:.0f} s"
    except EOFError:
        pass
    process.kill()
    process.join()
    return runs, why


def table(cells):
    """Markdown: seconds to each gap, the fastest in bold."""
    peers = list(dict.fromkeys(cell["peer"] for cell in cells if cell["peer"] != "f*"))
    lines = ["| data | C | gap | " + " | ".join(peers) + " |", "|---|---|---|" + "---:|" * len(peers)]
    won = worst = total = 0
    for data, C in dict.fromkeys((cell["set"], cell["C"]) for cell in cells):
        mine = {cell["peer"]: cell for cell in cells if (cell["set"], cell["C"]) == (data, C)}
        best = min(value for cell in mine.values() for _, value in cell["runs"])
        for gap in GAPS:
            times = {
                peer: min((s for s, value in cell["runs"] if value / best - 1.0 <= gap), default=np.inf)
                for peer, cell in mine.items()
                if peer != "f*"
            }
            least = min(times.values())
            shown = []
            for peer in peers:
                seconds = times.get(peer, np.inf)
                text = "–" if np.isinf(seconds) else f"{seconds:.3g}"
                shown.append(f"**{text}**" if seconds == least else text)
            lines.append(f"| {data} | {C:g} | {gap:.0e} | " + " | ".join(shown) + " |")
            if "trsvr" in times:
                total += 1
                won += times["trsvr"] == least
                worst = max(worst, times["trsvr"] / least)
    lines += [
        "",
        f"trsvr is the fastest in {won} of {total} cells, and never takes more than {worst:.2f} times the fastest.",
    ]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--C", default=",".join(map(str, STRENGTHS)))
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--kind", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=300.0, help="that a run may take")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--one-thread", action="store_true", help="processor time, everybody on one thread")
    parser.add_argument("--out", type=Path, default=Path("results/probe.json"))
    arguments = parser.parse_args()
    os.environ.setdefault("TRSVR_QUIET", "1")
    if arguments.one_thread:
        for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "TRSVR_NUM_THREADS"):
            os.environ[name] = "1"
    cells = json.loads(arguments.out.read_text()) if arguments.out.exists() else []
    known = {(cell["set"], cell["C"], cell["peer"], cell["kind"]): cell for cell in cells}
    for name in arguments.sets.split(","):
        for C in map(float, arguments.C.split(",")):
            size, best = tuple(map(int, name.split("x"))), [np.inf]
            for peer in ("f*", *arguments.peers.split(",")):
                key = name, C, peer, arguments.kind
                if key not in known:
                    if peer == "f*":
                        runs, why = [(0.0, reference(size, arguments.kind, C))], ""
                    else:
                        runs, why = measure(
                            peer, size, arguments.kind, C, arguments.seconds, arguments.repeat, best,
                            arguments.one_thread,
                        )  # fmt: skip
                    known[key] = {"set": name, "C": C, "peer": peer, "kind": arguments.kind, "runs": runs, "why": why}
                    arguments.out.parent.mkdir(parents=True, exist_ok=True)
                    arguments.out.write_text(json.dumps(list(known.values())))
                runs = known[key]["runs"]
                best[0] = min([best[0], *(value for _, value in runs)])
                shown = ", ".join(f"{s:.3g} s to {value / best[0] - 1.0:.0e}" for s, value in runs)
                print(f"{name} C={C:g} {peer}: {shown} {known[key]['why']}", file=sys.stderr, flush=True)
    print(table([cell for cell in known.values() if cell["kind"] == arguments.kind]))


if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    main()
