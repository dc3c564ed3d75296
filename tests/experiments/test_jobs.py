"""Identities: everything that changes a result changes the hash, and nothing else does."""

from __future__ import annotations

import dataclasses

import pytest

import trsvr
from trsvr.experiments import jobs
from trsvr.experiments.jobs import job_of
from trsvr.experiments.specification import Method, Objective
from trsvr.experiments.subjects import Subject


@pytest.fixture
def job(tiny):
    problem = tiny.problems[0]
    subject = Subject.of(problem, tiny.objective)
    return job_of(tiny, subject, subject.identity(), problem.methods[0], 0)


def test_what_changes_the_result_changes_the_identity(job, tiny, monkeypatch):
    other = dataclasses.replace(tiny.problems[0], parameters={**tiny.problems[0].parameters, "seed": 1})
    subjects = [
        Subject.of(other, tiny.objective),
        Subject.of(tiny.problems[0], Objective(l2=0.2)),
        Subject.of(dataclasses.replace(tiny.problems[0], rows=100), tiny.objective),
        Subject.of(dataclasses.replace(tiny.problems[0], preprocess="standardize"), tiny.objective),
    ]
    changed = [dataclasses.replace(job, problem_id=subject.identity()) for subject in subjects]
    changed += [
        dataclasses.replace(job, seed=1),
        dataclasses.replace(job, epochs=6),
        dataclasses.replace(job, passes=3.0),
        dataclasses.replace(job, start="zero"),
        dataclasses.replace(job, timed=True),
        dataclasses.replace(job, solver="svrg"),
        dataclasses.replace(job, settings='{"alpha": 0.25}'),
    ]
    identities = {job.identity, *(one.identity for one in changed)}
    assert len(identities) == len(changed) + 1
    monkeypatch.setattr(trsvr, "__version__", "99.0")
    assert dataclasses.replace(job).identity not in identities


def test_names_do_not_change_it(job, tiny):
    problem = tiny.problems[0]
    renamed = dataclasses.replace(tiny, name="other", title="other")
    method = Method("another label", "trsvr", dict(reversed(problem.methods[0].settings.items())), "tuned", "group")
    again = job_of(renamed, Subject.of(problem, tiny.objective), job.problem_id, method, 0)
    assert again.identity == job.identity


def test_the_algorithms_text_counts_but_not_its_comments():
    text = 'def f(x):\n    """Says."""\n    return x + 1  # why\n'
    assert jobs._meaning(text) == jobs._meaning('def f(x):\n    """Says more."""\n\n    return (x + 1)\n')
    assert jobs._meaning(text) != jobs._meaning('def f(x):\n    """Says."""\n    return x + 2\n')


def test_a_method_that_stands_in_two_studies_is_run_once(tiny):
    twin = dataclasses.replace(tiny, name="twin")
    subject = Subject.of(tiny.problems[0], tiny.objective)
    ids = {subject: subject.identity()}
    first = {job.identity for _, _, job in jobs.jobs_of(tiny, ids)}
    second = {job.identity for _, _, job in jobs.jobs_of(twin, ids)}
    assert first == second
    assert len(first) == 9


def test_threads_that_parse_at_once_do_not_fail(monkeypatch):
    """CPython's issue 106905: another thread's parsing may end ours in a SystemError, now and then."""
    parse, failures = jobs.ast.parse, iter([True, True, False])

    def disturbed(text):
        if next(failures, False):
            raise SystemError("AST constructor recursion depth mismatch (before=51, after=64)")
        return parse(text)

    expected = jobs._meaning("x = 1")
    monkeypatch.setattr(jobs.ast, "parse", disturbed)
    assert jobs._meaning("x = 1  # the same") == expected
