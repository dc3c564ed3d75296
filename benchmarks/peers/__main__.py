"""The command: see the package's docstring."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from . import __doc__ as about_the_package

ROOT = Path(__file__).resolve().parents[2]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peers", description=about_the_package,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    commands = parser.add_subparsers(dest="command", required=True)

    run = commands.add_parser("run", help="measure what has not been measured yet (an interrupted run goes on)")
    run.add_argument("--quick", action="store_true", help="five small sets, λ = 1e-4: about five minutes")
    run.add_argument("--only", default="", metavar="DATA;PEERS", help="names or parts of names, separated by commas")
    run.add_argument("--l2", type=float, nargs="+", help="values of λ; default: 1e-4 and 1e-6")
    run.add_argument("--minutes", type=float, default=600.0, help="begin nothing new after so many minutes")
    run.add_argument("--again", action="store_true", help="measure known cells again")
    run.add_argument("--threads", type=int, default=0, help="cores for everybody; default: all this process may use")
    run.add_argument("--out", type=Path, default=ROOT / "results" / "peers", help="folder of cells.jsonl")

    report = commands.add_parser("report", help="write tables, figures, page and data from what was measured")
    report.add_argument("--out", type=Path, default=ROOT / "results" / "peers", help="folder of cells.jsonl")
    report.add_argument("--docs", type=Path, help="folder that gets benchmarks.md and figures/ as well")

    commands.add_parser("install", help="install the peers into this environment, each for itself")

    arguments = parser.parse_args()
    if arguments.command == "run":
        if arguments.threads:
            # Affinity binds everybody alike, whatever pool of threads they bring along.
            os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: arguments.threads])
        from .run import run as measure

        measure(
            arguments.out / "cells.jsonl", quick=arguments.quick, only=arguments.only, minutes=arguments.minutes,
            again=arguments.again, strengths=arguments.l2,
        )  # fmt: skip
    elif arguments.command == "report":
        from .report import write

        for path in write(arguments.out, arguments.docs):
            print(path)
    else:
        from .install import install

        install()


if __name__ == "__main__":
    main()
