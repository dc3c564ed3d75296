"""How much slower a fit becomes on a machine that is not idle: beside busy processes, and with a CPU quota.

    TRSVR_DATA_DIR=... python benchmarks/load.py [--cases a,b] [--fits 7] [--markdown FILE]

Every case is fitted in one process of its own that may use two cores: alone, then beside two processes that do nothing
but keep these two cores busy, then alone in a control group that may use as much as one core (where the system lets us
make one: as root, usually; otherwise on one core). Wall-clock times, medians of several fits; the first, which
compiles, does not count. A fair share beside two busy processes is half of the cores: twice the time; the goal is
at most three times.
"""

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import scipy.sparse

BUSY = "while True: pass"


# --------------------------------------------------------------------------------------------------------- the cases


def data(n, d, density=1.0):
    random = np.random.default_rng(d)
    if density < 1.0:
        X = scipy.sparse.random_array((n, d), density=density, format="csr", rng=random)
    else:
        X = random.normal(size=(n, d))
    return X, X @ random.normal(size=d) + random.logistic(size=n) > 0


def minimized(X, y):
    import trsvr

    problem = trsvr.problems.logistic(X, y, l2=1e-4)
    return lambda: trsvr.minimize(problem)


def digits():
    from sklearn.datasets import load_digits

    from trsvr.sklearn import TRSVRClassifier

    X, y = load_digits(return_X_y=True)
    return lambda: TRSVRClassifier().fit(X, y)


def covtype():
    import trsvr

    found = trsvr.datasets.load("covtype.scale")
    return minimized(found.X, found.y)


def search():
    from sklearn.model_selection import GridSearchCV

    from trsvr.sklearn import TRSVRClassifier

    X, y = data(20_000, 50)
    return lambda: GridSearchCV(TRSVRClassifier(), {"C": np.logspace(-2, 2, 5)}, n_jobs=2).fit(X, y)


CASES = {
    "50 000 × 300 sparse": lambda: minimized(*data(50_000, 300, 0.04)),
    "20 000 × 300 dense": lambda: minimized(*data(20_000, 300)),
    "5000 × 800 dense": lambda: minimized(*data(5000, 800)),
    "digits": digits,
    "covtype.scale": covtype,
    "GridSearchCV(n_jobs=2), 20 000 × 50": search,
}


def serve(name, fits):
    """The process of one case: for each line on stdin, the median time of some fits."""
    fit = CASES[name]()
    fit()
    print("ready", flush=True)
    for _ in sys.stdin:
        times = []
        for _ in range(fits):
            begun = time.perf_counter()
            fit()
            times.append(time.perf_counter() - begun)
        print(statistics.median(times), flush=True)


# ------------------------------------------------------------------------------------------------------ the conditions


@contextlib.contextmanager
def busy(count=2):
    """So many processes that compute all the time."""
    processes = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(count)]
    try:
        time.sleep(0.5)
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


@contextlib.contextmanager
def one_core(pid):
    """A quota of one core for a process and its children, or where that cannot be had one core; yields which."""
    folder = Path("/sys/fs/cgroup")
    limits = {"cpu.max": "100000 100000"}
    if not (folder / "cgroup.controllers").exists():
        folder, limits = folder / "cpu", {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "100000"}
    group = folder / f"trsvr-load-{os.getpid()}"
    try:
        group.mkdir()
        try:
            for name, limit in limits.items():
                (group / name).write_text(limit)
            (group / "cgroup.procs").write_text(str(pid))
        except OSError:
            group.rmdir()
            raise
    except OSError:
        cores = os.sched_getaffinity(pid)
        os.sched_setaffinity(pid, {min(cores)})
        try:
            yield "one core"
        finally:
            os.sched_setaffinity(pid, cores)
        return
    try:
        yield "quota of one core"
    finally:
        for member in (group / "cgroup.procs").read_text().split():
            with contextlib.suppress(OSError):  # it may have ended
                (folder / "cgroup.procs").write_text(member)
        time.sleep(0.1)
        group.rmdir()


def measured(name, fits):
    """Seconds alone, beside busy processes and with a quota; and which kind of quota."""
    command = [sys.executable, __file__, "--serve", name, "--fits", str(fits)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:

        def ask():
            server.stdin.write("\n")
            server.stdin.flush()
            return float(server.stdout.readline())

        if server.stdout.readline().strip() != "ready":
            return None
        alone = ask()
        with busy():
            beside = ask()
        with one_core(server.pid) as kind:
            limited = ask()
        server.stdin.close()
    return alone, beside, limited, kind


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default=",".join(str(k) for k in range(len(CASES))), help="numbers of them, from 0")
    parser.add_argument("--fits", type=int, default=7)
    parser.add_argument("--markdown", type=Path, help="where the table is written, too")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.serve, arguments.fits)
        return
    os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:2]))
    lines, kind = [], "quota of one core"
    for number in arguments.cases.split(","):
        name = list(CASES)[int(number)]
        found = measured(name, arguments.fits)
        if found is None:
            print(f"{name}: its data are not on this machine", file=sys.stderr)
            continue
        alone, beside, limited, kind = found
        cells = [f"{1e3 * s:.1f}" for s in (alone, beside)] + [f"{beside / alone:.2f}"]
        lines.append("| " + " | ".join([name, *cells, f"{1e3 * limited:.1f}", f"{limited / alone:.2f}"]) + " |")
        print(lines[-1], flush=True)
    head = [
        "case",
        "alone, ms",
        "beside two busy processes, ms",
        "×",
        f"with a {kind}, ms".replace("a one", "one"),
        "×",
    ]
    table = "\n".join(["| " + " | ".join(head) + " |", "|---" * len(head) + "|", *lines])
    print(f"\n{table}")
    if arguments.markdown:
        arguments.markdown.write_text(table + "\n")


if __name__ == "__main__":
    main()
