"""When an inner step is over: the optimizer's hook says so, or the GradScaler, which leaves out steps of the optimizer."""

from __future__ import annotations

from typing import Any, Callable, Optional, Sequence, Union

import torch

import sparsewire

Optimizers = Union[None, torch.optim.Optimizer, Sequence[torch.optim.Optimizer]]


class Counting:
    """Calls ``counted`` after each inner step, until it is removed."""

    def __init__(self, optimizers: Optional[torch.optim.Optimizer], scaler: Any, counted: Callable[[], None]) -> None:
        self._remove: Optional[Callable[[], None]] = None
        if scaler is not None:
            self._follow_scaler(scaler, counted)
        elif optimizers is not None:
            handle = optimizers.register_step_post_hook(lambda *_: counted())
            self._remove = handle.remove

    @property
    def is_automatic(self) -> bool:
        return self._remove is not None

    def remove(self) -> None:
        if self._remove is not None:
            self._remove()

    def _follow_scaler(self, scaler: Any, counted: Callable[[], None]) -> None:
        # A step with an infinite gradient calls no hook of the optimizer; update() comes once in every step.
        update, counts = scaler.update, True

        def update_and_count(*args: Any, **options: Any) -> Any:
            result = update(*args, **options)
            if counts:
                counted()
            return result

        scaler.update = update_and_count

        def remove() -> None:
            nonlocal counts
            counts = False  # another LocalSteps may have wrapped it again
            if scaler.__dict__.get("update") is update_and_count:
                del scaler.update

        self._remove = remove


def last_of(optimizers: Optimizers) -> Optional[torch.optim.Optimizer]:
    """The one whose steps count, out of its wrappers (Accelerate, Lightning)."""
    if optimizers is None:
        return None
    last: Any = optimizers
    if isinstance(optimizers, (list, tuple)):
        if not optimizers:
            raise sparsewire.UsageError("[torch] optimizer=[] has none: give None, and call step() after each step")
        last = optimizers[-1]
    inner = getattr(last, "optimizer", None)
    last = inner if isinstance(inner, torch.optim.Optimizer) else last
    if not isinstance(last, torch.optim.Optimizer):
        raise TypeError(
            f"[torch] optimizer={type(last).__name__} is no torch.optim.Optimizer: give the one that trains this model, "
            "or None, and call step() after each step"
        )
    if callable(getattr(last, "train", None)) and callable(getattr(last, "eval", None)):
        raise sparsewire.UsageError(
            f"[torch] {type(last).__name__} keeps two versions of the weights (train() and eval()), of which only one "
            "would be exchanged: use an optimizer with a schedule"
        )
    return last
