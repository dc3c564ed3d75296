"""The peers' packages, each installed for itself: one that cannot be built keeps nobody out, and the reason is kept."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

#: Requirement, and what pip needs to be told. lightning's sources were translated for older versions of Python and of
#: NumPy; built here, against what is installed here, they work.
PEERS: dict[str, tuple[str, ...]] = {
    "scikit-learn>=1.6": (),
    "liblinear-official==2.50.0": (),
    "cyanure==1.2.2": (),
    "snapml==1.17.2": (),
    "glum==3.4.1": (),
    "scikit-learn-intelex==2026.2.0": (),
    "skglm==0.5": (),
    "sklearn-contrib-lightning==0.6.2.post0": ("--no-build-isolation",),
}
#: Packages that bring modules of the same names as others: each in a folder of its own.
APART = ("liblinear-multicore==2.50.0",)
TOOLS = ("setuptools<80", "wheel", "Cython>=3")
CONSTRAINTS = Path(__file__).resolve().parents[2] / "constraints.txt"


def _log() -> Path:
    return Path(sys.prefix) / "peers.json"


def install() -> None:
    """Install all; what failed is told and written down."""
    failures = {}
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", str(CONSTRAINTS)]
    subprocess.run([*pip, *TOOLS], check=True)
    wanted = {**PEERS, **{known: ("--no-deps", "--upgrade", "--target", str(folder_of(known))) for known in APART}}
    for requirement, options in wanted.items():
        done = subprocess.run([*pip, *options, requirement], capture_output=True, text=True, check=False)
        name = requirement.split("==")[0].split(">=")[0]
        if done.returncode:
            failures[name] = _reason(done.stderr)
        print(f"{requirement}: {failures.get(name, 'installed')}", flush=True)
    _log().write_text(json.dumps(failures, indent=1), encoding="utf-8")


def folder_of(requirement: str) -> Path:
    """Where a package lies that is kept apart."""
    return Path(sys.prefix) / "apart" / requirement.split("==")[0]


def use_apart(name: str, package: str) -> None:
    """Let ``package`` be the one that is kept apart: in a process that needs no other."""
    for module in [module for module in sys.modules if module.split(".")[0] == package]:
        del sys.modules[module]
    sys.path.insert(0, str(folder_of(name)))


def _reason(errors: str) -> str:
    lines = [line.strip() for line in errors.splitlines() if "error" in line.lower()]
    return f"not installable: {lines[0][:160] if lines else 'pip gave no reason'}"


def why_not(name: str) -> str:
    """Why a package could not be installed, where that is known."""
    try:
        return str(json.loads(_log().read_text(encoding="utf-8"))[name])
    except (OSError, ValueError, KeyError):
        return ""
