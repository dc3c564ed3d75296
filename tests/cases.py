"""What a test that fails says to a stranger: which of its random cases it was, and the command that repeats it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

_current: dict[str, Any] = {}


def note(**facts: Any) -> None:
    """What is tried now."""
    _current.update(facts)


def cases(count: int, **facts: Any) -> Iterator[int]:
    """The numbers 0 … count − 1 of random cases; the one at work is told if the test fails, with what else is known."""
    for number in range(count):
        _current.update(case=number, **facts)
        yield number
    _current.clear()


def pytest_runtest_setup() -> None:
    """A test begins."""
    _current.clear()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Add a section to what is printed of a failure."""
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    if report.failed:
        path = os.path.relpath(item.path, item.config.rootpath)
        name = report.nodeid.partition("::")[2]
        told = [", ".join(f"{what} {value}" for what, value in _current.items())] if _current else []
        told.append(f"repeat: python -m pytest -n0 -m '' '{path}::{name}'")
        report.sections.append(("which case", "\n".join(told)))
