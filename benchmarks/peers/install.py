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
    "skglm==0.5": (),
    "sklearn-contrib-lightning==0.6.2.post0": ("--no-build-isolation",),
}
TOOLS = ("setuptools<80", "wheel", "Cython>=3")
CONSTRAINTS = Path(__file__).resolve().parents[2] / "constraints.txt"


def _log() -> Path:
    return Path(sys.prefix) / "peers.json"


def install() -> None:
    """Install all; what failed is told and written down."""
    failures = {}
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", str(CONSTRAINTS)]
    subprocess.run([*pip, *TOOLS], check=True)
    for requirement, options in PEERS.items():
        done = subprocess.run([*pip, *options, requirement], capture_output=True, text=True, check=False)
        name = requirement.split("==")[0].split(">=")[0]
        if done.returncode:
            failures[name] = _reason(done.stderr)
        print(f"{requirement}: {failures.get(name, 'installed')}", flush=True)
    _log().write_text(json.dumps(failures, indent=1), encoding="utf-8")


def _reason(errors: str) -> str:
    lines = [line.strip() for line in errors.splitlines() if "error" in line.lower()]
    return f"not installable: {lines[0][:160] if lines else 'pip gave no reason'}"


def why_not(name: str) -> str:
    """Why a package could not be installed, where that is known."""
    try:
        return str(json.loads(_log().read_text(encoding="utf-8"))[name])
    except (OSError, ValueError, KeyError):
        return ""
