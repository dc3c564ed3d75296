"""The default TRSVR beside the solvers people use today, on real data: ``make bench``.

    python -m benchmarks.peers run [--quick] [--only 'covtype.scale,ijcnn1;trsvr,snapml'] [--minutes 40]
    python -m benchmarks.peers report

`solvers` says who takes part and how each is called, `measure` what is timed, `cell` runs one measurement in a process
of its own, `store` keeps what was measured, `report` writes it down, `install` makes the environment.

The problem is min (1/N) Σ log(1 + exp(−y_i x_iᵀw)) + (λ/2)‖w‖², no intercept, from w = 0; "rcv1+intercept" has one
that is not penalised, and leaves out those who would penalise it. A time is wall-clock from arrays in memory to the
weights. What a solver wants converted beforehand (column order, a format of its own) is converted before the clock
starts, and what it compiles or loads at its first call is told apart.
"""
