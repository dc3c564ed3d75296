"""The sdist and the wheel: what is in them, and that an empty environment with the wheel works."""

from __future__ import annotations

import ast
import email
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from environments import make_environment, run_in
from pages import ROOT

from trsvr import __version__

CORE = {"numpy", "scipy", "numba", "pandas", "platformdirs", "threadpoolctl"}
#: What is imported from each extra, and so must be missing where only the core is.
OPTIONAL = ("typer", "rich", "pooch", "matplotlib", "pyarrow", "joblib", "sklearn", "torch", "dask", "distributed")


@pytest.fixture(scope="module")
def distributions(tmp_path_factory):
    """Both, built as ``make package`` builds them: the wheel from the sdist. The tree is left as it was."""
    folder = tmp_path_factory.mktemp("dist")
    done = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    assert sdist.name == f"trsvr-{__version__}.tar.gz"
    assert wheel.name == f"trsvr-{__version__}-py3-none-any.whl"
    return sdist, wheel


@pytest.fixture(scope="module")
def facts(distributions):
    """The wheel's metadata."""
    with zipfile.ZipFile(distributions[1]) as archive:
        return email.message_from_bytes(archive.read(f"trsvr-{__version__}.dist-info/METADATA"))


def source_files() -> set[str]:
    """Every file of the package, from its root."""
    files = (path for path in (ROOT / "src" / "trsvr").rglob("*") if path.is_file())
    return {path.relative_to(ROOT / "src").as_posix() for path in files if "__pycache__" not in path.parts}


def test_the_wheel_holds_the_package_and_nothing_else(distributions):
    with zipfile.ZipFile(distributions[1]) as archive:
        names = set(archive.namelist())
    about = f"trsvr-{__version__}.dist-info/"
    assert {name for name in names if not name.startswith(about)} == source_files()
    assert {name.removeprefix(about) for name in names if name.startswith(about)} == {
        *("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE"),
        "licenses/src/trsvr/experiments/page/uplot/LICENSE",
    }
    for needed in ("trsvr/py.typed", "trsvr/experiments/studies/convex.toml", "trsvr/experiments/page/page.js"):
        assert needed in names
    strange = {name for name in names if Path(name).suffix not in (".py", ".toml", ".html", ".css", ".js", ".typed")}
    strange -= {"trsvr/experiments/page/uplot/LICENSE"}
    assert all(name.startswith(about) for name in strange), "a data file has come into the package"


