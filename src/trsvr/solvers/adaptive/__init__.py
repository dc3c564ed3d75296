"""TRSVR with nothing to choose: the radius, the batch, the length of the inner loop and the norm follow what is seen.

One outer iteration at the reference point x̃, with f and the full gradient g̃ there:

1. *Norm.* P ≈ ∇²f(x̃): a matrix from m sampled rows (all of them, on small data) where that costs less than some tens
   of Hessian products (with
   several outputs a matrix for each), else the Hessian's diagonal, improved by the directions and products of
   earlier conjugate gradients, or by the largest curvatures where they have taken long. It is built anew only when
   the curvatures have moved or the last one was of little help.
2. *First step.* At x = x̃ the variance-reduced gradient is g̃ itself, without a batch: p ≈ argmin g̃ᵀp + ½ pᵀHp over
   ‖p‖_P ≤ α‖g̃‖_{P⁻¹}, by Steihaug's conjugate gradients in the norm P. H is P itself, or the whole Hessian where P is
   no good model of it.
3. *Inner steps.* The same with ḡ = g̃ + (mean change of the gradient on a batch since x̃). The batch's two halves
   differ by its noise; the loop ends when ‖noise‖² exceeds a fraction of ‖ḡ‖² (both in P⁻¹). If it ends at once, the
   next batch is twice as large; a batch that would be half of the data is not worth drawing, and then the inner loop
   is empty. So it is while the first step alone leaves less than a tenth.
4. *Judgement.* The full value and gradient at the new point are needed anyway, as the next reference. The step is
   kept if f fell (without function values: if ½(g̃ + g)ᵀ(x − x̃) < 0, which is exact for quadratics). Otherwise: back
   to x̃, a quarter of the radius, twice the rows for P, twice the batch.

With P from all rows, α ≥ 1 and no inner steps this is Newton's method; it gets there by itself where nothing less
works.

On sparse rows with an L2 penalty a run begins with coordinate ascent in the dual: `dual`.

`iteration` has it as code, `measuring` P and H, `judgement` what a step teaches, `endings` when to stop; `state` is
what is carried from one iteration to the next, `rules` every tuned number, `method` the solver.
"""

from __future__ import annotations

from trsvr.solvers.adaptive.measuring import NORMS
from trsvr.solvers.adaptive.method import AdaptiveTRSVR
from trsvr.solvers.adaptive.rules import Rules

__all__ = ["NORMS", "AdaptiveTRSVR", "Rules"]
