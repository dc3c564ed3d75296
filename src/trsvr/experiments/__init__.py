"""The paper's studies as data, a runner that can be killed, and a report that says what was found.

::

    specification   what is run                 studies/*.toml, or a file of the user's
    subjects        one problem of a study      data, prepared, with its objective
    jobs            (problem, solver, seed)     and the hash that identifies it
    references      f* of a problem             two solvers that must agree
    runner          jobs in worker processes    one Parquet file each, written at once or not at all
    tuning          the grids                   the best point by final gap, run again on other seeds
    results         the files as curves         medians and bands over the seeds
    claims          C1 … C8                     a verdict with its numbers
    figures, profiles, report                   what is looked at
"""
