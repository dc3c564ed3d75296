"""scikit-learn's callbacks, where the installed version has them (1.9 and later): a task for every outer iteration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trsvr.engine import Result

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks

    HAS_CALLBACKS = True
except ImportError:  # an older scikit-learn

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Nothing to support."""

    def with_callbacks(method: Any) -> Any:
        """Leave the method as it is."""
        return method

    HAS_CALLBACKS = False

__all__ = ["CallbackSupportMixin", "FitTask", "with_callbacks"]


class FitTask:
    """One call of fit as a task, its outer iterations as subtasks; does nothing where no callback is set.

    Parameters
    ----------
    estimator
        The one that is fitted.
    max_iter : int
        Outer iterations at most.
    data : dict
        X, y and metadata, as the callbacks' hooks get them.
    """

    def __init__(self, estimator: Any, max_iter: int, **data: Any) -> None:
        self.estimator = estimator
        self.data = data
        self.context: Any = None
        self._iteration: Any = None
        if HAS_CALLBACKS and vars(estimator).keys() & {"_skl_callbacks", "_parent_callback_ctx"}:
            # One more than there are iterations: the next one is begun before it is known that there is none.
            self.context = estimator._init_callback_context(max_subtasks=max_iter + 1)
            self.context.call_on_fit_task_begin(estimator=estimator, **data)

    def watcher(self, attributes: Callable[[Any], dict[str, Any]]) -> Callable[[Result], None] | None:
        """A callback for `trsvr.minimize`; ``attributes(x)`` are the fitted ones at the weights x."""
        if self.context is None:
            return None

        def after_epoch(so_far: Result) -> None:
            fitted = attributes(so_far.x)
            stop = self._iteration is not None and self._end(reconstruction_attributes=fitted)
            self._iteration = self.context.subcontext(task_name="outer-iteration")
            self._iteration.call_on_fit_task_begin(
                estimator=self.estimator, reconstruction_attributes=fitted, **self.data
            )
            if stop:
                raise StopIteration

        return after_epoch

    def _end(self, **fitted: Any) -> bool:
        task, self._iteration = self._iteration, None
        return bool(task.call_on_fit_task_end(estimator=self.estimator, **fitted, **self.data))

    def finish(self) -> None:
        """End the iteration that never ran, and the fit."""
        if self.context is None:
            return
        if self._iteration is not None:
            self._iteration.call_on_fit_task_end(estimator=self.estimator)
        self.context.call_on_fit_task_end(estimator=self.estimator, reconstruction_attributes={}, **self.data)
