"""Imports go one way: rooms, and which others each may look into, also inside functions."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import trsvr

PACKAGE = Path(trsvr.__file__).parent
BELOW = {"problems": set(), "datasets": set()}
BELOW["parts"] = {"problems"}
BELOW["solvers"] = {"parts", "problems"}
BELOW["inference"] = {"parts", "problems"}
BELOW["theory"] = BELOW["solvers"] | {"solvers"}
BELOW["engine"] = BELOW["theory"] | {"theory"}
BELOW["fitting"] = BELOW["engine"] | {"engine", "inference"}
BELOW["experiments"] = BELOW["engine"] | {"engine", "datasets"}
BELOW["torch"] = BELOW["dask"] = BELOW["experiments"] | {"experiments"}
BELOW["_device"] = {"problems", "torch"}  # where a linear model is made: here or on a device
BELOW["sklearn"] = BELOW["torch"] | {"_device", "inference"}
BELOW["cli"] = BELOW["sklearn"] | {"sklearn", "torch", "dask"}


def rooms_of(node: ast.AST) -> set[str]:
    """The rooms that an import statement looks into."""
    if isinstance(node, ast.Import):
        modules = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, "imports are written out"
        modules = [f"trsvr.{alias.name}" for alias in node.names] if node.module == "trsvr" else [str(node.module)]
    else:
        return set()
    return {module.split(".")[1] for module in modules if module.startswith("trsvr.")}


@pytest.mark.parametrize("room", sorted(BELOW))
def test_a_room_looks_only_into_those_below(room):
    folder = PACKAGE / room
    files = sorted(folder.rglob("*.py")) if folder.is_dir() else [PACKAGE / f"{room}.py"]
    assert files
    for path in files:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            above = {name for name in rooms_of(node) if not name.startswith("_") or name == "_device"}
            above -= BELOW[room] | {room}
            # The front doors are made of the whole house, and may name what it shows to everybody.
            public = room in ("torch", "dask", "sklearn", "cli", "experiments")
            above -= {name for name in above if public and not (PACKAGE / name).exists()}
            assert not above, f"{path.relative_to(PACKAGE)}, line {node.lineno}: {room} looks into {', '.join(above)}"


def test_what_is_common_looks_into_no_room():
    for path in PACKAGE.glob("_*.py"):
        if path.name not in ("__init__.py", "__main__.py", "_device.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                assert all(name.startswith("_") for name in rooms_of(node)), f"{path.name}, line {node.lineno}"


def test_every_room_is_known():
    rooms = {path.name for path in PACKAGE.iterdir() if path.is_dir() and (path / "__init__.py").exists()}
    rooms |= {path.stem for path in PACKAGE.glob("*.py") if not path.name.startswith("_")}
    assert rooms == {name for name in BELOW if not name.startswith("_")}
