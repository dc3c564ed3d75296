"""Jobs on workers: processes of this machine, or a cluster. What they compute comes back and is written here.

What is finished is on disk, so a run that was killed goes on where it stopped.

The folder of a run::

    results/<job>.parquet       one finished job each, complete or not there
    references/<problem>.json   f* and constants of a problem
    tuned/<study>.json          the grids' results
    run.json                    which studies, with which problems and jobs, were asked for: what a report needs
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import scipy

from trsvr import _threads
from trsvr._files import written_beside
from trsvr.datasets.errors import DataNotFoundError
from trsvr.experiments import references
from trsvr.experiments.execute import run_job
from trsvr.experiments.jobs import FORMAT, Job, code_hash, jobs_of, versions
from trsvr.experiments.specification import Method, Study
from trsvr.experiments.subjects import Subject

#: Runs a function on every item and yields (item, what it returned) as they finish, in any order.
Mapper = Callable[[Callable[[Any], Any], Sequence[Any]], Iterator[tuple[Any, Any]]]
#: Is told the jobs that are done, all jobs, and the seconds that remain (None while nobody knows).
Report = Callable[[int, int, float | None, str], None]


# --------------------------------------------------------------------------------------------------- who does the work


def one_by_one(work: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    """In this process, one after the other."""
    for item in items:
        yield item, work(item)


def in_processes(count: int) -> Mapper:
    """In so many worker processes (joblib's loky), which share the cores."""
    if count == 1:
        return one_by_one

    def mapped(work: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
        try:
            from joblib import Parallel, delayed, parallel_config
        except ImportError:
            raise ImportError("worker processes need joblib: pip install 'trsvr[paper]', or --jobs 1") from None

        share = max(1, _threads.available() // count)
        with parallel_config(backend="loky", n_jobs=count, inner_max_num_threads=share, initializer=_leave_with_parent):
            pool = Parallel(return_as="generator_unordered", batch_size=1, pre_dispatch="1.5*n_jobs")
            yield from pool(delayed(_with_item)(work, item) for item in items)

    return mapped


def _with_item(work: Callable[[Any], Any], item: Any) -> tuple[Any, Any]:
    return item, work(item)


def _leave_with_parent() -> None:
    """End this worker soon after the process that started it: what was killed does not go on working."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.2)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@dataclass(frozen=True)
class _RunJob:
    """What a worker does with a job; picklable."""

    threads: int

    def __call__(self, job: Job) -> tuple[bytes, float]:
        with _threads.limit(self.threads):
            return run_job(job, self.threads)


@dataclass(frozen=True)
class _Measure:
    """What a worker does with a problem; picklable. A missing data set is an answer, not an accident.

    A file of the user's own that is missing is one where the worker may be on another machine than the file.
    """

    known: dict[str, dict[str, Any]]
    threads: int
    elsewhere: bool

    def __call__(self, subject: Subject) -> dict[str, Any]:
        try:
            with _threads.limit(self.threads):
                return references.find(subject, self.known, self.threads)
        except FileNotFoundError as error:
            if self.elsewhere or isinstance(error, DataNotFoundError):
                return {"missing": str(error)}
            raise


# ------------------------------------------------------------------------------------------------------------- a run


@dataclass
class Plan:
    """A study with the problems whose data are here, and all its jobs."""

    study: Study
    facts: dict[Subject, dict[str, Any]] = field(default_factory=dict)  # what `references.find` knows
    missing: dict[str, str] = field(default_factory=dict)  # for each data set that is not here, why

    def jobs(self) -> list[tuple[Subject, Method, Job]]:
        """Everything to be run."""
        return list(jobs_of(self.study, {subject: facts["problem"] for subject, facts in self.facts.items()}))

    def as_dict(self) -> dict[str, Any]:
        """For ``run.json``."""
        return {
            "study": asdict(self.study),
            "problems": {facts["problem"]: facts for facts in self.facts.values()},
            "missing": self.missing,
            "jobs": [line_of(subject, method, job) for subject, method, job in self.jobs()],
        }


def line_of(subject: Subject, method: Method, job: Job) -> dict[str, Any]:
    """A job as ``run.json`` lists it."""
    return {
        "problem": job.problem_id,
        "data": subject.data,
        "label": method.label,
        "role": method.role,
        "group": method.group,
        "solver": job.solver,
        "settings": json.loads(job.settings),
        "seed": job.seed,
        "job": job.identity,
    }


@dataclass
class Runner:
    """Runs plans into a folder."""

    folder: Path
    mapper: Mapper = one_by_one  # how work is spread
    workers: int = 1  # jobs that the mapper runs at the same time: they share the threads and the remaining time
    timed_workers: int = 1  # timed jobs that run at the same time, on this machine: few, for each wants it to itself
    report: Report = lambda done, total, left, note: None
    #: for workers on other machines: sends them the data of a problem that they have not found themselves
    ship: Callable[[Subject], None] | None = None

    @property
    def threads(self) -> int:
        """Threads of each job."""
        return 1 if self.ship is not None else max(1, _threads.available() // self.workers)

    def finished(self) -> int:
        """How many results the folder has."""
        return sum(1 for _ in (self.folder / "results").glob("*.parquet"))

    def plan(self, studies: Sequence[Study]) -> list[Plan]:
        """Load the problems, find their smallest values, and list the jobs."""
        wanted = {study.name: [Subject.of(p, study.objective) for p in study.problems] for study in studies}
        subjects = list(dict.fromkeys(subject for found in wanted.values() for subject in found))
        found: dict[Subject, dict[str, Any]] = {}
        self._measure(subjects, found, len(subjects))
        if self.ship is not None:
            here = [subject for subject, facts in found.items() if "missing" in facts and _is_here(subject)]
            for subject in here:
                self.ship(subject)
            self._measure(here, found, len(subjects))
        plans = []
        for study in studies:
            plan = Plan(study)
            for subject in wanted[study.name]:
                if "missing" in found[subject]:
                    plan.missing[subject.data] = found[subject]["missing"]
                else:
                    plan.facts[subject] = found[subject]
            plans.append(plan)
        return plans

    def _measure(self, subjects: Sequence[Subject], found: dict[Subject, dict[str, Any]], total: int) -> None:
        folder = self.folder / "references"
        work = _Measure(references.known_in(folder), self.threads, self.ship is not None)
        for subject, facts in self.mapper(work, subjects):
            found[subject] = facts
            if "missing" not in facts:
                references.store(facts, folder)
            self.report(len(found), total, None, "data and smallest values")

    def run(self, jobs: Sequence[Job]) -> int:
        """Run those of the jobs whose results are not there yet; returns how many that were."""
        results = self.folder / "results"
        unique = list({job.identity: job for job in jobs}.values())
        waiting = [job for job in unique if not (results / f"{job.identity}.parquet").exists()]
        clock = _Clock(waiting, self.workers, self.timed_workers)
        work = _RunJob(self.threads)
        results.mkdir(parents=True, exist_ok=True)
        done = len(unique) - len(waiting)
        self.report(done, len(unique), None, "")
        for mapper, some in (
            (in_processes(self.timed_workers), [job for job in waiting if job.timed]),
            (self.mapper, [job for job in waiting if not job.timed]),
        ):
            for job, (content, seconds) in mapper(work, some):
                with written_beside(results / f"{job.identity}.parquet") as beside:
                    beside.write_bytes(content)
                done += 1
                clock.finished(job, seconds)
                self.report(done, len(unique), clock.remaining(), f"{job.subject.data} {job.name}")
        return len(waiting)


def _is_here(subject: Subject) -> bool:
    """Whether this process finds the data; a file of the user's own that it does not find is an error."""
    try:
        subject.dataset()
    except DataNotFoundError:
        return False
    return True


class _Clock:
    """Guesses the remaining time: a job takes as long as those of the same problem and solver did."""

    def __init__(self, waiting: Sequence[Job], workers: int, timed_workers: int = 1) -> None:
        self.waiting = {job.identity: job for job in waiting}
        self.workers, self.timed_workers = workers, timed_workers
        self.seconds: dict[tuple[str, ...], list[float]] = {}

    def finished(self, job: Job, seconds: float) -> None:
        """Remember how long it took."""
        self.waiting.pop(job.identity, None)
        for key in self._keys(job):
            self.seconds.setdefault(key, []).append(seconds)

    def remaining(self) -> float:
        """Seconds until everything is done."""
        alone = sum(self._guess(job) for job in self.waiting.values() if job.timed)
        shared = sum(self._guess(job) for job in self.waiting.values() if not job.timed)
        return alone / self.timed_workers + shared / self.workers

    def _guess(self, job: Job) -> float:
        for key in self._keys(job):
            if key in self.seconds:
                return sum(self.seconds[key]) / len(self.seconds[key])
        return 0.0

    @staticmethod
    def _keys(job: Job) -> tuple[tuple[str, ...], ...]:
        """From the most alike to all."""
        problem = job.problem_id
        return (problem, job.solver, job.settings), (problem, job.solver), (problem,), ()


# -------------------------------------------------------------------------------------------------- what was asked for


def machine() -> dict[str, str]:
    """Where the results were made."""
    processor = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                processor = line.split(":", 1)[1].strip()
                break
    return {
        "processor": processor,
        "cores": str(_threads.available()),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **versions(),
        "scipy": scipy.__version__,
    }


def read_run(folder: Path) -> dict[str, Any]:
    """What ``run.json`` says; an empty record where nothing was run."""
    path = folder / "run.json"
    if not path.exists():
        return {"format": FORMAT, "studies": {}, "sessions": []}
    known: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return known


def record(folder: Path, plans: Sequence[Plan], quick: bool, session: dict[str, Any] | None = None) -> None:
    """Add studies to ``run.json``.

    A part of a study that is asked for later (other data sets, methods or seeds) is added to what is there; if anything
    else of the study has changed, or the library, what is there is replaced.
    """
    known = read_run(folder)
    for plan in plans:
        entry = plan.as_dict() | {"quick": quick, "code": [code_hash(), versions()]}
        known["studies"][plan.study.name] = _joined(known["studies"].get(plan.study.name), entry)
    known["machine"] = machine()
    if session is not None:
        known["sessions"].append(session)
    write_run(folder, known)


def _joined(before: dict[str, Any] | None, entry: dict[str, Any]) -> dict[str, Any]:
    """A study as it was recorded before, with what is asked for now."""
    if before is None or _frame(before) != _frame(entry):
        return entry
    lines = {_place(line): line for line in before["jobs"]}
    lines |= {_place(line): line for line in entry["jobs"]}
    # The tables' order is that of the larger of the two lists.
    longer = max(before["jobs"], entry["jobs"], key=len)
    order = {_place(line): place for place, line in enumerate(longer)}
    joined = {
        **entry,
        "study": {**entry["study"], "seeds": max(before["study"]["seeds"], entry["study"]["seeds"])},
        "problems": before["problems"] | entry["problems"],
        "jobs": sorted(lines.values(), key=lambda line: order.get(_place(line), len(order))),
    }
    found = {facts["data"] for facts in joined["problems"].values()}
    missing = before["missing"] | entry["missing"]
    joined["missing"] = {data: reason for data, reason in missing.items() if data not in found}
    if "tuned" in before:
        joined["tuned"] = before["tuned"]
    return joined


def _place(line: dict[str, Any]) -> tuple[str, ...]:
    return line["problem"], line["label"], line["role"], str(line["seed"])


def _frame(entry: dict[str, Any]) -> Any:
    """What two parts of one study have in common, as JSON knows it."""
    study = {key: value for key, value in entry["study"].items() if key not in ("problems", "seeds")}
    return json.loads(json.dumps([study, entry["quick"], entry.get("code")]))


def write_run(folder: Path, known: dict[str, Any]) -> None:
    """Write ``run.json`` at once."""
    folder.mkdir(parents=True, exist_ok=True)
    with written_beside(folder / "run.json") as beside:
        beside.write_text(json.dumps(known, indent=1, ensure_ascii=False), encoding="utf-8")


@contextlib.contextmanager
def at_work(folder: Path) -> Iterator[None]:
    """Keep other runs out of the folder, and sweep up what a killed one has left half-written."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = open(folder / ".lock", "w")  # noqa: SIM115  # held, not read
    try:
        try:
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:  # another system: no lock
            pass
        except OSError:
            raise ValueError(f"--out {folder}: another run is at work there") from None
        for half in folder.rglob(".*.part"):
            half.unlink(missing_ok=True)
        yield
    finally:
        lock.close()


def session(begun: float, executed: int, workers: int) -> dict[str, Any]:
    """What one call has done, for the report."""
    return {
        "at": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "seconds": time.monotonic() - begun,
        "jobs": executed,
        "workers": workers,
    }
