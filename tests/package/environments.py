"""Environments that hold the wheel and what it declares, and nothing else, made without asking a package index.

The distributions are those of the environment that runs the tests: a link to each is put into the new one.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def closure(requirements: list[str], extras: tuple[str, ...] = ()) -> set[str]:
    """Names of all distributions that the requirements bring, directly or not; those of ours are not followed."""
    found: set[str] = set()
    asked: set[tuple[str, tuple[str, ...]]] = set()
    left = [(Requirement(text), extras) for text in requirements]
    while left:
        requirement, wanted = left.pop()
        if requirement.marker and not any(requirement.marker.evaluate({"extra": extra}) for extra in ("", *wanted)):
            continue
        name = canonicalize_name(requirement.name)
        inner = tuple(sorted(requirement.extras))
        if name == "trsvr":  # an extra made of extras
            left += [(Requirement(text), inner) for text in requirements if inner]
            continue
        if (name, inner) in asked:
            continue
        asked.add((name, inner))
        found.add(name)
        left += [(Requirement(text), inner) for text in metadata.requires(name) or []]
    return found


def make_environment(folder: Path, wheel: Path, requirements: list[str], extras: tuple[str, ...] = ()) -> Path:
    """A virtual environment with the wheel; returns its interpreter."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, timeout=120)
    python = folder / "bin" / "python"
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    for name in closure(requirements, extras):
        distribution = metadata.distribution(name)
        tops = {file.parts[0] for file in distribution.files or [] if file.parts[0] not in ("..", "__pycache__")}
        for top in tops:
            link = site / top
            if not link.exists():
                link.symlink_to(Path(str(distribution.locate_file(top))))
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-index", "--no-deps", wheel],
        check=True,
        timeout=120,
    )
    return python


def run_in(python: Path, *arguments: object, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run that interpreter; it sees nothing of this one's path."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    return subprocess.run(
        [str(python), *map(str, arguments)],
        cwd=folder,
        env={**kept, "TRSVR_QUIET": "1", "MPLBACKEND": "Agg", "NO_COLOR": "1", **environment},
        capture_output=True,
        text=True,
        timeout=1800,  # everything is compiled anew there
        check=False,
    )
