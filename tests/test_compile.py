"""Compiled code is kept between processes, and never outlives the formula it was made from.

Each test runs child processes on a copy of the package with a cache folder of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest
from numpy.testing import assert_allclose

import trsvr

X = [[1.0, 2.0], [0.5, -1.0], [3.0, 0.0]]
Y = [1.0, 2.0, -1.0]

# The gradient on a batch: of all that shows a loss's formula, what is compiled soonest.
SOLVE = f"""
import json, numpy as np, trsvr
problem = trsvr.problems.LinearModel(np.array({X}), {Y}, trsvr.problems.Squared(), trsvr.problems.L2(0.0))
print(json.dumps({{"file": trsvr.__file__, "gradient": problem.batch_gradient(np.ones(2), [0, 1, 2]).tolist()}}))
"""
WHERE = """
import json, trsvr
from trsvr import _compile
print(json.dumps({"file": trsvr.__file__, "folder": str(_compile.cache_folder())}))
"""


class Copy:
    """A copy of the package, its own cache, and children that use both."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.package = folder / "trsvr"
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(Path(trsvr.__file__).parent, self.package, ignore=ignore)

    def start(self, script: str, **environment: str) -> subprocess.Popen[str]:
        kept = {name: text for name, text in os.environ.items() if not name.startswith("TRSVR_")}
        paths = {"PYTHONPATH": str(self.folder), "TRSVR_CACHE_DIR": str(self.folder / "cache")}
        return subprocess.Popen(
            [sys.executable, "-W", "error", "-c", script],
            env={**kept, **paths, "PYTHONDONTWRITEBYTECODE": "1", **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def finish(self, child: subprocess.Popen[str]) -> tuple[dict, str]:
        out, err = child.communicate(timeout=120)
        assert child.returncode == 0, err
        return json.loads(out), err

    def run(self, script: str = SOLVE, **environment: str) -> tuple[dict, str]:
        answer, err = self.finish(self.start(script, **environment))
        if "file" in answer:
            assert answer["file"].startswith(str(self.package))
        return answer, err

    @contextlib.contextmanager
    def edited(self, name: str, old: str, new: str):
        """One formula changed, and put back afterwards."""
        file = self.package / name
        before, status = file.read_text(), file.stat()
        assert old in before, f"this test wants to edit {old!r} in {name}"
        file.write_text(before.replace(old, new))
        try:
            yield
        finally:
            file.write_text(before)
            os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A copy that has run once before; ``first`` is what that run said."""
    copy = Copy(tmp_path_factory.mktemp("copy"))
    copy.first = copy.run()
    return copy


def expected_gradient() -> np.ndarray:
    return (np.sum(X, axis=1) - Y) @ X / len(X)


def test_the_first_run_says_once_that_it_compiles_and_later_ones_are_silent(copy):
    answer, err = copy.first
    assert err.count("compiling") == 1, err
    assert len(err.splitlines()) == 1, err
    assert_allclose(answer["gradient"], expected_gradient())
    again, err = copy.run()
    assert err == ""
    assert again == answer


def test_functions_that_come_from_no_module_compile_beside_us():
    """Other libraries compile generated functions; whoever listens must not mind."""
    made: dict = {}
    exec("def add_one(x):\n    return x + 1", made)
    made["add_one"].__module__ = None
    assert numba.njit(made["add_one"])(1) == 2


def test_an_edited_loss_is_used_in_the_next_run(copy):
    with copy.edited("problems/losses.py", "return margin - label", "return 10.0 * (margin - label)"):
        answer, err = copy.run()
        assert_allclose(answer["gradient"], 10 * expected_gradient())
        assert "compiling" in err
    answer, err = copy.run()  # and the old one again, from the cache
    assert_allclose(answer["gradient"], expected_gradient())
    assert err == ""


def test_an_edit_wherever_compiled_code_comes_from_leads_to_another_folder(copy):
    """Algorithms contain the code of small functions that live in other files, which Numba does not look at."""
    before, _ = copy.run(WHERE)
    for file, old, new in (
        ("_vectors.py", "factor * a[j]", "2.0 * factor * a[j]"),
        ("_intrinsics.py", "counter[0] += 1", "counter[0] += 2"),
        ("parts/radius.py", "self.alpha * norm", "2.0 * self.alpha * norm"),
        ("solvers/trust_region_method.py", "add_scaled(1.0, ", "add_scaled(2.0, "),
    ):
        with copy.edited(file, old, new):
            after, _ = copy.run(WHERE)
        assert after["folder"] != before["folder"], file
    assert copy.run(WHERE)[0] == before


def test_the_folder_of_compiled_code_is_private(copy):
    kernels = copy.folder / "cache" / "kernels"
    assert kernels.is_dir()
    for folder in (kernels, *kernels.iterdir()):
        assert folder.stat().st_mode & 0o022 == 0


def test_compiled_code_in_a_folder_that_others_may_write_to_is_not_loaded(copy, tmp_path):
    """It is loaded with pickle: whoever may write there could run anything."""
    environment = {"TRSVR_CACHE_DIR": str(tmp_path / "shared"), "TMPDIR": str(tmp_path)}
    first, _ = copy.run(WHERE, **environment)
    assert first["folder"].startswith(str(tmp_path / "shared"))
    Path(first["folder"]).chmod(0o777)
    second, _ = copy.run(WHERE, **environment)
    assert second["folder"] != first["folder"]


def test_a_cache_folder_that_cannot_be_made_is_no_error(copy, tmp_path):
    (tmp_path / "file").write_text("in the way")
    answer, err = copy.run(WHERE, TRSVR_CACHE_DIR=str(tmp_path / "file"), TMPDIR=str(tmp_path))
    assert err == ""
    assert not answer["folder"].startswith(str(tmp_path / "file"))


# Two processes compile the same function for different types at once. Each has read the index before the other
# wrote to it; then the index of the second stands, and the code of the first is written last.
RACE = """
import json, pathlib, sys, time
import numpy as np
from numba.core.caching import IndexDataCacheFile as Files
from trsvr.problems.passes import add_parts

def wait_for(name):
    until = time.monotonic() + 60
    while not pathlib.Path(FOLDER, name).exists():
        assert time.monotonic() < until, name + " never came"
        time.sleep(0.01)

def told(what, real, wait=None):
    def act(self, *arguments):
        if "add_parts" not in self._index_path or not saving:
            return real(self, *arguments)
        if wait:
            wait_for(wait)
        result = real(self, *arguments)
        pathlib.Path(FOLDER, f"{what} of {ROLE}").touch()
        return result
    return act

saving = []
def save(self, *arguments, real=Files.save):
    saving.append(True)
    real(self, *arguments)

waits = {"first": ("reading of second", "code of second"), "second": ("index of first", None)}
if ROLE in waits:
    Files.save = save
    Files._load_index = told("reading", Files._load_index)
    Files._save_index = told("index", Files._save_index, waits[ROLE][0])
    Files._save_data = told("code", Files._save_data, waits[ROLE][1])

out = {}
for kind in KINDS:
    parts, total = np.arange(6, dtype=kind).reshape(2, 3), np.empty(3, dtype=kind)
    add_parts(parts, 0, 2, 1.0, total)
    out[kind] = total.tolist()
print(json.dumps(out))
"""


def test_two_processes_that_compile_at_once_never_swap_their_code(copy, tmp_path):
    meeting = tmp_path / "meeting"
    meeting.mkdir()

    def script(role: str, *kinds: str) -> str:
        return f"FOLDER, ROLE, KINDS = {str(meeting)!r}, {role!r}, {kinds}\n{RACE}"

    children = [copy.start(script("first", "float32")), copy.start(script("second", "int64"))]
    answers = [copy.finish(child)[0] for child in children]
    assert (meeting / "code of first").exists()
    answers.append(copy.run(script("later", "int64", "float32"))[0])
    for answer in answers:
        assert all(total == [3.0, 5.0, 7.0] for total in answer.values())


# ------------------------------------------------------------------------------- losses of the user's own

MY_LOSS = """
from typing import NamedTuple


class Mine(NamedTuple):
    sharpness: float = 2.0

    def value(self, margin, label):
        return FACTOR * self.sharpness * (margin - label) ** 2

    def slope(self, margin, label):
        return FACTOR * 2.0 * self.sharpness * (margin - label)

    def curvature(self, margin, label):
        return FACTOR * 2.0 * self.sharpness
"""

USE_MY_LOSS = f"""
import json, sys, numpy as np, trsvr
sys.path.insert(0, ".")
from my_loss import Mine
problem = trsvr.problems.LinearModel(np.array({X}), {Y}, Mine(), trsvr.problems.L2(0.0))
print(json.dumps({{"gradient": problem.batch_gradient(np.ones(2), [0, 1, 2]).tolist()}}))
"""


def test_a_users_own_loss_edited_between_two_processes(copy):
    for factor in (1.0, 7.0):
        (copy.folder / "my_loss.py").write_text(MY_LOSS.replace("FACTOR", str(factor)))
        answer, err = copy.run(USE_MY_LOSS, TRSVR_QUIET="1")
        assert_allclose(answer["gradient"], factor * 4.0 * expected_gradient())
        assert err == ""  # asked to be quiet


def test_a_users_own_loss_defined_again_in_one_process():
    """As in a notebook: the cell is edited and run again, the class has the same name."""
    for factor in (1.0, 7.0):
        space: dict = {"__name__": "notebook"}
        exec(MY_LOSS.replace("FACTOR", str(factor)), space)
        problem = trsvr.problems.LinearModel(np.array(X), Y, space["Mine"](), trsvr.problems.L2(0.0))
        assert_allclose(problem.batch_gradient(np.ones(2), [0, 1, 2]), factor * 4.0 * expected_gradient())


# ---------------------------------------------------------------------------------------------- importing

IMPORT = """
import json, sys, time
import numpy, scipy, scipy.sparse, numba, numba.extending, llvmlite.binding
begun = time.process_time()  # what other processes do is not counted
import trsvr
seconds = time.process_time() - begun
unwanted = ["pandas", "sklearn", "torch", "matplotlib", "dask", "typer", "rich", "pooch", "pyarrow"]
print(json.dumps({"seconds": seconds, "found": [name for name in unwanted if name in sys.modules]}))
"""


def test_importing_is_quick_and_pulls_in_no_front_door(copy):
    for _ in range(3):  # one of them is quick, even where the machine is busy
        answer, _ = copy.run(IMPORT)
        assert answer["found"] == []
        if answer["seconds"] < 0.3:
            return
    pytest.fail(f"importing takes {answer['seconds']:.2f} s of processor time")
