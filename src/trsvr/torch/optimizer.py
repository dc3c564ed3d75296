"""TRSVR as a ``torch.optim`` optimiser (Fang, Zheng & Lavaei, Algorithm 1).

With the reference point x̃, the full gradient g̃ there and a batch I:

    ḡ = ∇f_I(x) − c (∇f_I(x̃) − g̃)                                   c = 1 in the paper
    Δ = α‖ḡ‖
    x ← x + p,   p ≈ argmin ḡᵀp + ½ pᵀHp  over  ‖p‖ ≤ Δ             Steihaug's conjugate gradients

While α ≤ 1/λmax(H) this is SVRG with step α; for α ≥ 1/λmin(H) it is a sub-sampled Newton method. c < 1 takes less of
the control variate: on deep networks x soon leaves x̃ behind, and then c = 1 adds variance (Defazio & Bottou 2019); a
coefficient that falls repairs it (Yin et al. 2023).

Groups with different α are a scaled region, Σ_g ‖p_g‖²/α_g ≤ Σ_g α_g‖ḡ_g‖²: steepest descent in it moves each group by
−α_g ḡ_g, as SGD does, and with one α it is the paper's region.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from trsvr import _check
from trsvr.parts import Exit
from trsvr.torch.closures import AutocastSpotter, Surroundings, autocast_is_on, call, size_of
from trsvr.torch.parameters import Flat, refuse_unsuitable
from trsvr.torch.processes import Processes
from trsvr.torch.products import HESSIANS, Batch, Evaluated, Product, outside_of_outputs
from trsvr.torch.steihaug import trust_region_step


@dataclass(frozen=True)
class StepReport:
    """What the last step did.

    Attributes
    ----------
    loss : float
        Mean loss of the batch before the step.
    gradient_norm, radius, step_norm : float
        ‖ḡ‖, Δ and ‖p‖, the last two in the scaled norm where groups have different α.
    exit : trsvr.parts.Exit
        Why the subproblem's solver stopped.
    products : int
        Hessian products spent.
    coefficient : float
        c of the first group; 0 means that the reference was not evaluated.
    """

    loss: float
    gradient_norm: float
    radius: float
    step_norm: float
    exit: Exit
    products: int
    coefficient: float


class TRSVR(Optimizer):
    """Trust-region method with stochastic variance reduction.

    Parameters
    ----------
    params : iterable of tensors or of parameter groups
        Float32 or float64, on one device. Frozen parameters (``requires_grad=False``) are left out. A group may have
        its own ``alpha``, ``coefficient`` and ``weight_decay``.
    alpha : float
        Radius over gradient norm: the step length of SGD as long as it is short, and the bound on a Newton step where
        it is long. Learning-rate schedulers drive it; they know it as ``group["lr"]``, and ``lr=`` is the same.
    hessian : {"exact", "estimated", "gauss-newton", "identity"}
        Products by double backward; by differences of gradients (the paper's EstH); JᵀH_ℓJ, for which the closure
        returns ``(loss, outputs)``; or H = I, which for α ≤ 1 is SVRG.
    max_cg : int
        Conjugate-gradient iterations, and so products, per step at most.
    coefficient : float or callable
        c, which scales the control variate, or a function from the number of steps taken to it. Where it is 0 the
        reference is not evaluated and `set_reference` not needed.
    weight_decay : float
        λ of a penalty (λ/2)‖x‖² that is part of the objective, exactly and not by sampling.
    probe : bool
        Evaluate the first closure twice and warn if it is not a function of the parameters.
    generators : sequence of torch.Generator
        Generators of your own that closures use; the default ones are known.
    model : torch.nn.Module, optional
        Owner of the buffers that evaluations may change. By default buffers are found by watching which modules are
        called; with ``torch.compile`` give the model, since watching would make it compile again.
    process_group : "auto", None or a process group
        Processes over which losses, gradients and products are averaged. "auto": all of them where
        ``torch.distributed`` is initialised. None: this process alone.

    Notes
    -----
    Closures return the mean loss of a batch, or ``(loss, outputs)``, and do not call ``backward()``.

    Examples
    --------
    >>> import torch, trsvr.torch
    >>> X, y = torch.linspace(-1, 1, 64).unsqueeze(1), torch.linspace(0, 3, 64).unsqueeze(1)
    >>> model = torch.nn.Linear(1, 1)
    >>> data = torch.utils.data.TensorDataset(X, y)
    >>> loader = torch.utils.data.DataLoader(data, batch_size=16, shuffle=True)
    >>> def loss_on_batch(batch):
    ...     return torch.nn.functional.mse_loss(model(batch[0]), batch[1])
    >>> optimizer = trsvr.torch.TRSVR(model.parameters(), alpha=1.0)
    >>> for epoch in range(5):
    ...     full_loss = optimizer.set_reference(loss_on_batch, loader)
    ...     for batch in loader:
    ...         loss = optimizer.step(lambda: loss_on_batch(batch))
    >>> bool(full_loss < 1e-3)
    True
    """

    last_step: StepReport | None

    def __init__(
        self,
        params: Any,
        alpha: float | None = None,
        hessian: str = "exact",
        *,
        lr: float | None = None,
        max_cg: int = 50,
        coefficient: float | Callable[[int], float] = 1.0,
        weight_decay: float = 0.0,
        probe: bool = True,
        generators: Sequence[torch.Generator] = (),
        model: torch.nn.Module | None = None,
        process_group: Any = "auto",
    ) -> None:
        if (alpha is None) == (lr is None):
            raise ValueError(f"alpha must be given, once: it is lr by another name, got alpha={alpha!r}, lr={lr!r}")
        self.coefficient_schedule = coefficient if callable(coefficient) else None
        self.probe = bool(probe)
        self.generators = tuple(generators)
        self.model = model
        self.last_step = None
        self._processes = Processes(process_group)
        defaults = {
            "lr": _check.positive("alpha", lr if alpha is None else alpha),
            "coefficient": 1.0 if callable(coefficient) else coefficient,
            "weight_decay": weight_decay,
            "hessian": _check.one_of("hessian", hessian, HESSIANS),
            "max_cg": _check.whole("max_cg", max_cg),
            "steps": 0,
        }
        super().__init__(params, defaults)

    @property
    def hessian(self) -> str:
        """Kind of curvature, the same for all groups."""
        return str(self.param_groups[0]["hessian"])

    @property
    def steps(self) -> int:
        """Steps taken."""
        return int(self.param_groups[0]["steps"])

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group; its own ``alpha`` is what schedulers call ``lr``. The reference must be set again."""
        if isinstance(param_group, dict) and "alpha" in param_group:
            param_group = {**param_group, "lr": _check.positive("alpha", param_group["alpha"])}
            del param_group["alpha"]
        super().add_param_group(param_group)
        try:
            self._check_group(self.param_groups[0], self.param_groups[-1])
        except ValueError:
            self.param_groups.pop()
            raise

    @staticmethod
    def _check_group(first: dict[str, Any], group: dict[str, Any]) -> None:
        group["steps"] = first["steps"]
        for name in ("coefficient", "weight_decay"):
            group[name] = _check.positive(name, group[name], zero=True)
        for name in ("hessian", "max_cg"):
            if group[name] != first[name]:
                raise ValueError(f"{name} must be the same in all groups, got {first[name]!r} and {group[name]!r}")
        for parameter in group["params"]:
            refuse_unsuitable(parameter)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on where another optimiser of this kind stopped, reference point and step count included."""
        lacking = set(self.defaults) - set.intersection(*(set(group) for group in state_dict["param_groups"]))
        if lacking:
            raise ValueError(f"state_dict is not one of TRSVR: its groups lack {', '.join(sorted(lacking))}")
        super().load_state_dict(state_dict)

    def __getstate__(self) -> dict[str, Any]:
        """For pickle and copy: a process group cannot travel, so only whether there is one."""
        own = ("coefficient_schedule", "probe", "generators", "model", "last_step")
        return {
            **super().__getstate__(),
            **{name: getattr(self, name) for name in own},
            "_alone": self._processes.group is None,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        """After pickle and copy, and a part of ``load_state_dict``."""
        alone = state.pop("_alone", None)
        super().__setstate__(state)
        if alone is not None:
            self._processes = Processes(None if alone else "auto")

    # ------------------------------------------------------------------------------------------ the reference point

    def set_reference(
        self, loss_on_batch: Callable[[Any], Any], loader: Iterable[Any], *, size: Callable[[Any], float] | None = None
    ) -> Tensor:
        """Take the present parameters as the reference point and compute the full gradient there.

        Parameters
        ----------
        loss_on_batch : callable
            Mean loss of a batch (or ``(loss, outputs)``), without calling ``backward()``.
        loader : iterable
            All batches of the data, once; one at a time is looked at.
        size : callable, optional
            Number of samples of a batch, by which batches are weighted; default: the length of its first tensor.

        Returns
        -------
        Tensor
            Mean loss over all data at the reference, the penalty of ``weight_decay`` not included.

        Notes
        -----
        Buffers, such as the statistics of batch norm, are afterwards what they were before.
        """
        self._refuse_outer_autocast()
        flat = self._flat()
        self._processes.refuse_different(flat.read())
        total = torch.zeros(sum(flat.sizes), dtype=torch.float64, device=flat.device)
        loss = torch.zeros((), dtype=torch.float64, device=flat.device)
        samples = 0.0
        surroundings = Surroundings(flat.device, self.generators, self.model)
        for batch in loader:
            weight = size_of(batch, size)
            try:
                with surroundings.watching():
                    returned = call(functools.partial(loss_on_batch, batch), flat.tensors)
                total.add_(flat.join(flat.gradient(returned.loss)), alpha=weight)
                loss.add_(returned.loss.detach(), alpha=weight)
            finally:
                surroundings.restore_buffers()  # random numbers go on: every batch has masks of its own
            samples += weight
        if samples == 0.0:
            raise ValueError(
                "loader gave no batch; an iterator is used up after one epoch: pass a DataLoader or a list"
            )
        total, (summed, samples) = self._processes.sum(total, loss, samples)
        gradient = total / samples
        if not math.isfinite(summed) or not bool(torch.isfinite(gradient).all()):
            raise FloatingPointError("the full loss or its gradient is not finite at these parameters")
        for tensor, piece in zip(flat.tensors, flat.split(gradient), strict=True):
            state = self.state[tensor]
            state["reference"] = tensor.detach().clone()
            # In the parameter's dtype, which is what load_state_dict would make of it.
            state["reference_gradient"] = piece.to(tensor.dtype, copy=True)
        return torch.tensor(summed / samples, dtype=flat.dtype, device=flat.device)

    def _flat(self) -> Flat:
        trainable = [
            (parameter, number)
            for number, group in enumerate(self.param_groups)
            for parameter in group["params"]
            if parameter.requires_grad
        ]
        return Flat([parameter for parameter, _ in trainable], [number for _, number in trainable])

    def _reference(self, flat: Flat) -> tuple[Tensor, Tensor]:
        """x̃ and g̃."""
        states = [self.state.get(tensor, {}) for tensor in flat.tensors]
        known = [("reference" in state) for state in states]
        if not all(known):
            why = "parameters were added or unfrozen since" if any(known) else "there is no reference point yet"
            raise ValueError(f"call set_reference(loss_on_batch, loader) before step: {why}")
        return (
            flat.join([state["reference"] for state in states]),
            flat.join([state["reference_gradient"] for state in states]),
        )

    # ------------------------------------------------------------------------------------------------------ a step

    @torch.no_grad()
    def step(  # type: ignore[override]  # a closure is needed, and may come with micro-batches
        self,
        closure: Callable[..., Any],
        batches: Iterable[Any] | None = None,
        *,
        size: Callable[[Any], float] | float | None = None,
    ) -> Tensor:
        """One step; the closure is evaluated at the reference and at the parameters.

        Parameters
        ----------
        closure : callable
            Without ``batches``: ``closure()`` returns the mean loss of the batch. With them: ``closure(batch)``
            returns that of one micro-batch. Either may return ``(loss, outputs)``.
        batches : iterable, optional
            Micro-batches that together are the batch of this step; the graph of one at a time is in memory.
        size : callable or float, optional
            Number of samples of a micro-batch; default: the length of its first tensor. Without ``batches``, the number
            of samples of the batch, by which several processes are weighted; default: equally.

        Returns
        -------
        Tensor
            Mean loss of the batch before the step, the penalty of ``weight_decay`` not included.
        """
        if closure is None or not callable(closure):
            raise ValueError(f"closure must be a function that returns the mean loss of a batch, got {closure!r}")
        self._refuse_outer_autocast()
        flat = self._flat()
        coefficients = self._coefficients()
        before = Surroundings(flat.device, self.generators, self.model)
        batch = self._batch(flat, closure, batches, size, before)
        if self.probe:
            self._probe(batch)
            self.probe = False
        # The reference comes first: so the graph of the second evaluation sees parameters that stay as they are, and
        # generators and buffers end as if the closure had been called once.
        control: Tensor | None = None
        if any(coefficients[group] for group in flat.groups):
            reference, full_gradient = self._reference(flat)
            with flat.at(reference), before.replayed():
                control = full_gradient - batch.gradient().gradient
        try:
            with before.watching():
                here, product = batch.gradient_and_curvature(self.hessian)
            after = before.now()
            step, report = self._solve(flat, here, control, coefficients, product)
        except BaseException:
            before.restore()
            raise
        after.restore()
        flat.write(flat.read().add_(step))
        self.last_step = report
        for group in self.param_groups:
            group["steps"] += 1
        return torch.tensor(here.loss, dtype=flat.dtype, device=flat.device)

    def _solve(
        self, flat: Flat, here: Evaluated, control: Tensor | None, coefficients: list[float], product: Product
    ) -> tuple[Tensor, StepReport]:
        """The trust-region step from what was evaluated."""
        gradient = here.gradient
        if control is not None:
            gradient = gradient + flat.spread(coefficients) * control
        decay = flat.spread([float(group["weight_decay"]) for group in self.param_groups])
        if isinstance(decay, Tensor) or decay:
            gradient = gradient + decay * flat.read()
        alphas = [_check.positive("alpha", float(group["lr"]), zero=True) for group in self.param_groups]
        largest = max(alphas[group] for group in flat.groups)
        # The region of groups with different α is a ball after this change of variables; with one α the scale is 1.
        scale = flat.spread([math.sqrt(alpha / largest) if largest else 0.0 for alpha in alphas])
        scaled = not (isinstance(scale, float) and scale == 1.0)
        penalised = (isinstance(decay, Tensor) or decay != 0.0) and self.hessian != "identity"

        def scaled_product(v: Tensor) -> Tensor:
            moved = scale * v if scaled else v
            curved = product(moved)
            if penalised:
                curved = curved + decay * moved
            return scale * curved if scaled else curved

        if scaled:
            gradient = scale * gradient
        norm = float(torch.linalg.vector_norm(gradient))
        if not math.isfinite(norm) or not math.isfinite(here.loss):
            raise FloatingPointError(
                f"the loss or its gradient is not finite (loss {here.loss}, norm {norm}); the parameters are as they "
                "were before this step. A smaller alpha may help"
            )
        radius = largest * norm
        step, reason, products = trust_region_step(scaled_product, gradient, radius, self.param_groups[0]["max_cg"])
        length = float(torch.linalg.vector_norm(step))
        if not math.isfinite(length):
            raise FloatingPointError("a Hessian product is not finite; the parameters are as they were")
        spent = 0 if self.hessian == "identity" else products
        report = StepReport(here.loss, norm, radius, length, reason, spent, coefficients[flat.groups[0]])
        return (scale * step if scaled else step), report

    def _batch(
        self,
        flat: Flat,
        closure: Callable[..., Any],
        batches: Iterable[Any] | None,
        size: Callable[[Any], float] | float | None,
        before: Surroundings,
    ) -> Batch:
        if batches is None:
            weight = 1.0 if size is None else _check.positive("size", size)
            return Batch(flat, [closure], [weight], self._processes, before)
        if size is not None and not callable(size):
            raise ValueError(f"size must be a function from a micro-batch to its number of samples, got {size!r}")
        pieces = list(batches)
        if not pieces:
            raise ValueError("batches must have at least one micro-batch, got none")
        return Batch(
            flat,
            [functools.partial(closure, piece) for piece in pieces],
            [size_of(piece, size) for piece in pieces],
            self._processes,
            before,
        )

    def _coefficients(self) -> list[float]:
        """The number c of every group at this step."""
        if self.coefficient_schedule is not None:
            value = _check.positive("coefficient", self.coefficient_schedule(self.steps), zero=True)
            for group in self.param_groups:
                group["coefficient"] = value
        return [float(group["coefficient"]) for group in self.param_groups]

    # ---------------------------------------------------------------------------------------- what would go wrong

    @staticmethod
    def _refuse_outer_autocast() -> None:
        if autocast_is_on():
            raise ValueError(
                "autocast surrounds the optimiser: it would reuse its half-precision copies of the parameters at the "
                "reference point; put torch.autocast inside the closure"
            )

    def _probe(self, batch: Batch) -> None:
        """Whether the closure is a function of the parameters, and fits the curvature that was asked for."""
        flat = batch.flat
        with batch.surroundings.replayed(), AutocastSpotter() as spotter:
            first = batch.gradient()
        if spotter.spotted and self.hessian == "estimated":
            raise ValueError(
                "hessian='estimated' takes differences of gradients, which autocast's rounding drowns; use 'exact', "
                "'gauss-newton' or 'identity', or no autocast"
            )
        with batch.surroundings.replayed():
            second = batch.gradient()
        tolerance = torch.finfo(flat.dtype).eps ** 0.5
        norm = float(torch.linalg.vector_norm(first.gradient))
        change = float(torch.linalg.vector_norm(first.gradient - second.gradient))
        if not change <= tolerance * norm and math.isfinite(norm):
            warnings.warn(
                "the closure is not a function of the parameters: evaluated twice at the same point it gave gradients "
                f"that differ by {change / norm if norm else math.inf:.1e}, relatively, so that variance reduction "
                "subtracts the wrong thing. PyTorch's generators and buffers were replayed; look for a batch drawn "
                "inside the closure, NumPy's or Python's random numbers, a generator that is not in generators=, or "
                "counters. probe=False silences this",
                RuntimeWarning,
                stacklevel=4,
            )
        if self.hessian == "gauss-newton":
            with batch.surroundings.replayed():
                returned = batch.call(batch.closures[0])
                outside = outside_of_outputs(flat, returned) if returned.outputs else 0.0
            if outside > tolerance:
                warnings.warn(
                    f"{outside:.1e} of the gradient does not come through the outputs that the closure returned: the "
                    "Gauss–Newton matrix leaves that part of the loss out. For an L2 penalty use weight_decay",
                    RuntimeWarning,
                    stacklevel=4,
                )
