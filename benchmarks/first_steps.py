"""What a newcomer waits for: the first fit, `make demo` and `make test`.

    python benchmarks/first_steps.py [compile] [demo] [test]

The first fit is 50 000 × 50 dense logistic regression in a process of its own, with nothing compiled and then with what
the first one has left, in processor time. The two commands run in fresh clones with an empty home, installing and
compiling included, in wall-clock time: nothing else should run. What was measured goes into
docs/figures/first_steps.json, and `python benchmarks/readme.py` puts it into the README.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import cold_start

ROOT = Path(__file__).parents[1]
NUMBERS = ROOT / "docs" / "figures" / "first_steps.json"


def compiling() -> dict[str, Any]:
    """Processor seconds of the first fit of its kind, and of the same in the next process."""
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder) / "cache"
        fit = cold_start.FITS[cold_start.FIRST]
        return {"seconds": cold_start.seconds(fit, cache), "again": cold_start.seconds(fit, cache)}


def in_a_fresh_clone(target: str) -> dict[str, Any]:
    """Wall-clock seconds of a command of the Makefile."""
    with tempfile.TemporaryDirectory() as folder:
        clone, home = Path(folder) / "trsvr", Path(folder) / "home"
        home.mkdir()
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        kept = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        begun = time.monotonic()
        subprocess.run(["make", target], cwd=clone, env={**kept, "HOME": str(home)}, check=True)
        return {"seconds": time.monotonic() - begun}


def main(wanted: list[str]) -> None:
    measured = json.loads(NUMBERS.read_text(encoding="utf-8")) if NUMBERS.exists() else {}
    for name in wanted or ["compile", "demo", "test"]:
        if name not in ("compile", "demo", "test"):
            raise SystemExit(f"compile, demo or test, not {name}")
        found = compiling() if name == "compile" else in_a_fresh_clone(name)
        measured[name] = {**found, "cores": len(os.sched_getaffinity(0)), "date": time.strftime("%Y-%m-%d")}
        print(name, measured[name], flush=True)
        NUMBERS.write_text(json.dumps(measured, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
