"""How many threads a fit may use, also inside the workers of somebody else's parallel loop."""

from __future__ import annotations

import os
import threading

from joblib.parallel import get_active_backend

from trsvr import _threads


def thread_count(n_jobs: int | None) -> int:
    """Threads for the full passes of one fit.

    A number of jobs means that many threads, negative ones count from the cores backwards, as everywhere in
    scikit-learn. None is all cores, unless somebody has divided them already: ``TRSVR_NUM_THREADS``, or else
    ``OMP_NUM_THREADS``, which joblib sets in its worker processes and schedulers set in theirs. Inside a worker
    *thread* of joblib it is one.
    """
    if n_jobs is not None:
        return n_jobs if n_jobs > 0 else max(1, _threads.available() + 1 + n_jobs)
    in_thread = threading.current_thread() is not threading.main_thread()
    if in_thread and (get_active_backend()[0].nesting_level or 0) > 0:
        return 1
    given = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()  # one number per level of nesting
    if given.isdigit() and int(given) > 0 and "TRSVR_NUM_THREADS" not in os.environ:
        return min(int(given), _threads.available())
    return _threads.current()