def test_the_sdist_holds_the_sources_and_nothing_else(distributions):
    with tarfile.open(distributions[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    top = {*("pyproject.toml", "README.md", "CHANGELOG.md", "CITATION.cff", "LICENSE"), *("PKG-INFO", ".gitignore")}
    assert names == {f"src/{name}" for name in source_files()} | top


def test_metadata(facts, distributions):
    assert facts["License-Expression"] == "BSD-3-Clause AND MIT"
    assert facts.get_all("License-File") == ["LICENSE", "src/trsvr/experiments/page/uplot/LICENSE"]
    assert facts["Author"] == "The trsvr developers"
    assert facts["Requires-Python"] == ">=3.11"
    assert facts["Description-Content-Type"] == "text/markdown"
    assert facts.get_payload().startswith("# trsvr")
    assert "trust region" in facts["Keywords"]
    classifiers = pytest.importorskip("trove_classifiers").classifiers
    assert set(facts.get_all("Classifier")) <= classifiers
    needs = facts.get_all("Requires-Dist")
    assert {text.split(">")[0] for text in needs if "extra ==" not in text} == CORE
    with zipfile.ZipFile(distributions[1]) as archive:
        entry_points = archive.read(f"trsvr-{__version__}.dist-info/entry_points.txt").decode()
    assert "trsvr = trsvr.cli:main" in entry_points


# ------------------------------------------------------------------------------------ an environment with the core only


@pytest.fixture(scope="module")
def core(distributions, facts, tmp_path_factory):
    folder = tmp_path_factory.mktemp("core")
    return make_environment(folder / "environment", distributions[1], facts.get_all("Requires-Dist"))


MISSING_EXTRAS = """
import importlib.util, os, sys
import numpy as np
import trsvr, trsvr.datasets, trsvr.theory

assert "site-packages" in trsvr.__file__, trsvr.__file__
present = [name for name in OPTIONAL if importlib.util.find_spec(name) is not None]
assert not present, present
pulled = {name.partition(".")[0] for name in sys.modules} & set(OPTIONAL)
assert not pulled, pulled

def told(action):
    try:
        action()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "no error"

def plotted():
    problem = trsvr.problems.FunctionProblem(4, 2, lambda x, indices: x - 1.0, value=lambda x, indices: 0.0)
    trsvr.minimize(problem, trsvr.SVRG(step=0.1, batch_size=2), max_epochs=2, tol=None).plot()

def parquet():
    from trsvr.cli.tables import Wanted, read_table
    from pathlib import Path
    Path("rows.parquet").write_bytes(b"PAR1")
    read_table(Path("rows.parquet"), Wanted(), "parquet")

def workers():
    from trsvr.experiments.runner import in_processes
    list(in_processes(2)(abs, [1, 2]))

def on_a_gpu():
    from trsvr._device import linear_model
    linear_model("cuda")

print({
    "sklearn": told(lambda: trsvr.sklearn),
    "torch": told(lambda: trsvr.torch),
    "dask": told(lambda: trsvr.dask),
    "cuda": told(on_a_gpu),
    "plot": told(plotted),
    "parquet": told(parquet),
    "workers": told(workers),
    "bundled": told(lambda: trsvr.datasets.load("breast-cancer")),
    "download": told(lambda: trsvr.datasets.load("mushrooms")),
})
"""


def test_without_extras_each_door_says_what_to_install(core, tmp_path):
    code = f"OPTIONAL = {OPTIONAL!r}\n{MISSING_EXTRAS}"
    # Nothing is compiled for the few steps that a plot needs.
    done = run_in(
        core, "-c", code, folder=tmp_path, NUMBA_DISABLE_JIT="1", TRSVR_CACHE_DIR=str(tmp_path), TRSVR_DATA_DIR=""
    )
    assert done.returncode == 0, done.stderr
    told = ast.literal_eval(done.stdout.splitlines()[-1])
    for door, extra in {
        **{name: name for name in ("sklearn", "torch", "dask", "plot")},
        "cuda": "torch",
        "parquet": "cli",
        "workers": "paper",
        "bundled": "sklearn",
        "download": "cli",
    }.items():
        assert f"pip install 'trsvr[{extra}]'" in told[door], (door, told[door])


@pytest.mark.parametrize("way", ["script", "module"])
def test_without_extras_the_command_says_what_to_install(core, tmp_path, way):
    command = [core.with_name("trsvr")] if way == "script" else [core, "-m", "trsvr"]
    done = run_in(*command, "--version", folder=tmp_path)
    assert done.returncode == 2
    assert done.stderr == "trsvr: error: the command line needs typer: pip install 'trsvr[cli]'\n"


# -------------------------------------------------------------------------------------------------- README's examples


@pytest.mark.long
def test_the_first_example_needs_the_core_only(core, tmp_path):
    """The first block of the README, on rows from NumPy; what it finds is SciPy's minimiser."""
    from pages import blocks

    code = f"""
import numpy as np, scipy.optimize
rng = np.random.default_rng(0)
X = rng.normal(size=(300, 5))
y = np.where(X[:, 0] + rng.logistic(size=300) > 0, "yes", "no")
{blocks("README.md")[0].text}
sign = np.where(y == "yes", 1.0, -1.0)
value = lambda w: np.logaddexp(0.0, -sign * (X @ w)).mean() + 0.5e-4 * w @ w
best = scipy.optimize.minimize(value, np.zeros(5), method="BFGS", options={{"gtol": 1e-9}})
assert abs(result.value - best.fun) < 1e-9 * best.fun, (result.value, best.fun)
assert np.allclose(result.x, best.x, atol=1e-4)
"""
    done = run_in(core, "-c", code, folder=tmp_path, TRSVR_CACHE_DIR=str(tmp_path / "cache"))
    assert done.returncode == 0, done.stderr


@pytest.mark.long
def test_the_readme_runs_from_the_wheel(distributions, facts, tmp_path):
    """All of it, in an environment with the extras that it names."""
    extras = ("cli", "plot", "sklearn", "torch")
    requirements = [*facts.get_all("Requires-Dist")]
    python = make_environment(tmp_path / "environment", distributions[1], requirements, extras)
    work = tmp_path / "work"
    work.mkdir()
    runner = Path(__file__).with_name("run_page.py")
    done = run_in(python, runner, "README.md", folder=work, TRSVR_CACHE_DIR=str(tmp_path / "cache"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ran ") >= 9
