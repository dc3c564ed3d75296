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
from types import ModuleType

import numba
import numpy as np
import pytest
from numpy.testing import assert_allclose

import trsvr
from trsvr import _compile
from trsvr._own_text import own_text_key
from trsvr.solvers.trust_region_method import inner_loop

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


# However quick the machine is, it is said that something compiles.
ALWAYS_SAY = "from trsvr import _compile\n_compile._LONG_SECONDS = 0.0\n"


def test_the_first_run_says_what_it_compiles_and_later_ones_are_silent(copy, tmp_path):
    answer, err = copy.run(ALWAYS_SAY + SOLVE, TRSVR_CACHE_DIR=str(tmp_path))
    assert err.startswith("trsvr: compiling "), err
    assert "compiling batch gradient for dense rows, Squared, L2, float64 (once; kept for later runs)" in err
    assert_allclose(answer["gradient"], expected_gradient())
    again, err = copy.run(ALWAYS_SAY + SOLVE, TRSVR_CACHE_DIR=str(tmp_path))
    assert err == ""
    assert again == answer


ADAM = """
import json, numpy as np, trsvr
X = np.random.default_rng(0).normal(size=(500, 30))
problem = trsvr.problems.logistic(X, X[:, 0] > 0.3)
result = trsvr.minimize(problem, trsvr.Adam(), max_epochs=3, tol=None)
print(json.dumps({"file": trsvr.__file__, "x": result.x.tolist()}))
"""


def test_the_run_that_compiles_has_the_bits_of_later_ones(copy):
    """Adam's step is compiled twice, alone and with its loop; each must call its own copy."""
    assert copy.run(ADAM)[0] == copy.run(ADAM)[0]


def test_a_notice_names_what_is_compiled_with_its_parts_and_for_which_data():
    kernels = trsvr.problems.logistic(np.array(X), np.sign(Y), l2=1e-2).kernels
    notices = []
    for method in (trsvr.TrustRegionMethod(), trsvr.TrustRegionMethod(curvature=trsvr.parts.Identity())):
        kinds = [numba.typeof(record) for record in (kernels, method.parts)]
        notices.append(_compile._what_and_kind(inner_loop, kinds))
    names = "SVRGGradient, EstimatedHessian, GradientRadius, SteihaugCG"
    assert notices == [
        (f"inner loop ({parts})", "dense rows, Logistic, L2, float64")
        for parts in (names, names.replace("EstimatedHessian", "Identity"))
    ]


def test_what_compiles_is_said_each_time_that_it_has_taken_a_second(monkeypatch, capsys):
    monkeypatch.delenv("TRSVR_QUIET", raising=False)
    now = [100.0]
    monkeypatch.setattr(_compile.time, "thread_time", lambda: now[0])
    monkeypatch.setattr(_compile.time, "monotonic", lambda: now[0])
    announcer = _compile._Announcer()

    def compiles(name: str, seconds: float, inner: float = 0.0) -> str:
        announcer.begin("something", name, kept=True)
        announcer.begin("something inside", name, kept=True)
        now[0] += inner
        announcer.end()
        now[0] += seconds - inner
        announcer.end()
        return capsys.readouterr().err

    assert compiles("one", 0.9) == ""
    assert "compiling something for one " in compiles("one", 0.2)  # together they have taken more
    assert compiles("one", 5.0) == ""  # the same fit, which has said so
    assert "compiling something for other " in compiles("other", 5.0)  # told of, however soon it follows
    now[0] += 3.0
    assert compiles("other", 0.9) == ""
    now[0] += 3.0
    assert "compiling something for long " in compiles("long", 1.1, inner=1.05)
    now[0] += 3.0
    monkeypatch.setenv("TRSVR_QUIET", "1")
    assert compiles("quiet", 5.0) == ""


def test_functions_that_come_from_no_module_compile_beside_us():
    """Other libraries compile generated functions; whoever listens must not mind."""
    made: dict = {}
    exec("def add_one(x):\n    return x + 1", made)
    made["add_one"].__module__ = None
    assert numba.njit(made["add_one"])(1) == 2


def test_an_edited_loss_is_used_in_the_next_run(copy):
    with copy.edited("problems/losses.py", "return margin - label", "return 10.0 * (margin - label)"):
        answer, err = copy.run(ALWAYS_SAY + SOLVE)
        assert_allclose(answer["gradient"], 10 * expected_gradient())
        assert "compiling" in err
    answer, err = copy.run(ALWAYS_SAY + SOLVE)  # and the old one again, from the cache
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


def uses(copy: Copy, factor: float, script: str = USE_MY_LOSS, kept: bool = True) -> str:
    """Check the gradient of a loss with this factor; returns what was said of compiling."""
    answer, err = copy.run(ALWAYS_SAY + script)
    assert_allclose(answer["gradient"], factor * 4.0 * expected_gradient())
    assert ("cannot be kept" in err) is not kept
    return err


