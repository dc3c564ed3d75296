"""A tiny study, and a folder in which it has been run."""

from __future__ import annotations

import shutil

import pytest
from tiny_study import TINY, run_here

from trsvr.experiments import report, specification


@pytest.fixture(scope="session")
def tiny():
    return specification.parse(TINY, "tiny.toml")


@pytest.fixture(scope="session")
def finished(tiny, tmp_path_factory):
    """A folder with the tiny study and its nonconvex variant, finished."""
    folder = tmp_path_factory.mktemp("finished")
    run_here([tiny, tiny.nonconvex()], folder)
    return folder


@pytest.fixture(scope="session")
def reported(finished, tmp_path_factory):
    """A copy of that folder with its report, and the files that were written."""
    folder = tmp_path_factory.mktemp("reported") / "run"
    shutil.copytree(finished, folder)
    return folder, report.write(folder)
