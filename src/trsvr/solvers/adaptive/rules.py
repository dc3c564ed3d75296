"""Every tuned number of the adaptive mode, each with its reason. What each is worth: docs/adaptive.md.

A variant is ``AdaptiveTRSVR(rules=replace(Rules(), …))``; nothing is patched. "Left" is the part of ½‖g‖²_{P⁻¹} that an
outer iteration leaves. Numbers that only keep rounding out are beside the arithmetic they belong to.
"""

from __future__ import annotations

from dataclasses import dataclass

from trsvr.parts.exactness import StepRules
from trsvr.parts.norm_choice import NormRules
from trsvr.solvers.base import AUTO_DECREASE


@dataclass(frozen=True)
class Rules(NormRules, StepRules):
    """Those of this mode; with the choice of P (`parts/norm_choice.py`) and any step's (`parts/exactness.py`) all."""

    # ------------------------------------------------------------------------------------------- P: when, and from what
    #: a matrix that costs more than pays at first, or a new one, is made once products have cost so many times as much
    patience: float = 2.0
    #: and one that several outputs share once they have cost so many times as much: it saves no more than half of them
    shared_patience: float = 4.0
    #: all rows are taken where they cost less, in Hessian products: small data, where calls cost most
    cheap_matrix: float = 0.5
    #: a sampled P learns from a step where factoring it anew costs no more than this, in products
    cheap_factor: float = 1.0
    #: and where the step has gone by P: cos² of its angle with P⁻¹y
    alike: float = 0.25
    #: curvatures that have changed by less than this part in all have stood still
    moved: float = 0.1
    #: older samples are averaged with the new one while curvatures have moved less than this times √(d/rows)
    averaged: float = 0.3
    #: a sample of P is kept as it is while outer iterations leave less
    helpful: float = 0.03
    #: P was of no use where more is left: a new one from twice the rows, for the sample or the curvature is to blame
    useless: float = 0.7
    #: if curvatures stand still and more is left, P is no model of H: from then on the whole Hessian is
    poor_model: float = 0.1
    #: a sequence of products is made where waiting for each costs less than this part of it
    longest_wait: float = 0.5
    #: directions of conjugate gradients that improve a diagonal
    pairs: int = 20
    #: while all of them cost no more than this part of a product: they seldom save more of the products
    cheap_pairs: float = 0.2

    # ------------------------------------------------------------------------------------------------------- the steps
    #: how long a step on P of all rows is is looked at where the last one left more: near the minimiser steps are right
    stretched_from: float = 0.003
    #: but not where it left more than this: a look at a few rows is to blame for such a step
    stretched_to: float = 0.7
    #: on a sampled P, where the last one left more
    stretched_sampled: float = 0.03

    # ------------------------------------------------------------------------------------------------- steps on batches
    #: the first batch, as a part of the data
    first_batch: float = 1 / 16
    #: a batch that would be more is not worth drawing
    largest_batch: float = 0.5
    most_inner_steps: int = 10
    #: a step on a batch is made where it costs less, in passes
    cheap_batch: float = 0.1
    #: or where outer iterations leave more: else another step on the full gradient is the better use of the rows
    inner_steps_from: float = 0.1
    #: the walk ends when the noise of ḡ exceeds this part of it, both squared
    noise: float = 0.3
    #: without convexity it ends where ‖ḡ‖² has grown by this: the model no longer holds
    longest_walk: float = 2.0

    # --------------------------------------------------------------------------------------------------------- caution
    #: part of the largest curvature that every row counts with at least, at first, while curvatures are raised
    first_caution: float = 1e-3
    #: it is changed by this factor when a step fails, or not
    more_caution: float = 4.0
    #: where outputs could share a matrix they are raised after a step that gained less than this part of its prediction
    disappointing: float = 0.5
    #: raised curvatures are given up when the true ones are this part of them
    trusted: float = 0.5
    #: that so many steps in a row are refused all the same shows that raised curvatures do not help
    in_vain: int = 3
    #: where they are raised by degrees, when hardly anything is left of it
    convinced: float = 0.99
    #: if more is left although P is of all rows, it is the raised curvatures that hold steps back
    held_back: float = 0.1

    # --------------------------------------------------------------------------------------------------------- endings
    #: a run may end where this part of |f| is expected: the loop's own rule, and so where a second look is due
    little: float = AUTO_DECREASE
    #: it does not end while its certificate says more than this part of |f|
    certified: float = 1e-6
    #: or than this on small data, where another iteration costs next to nothing
    certified_small: float = 1e-10
    #: and less than this part of what it said before
    falls: float = 0.5
    #: small data are those where a matrix of all rows costs less, in products
    cheap_iteration: float = 0.5
    #: nor while Newton's steps leave more: a huge entry may bend f on so short a way that the model sees no gain
    slow_newton: float = 0.03
    #: unless f fell by less than this part of what they predicted: noise
    noisy: float = 0.8
    #: a model is right about what is left where f fell by at least this part of what it predicted
    right: float = 0.8
    #: what is left to gain is estimated to a factor of about this
    doubt: float = 4.0
    #: that one step has left less than this part of its gain is not believed
    believed: float = 1e-6
    #: at an end curvatures must have changed by less than this part: rows may have left a hinge
    stood_still: float = 1e-3
    #: a second look goes on until what may be hidden is this part of what is expected
    proven: float = 0.5
    #: a nonconvex run ends with a gradient so small, if no curvature is negative
    small_gradient: float = 1e-9
