"""The numbers that were chosen, on NIST's regressions from starts moved by a per cent and on others."""

CONVERGED = 1e-10  # the sine
NEAR = 1e-11  # where a step is to gain a smaller part of f, or less than its rounding, the sine judges it
LITTLE = 1e-9  # part of f that may be left at an end
KEPT = 1e-4  # least ratio of a step that is kept
SHRINK, GROW = 0.5, 2.0  # of Δ below a ratio of ¼, above ¾
HOLD = 1  # steps after a refused one that do not let it grow
FORGET = 0.9  # columns that have become shorter count less by this factor a step
FIRST, FIRST_OF_SAME_UNITS = 1.0, 0.3  # Δ at the beginning, in parts of ‖Dx‖
MANY, ALIKE = 30, 1e3  # so many unknowns whose columns differ by no more than this factor have the same units
CURVED = 0.75  # 2‖a‖/‖p‖ up to which the path's curvature is believed
ASTRAY = 0.5  # part of a step that may not be along the last one, which has shown how the path bends
FINE = 1e-5  # the sine from which on differences are fine
ASIDE: tuple[float, ...] = (1e-3,)  # how far, in parts of x, the flattest direction is looked along
FAR_ASIDE = (1e-3, 0.1, 0.9)  # and where f hardly bends up there
PULLED = 1e-2  # the cosine between r and a column of J from which on that unknown is tried alone before an end
HARDLY = 1e-6  # beside what J says of each unknown alone
MISSES = 2  # steps that the sine refuses before this is the floor
PROVEN = 0.5  # part of the sine that a full step leaves where JᵀJ is the larger part of the Hessian
BETTER = 0.5  # part of Gauss and Newton's mistake that the model with S may make to be taken
LEARNT, LATE = 20, 0.5  # unknowns whose S a few steps show; of more, the sine from which on S may be taken
CLOSE = 1e-3  # the sine from which on steps with some rows of J should leave no more than that
FEW = 50  # unknowns up to which the whole Hessian is looked at before an end
FELT = 1e-4  # part of the way on which an unknown changes all residuals that counts as its size at least
BENT = 1e2  # S beside a column of J squared from which on a shorter difference is taken
LOOKS = 3  # at most
NOTHING = 1e-40  # part of the first value that is no value any more