def test_a_users_own_loss_is_kept_and_edited_between_processes(copy):
    module = copy.folder / "my_loss.py"
    for factor in (1.0, 7.0):
        module.write_text(MY_LOSS.replace("FACTOR", str(factor)))
        assert "Mine" in uses(copy, factor)
        assert uses(copy, factor) == ""
    module.write_text("# Another line above changes nothing.\n" + MY_LOSS.replace("FACTOR", "1.0"))
    assert uses(copy, 1.0) == ""


def test_a_constant_that_a_users_own_loss_uses_is_edited_between_processes(copy):
    for factor in (2.0, 5.0):
        (copy.folder / "my_loss.py").write_text(f"FACTOR = {factor}\n{MY_LOSS}")
        uses(copy, factor)


def made(monkeypatch, name: str, text: str) -> ModuleType:
    """A module of this text, imported."""
    module = ModuleType(name)
    monkeypatch.setitem(sys.modules, name, module)
    exec(text, vars(module))
    return module


@pytest.mark.parametrize(
    ("before", "used"),
    [
        ("", "{}"),
        ("FACTOR = {}", "FACTOR"),
        ("import numba\n@numba.njit\ndef factor():\n    return {}", "factor()"),
        ("FACTOR = {}\ndef inner():\n    return FACTOR\ndef factor():\n    return inner()", "factor()"),
        ("import numpy as np\nFACTORS = np.array([{}])", "FACTORS[0]"),
        ("import my_constants", "my_constants.FACTOR"),
    ],
)
def test_the_key_changes_with_all_that_a_users_own_loss_uses(monkeypatch, before, used):
    def key(factor: float) -> str | None:
        made(monkeypatch, "my_constants", f"FACTOR = {factor}")
        text = before.format(factor) + MY_LOSS.replace("FACTOR", used.format(factor))
        return own_text_key(made(monkeypatch, "my_own_loss", text).Mine)

    assert key(2.0) == key(2.0) is not None
    assert key(5.0) not in (None, key(2.0))


def test_two_losses_of_the_same_name_in_two_files(copy):
    for name, factor in (("my_loss", 3.0), ("other_loss", 4.0)):
        (copy.folder / f"{name}.py").write_text(MY_LOSS.replace("FACTOR", str(factor)))
    other = USE_MY_LOSS.replace("my_loss", "other_loss")
    assert uses(copy, 3.0)
    assert uses(copy, 4.0, other)
    assert uses(copy, 3.0) == ""
    assert uses(copy, 4.0, other) == ""
    # In one process the names of their code must differ: the second is compiled under another name.
    both = other.replace("print", "str") + USE_MY_LOSS
    assert "Mine#2" in uses(copy, 3.0, both)
    assert uses(copy, 3.0, both) == ""


@pytest.mark.parametrize("place", ["main", "function"])
def test_a_loss_that_later_processes_cannot_find_by_name_is_compiled_every_time(copy, place):
    text = MY_LOSS.replace("FACTOR", "6.0")
    if place == "function":
        lines = "".join(f"    {line}\n" for line in text.splitlines())
        text = f"def make():\n{lines}    return Mine\n\nMine = make()\n"
    script = USE_MY_LOSS.replace("from my_loss import Mine\n", text)
    for _ in range(2):
        uses(copy, 6.0, script, kept=False)


def test_kept_code_of_a_users_own_loss_that_cannot_be_read_is_compiled_again(copy):
    (copy.folder / "my_loss.py").write_text(MY_LOSS.replace("FACTOR", "8.0"))
    assert uses(copy, 8.0)
    for index in (copy.folder / "cache" / "kernels").glob("*/own/**/*.nbi"):
        index.write_bytes(index.read_bytes()[:-20])
    assert uses(copy, 8.0)


def test_a_loss_that_uses_what_cannot_be_looked_into_has_no_key(monkeypatch):
    text = MY_LOSS.replace("FACTOR", "held")
    assert own_text_key(made(monkeypatch, "seen", "held = 6.0\n" + text).Mine)
    assert own_text_key(made(monkeypatch, "unseen", "held = object()\n" + text).Mine) is None


def test_what_changes_in_one_process_has_no_key_from_then_on(monkeypatch):
    """Numba goes on with what it has compiled: new code would be a mixture of old and new."""
    text = "FACTOR = 2.0\n" + MY_LOSS
    constant, method = made(monkeypatch, "changed_constant", text), made(monkeypatch, "changed_method", text)
    for module in (constant, method):
        assert own_text_key(module.Mine) == own_text_key(module.Mine) is not None
    constant.FACTOR = 3.0
    method.Mine.slope = lambda self, margin, label: 0.0
    for module in (constant, method):
        assert own_text_key(module.Mine) is None


def test_nothing_is_kept_once_the_text_has_changed_in_the_process(copy):
    (copy.folder / "my_loss.py").write_text("FACTOR = 9.0\n" + MY_LOSS)
    change = "import my_loss\nmy_loss.FACTOR = 10.0\n"
    again = USE_MY_LOSS.replace("np.array(", "np.float32(").replace("print", "str")
    kept = copy.folder / "cache" / "kernels"
    assert uses(copy, 9.0)
    before = sorted(kept.glob("*/own/**/*.nb*"))
    copy.run(USE_MY_LOSS + change + again)
    assert sorted(kept.glob("*/own/**/*.nb*")) == before


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
