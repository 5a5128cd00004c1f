"""What all ranks together moved is applied to the weights that they start from."""

from __future__ import annotations

from typing import Any, Callable, Sequence, Union

import torch

import sparsewire

from ._fragment import Fragment

# A function that makes an optimizer of tensors; or one of the model's parameters, or several.
OuterOptimizer = Union[
    None, torch.optim.Optimizer, Sequence[torch.optim.Optimizer], Callable[[list[torch.Tensor]], torch.optim.Optimizer]
]

_SLICE = 1 << 16  # entries that stay in a cache from one operation to the next


class Outer:
    """start -= lr * (update + momentum * m), with m = momentum * m + update; or what an optimizer does.

    Each operation here is rounded for itself, so that ranks on different processors keep the same bits.
    """

    def __init__(self, given: OuterOptimizer, lr: float, momentum: float, fragments: Sequence[Fragment]) -> None:
        self._lr, self._momentum = lr, momentum
        self.optimizers: list[torch.optim.Optimizer] = []
        if given is None:
            _check_number("outer_lr", lr, 0, 100)
            _check_number("outer_momentum", momentum, 0, 0.9999)
            if momentum > 0:
                for fragment in fragments:
                    fragment.momentum = torch.zeros_like(fragment.start)
            return
        if (lr, momentum) != (1.0, 0.0):
            raise sparsewire.UsageError("[torch] outer_lr= and outer_momentum= are those of the outer_optimizer: give one")
        if callable(given):
            self.optimizers = [given([start for fragment in fragments for start in fragment.starts])]
        else:
            self.optimizers = [given] if isinstance(given, torch.optim.Optimizer) else list(given)
        if not self.optimizers or not all(isinstance(one, torch.optim.Optimizer) for one in self.optimizers):
            raise TypeError(
                f"[torch] outer_optimizer={given!r} is neither an optimizer of the model's parameters nor a function that "
                "makes one of a list of tensors"
            )
        if not callable(given):
            _move(self.optimizers, fragments)

    @property
    def is_sparse(self) -> bool:
        """Whether only entries with an update change."""
        return not self.optimizers and self._momentum == 0

    def step(self, fragment: Fragment, is_dense: bool) -> None:
        """is_dense: the update stands in ``fragment.delta``; otherwise the Workers have it."""
        if not is_dense:
            fragment.group.apply(fragment.start, self._lr)
        elif self.optimizers:
            for start, update in zip(fragment.starts, fragment.views(fragment.delta)):
                start.grad = update
            for optimizer in self.optimizers:
                optimizer.step()
            for start in fragment.starts:
                start.grad = None
        else:
            size = _SLICE if fragment.start.device.type == "cpu" else len(fragment.start)
            for begin in range(0, len(fragment.start), size):
                part = slice(begin, begin + size)
                update = fragment.delta[part]
                if fragment.momentum is not None:
                    momentum = fragment.momentum[part].mul_(self._momentum).add_(update)
                    update.add_(momentum * self._momentum)
                fragment.start[part].sub_(update.mul_(self._lr))


def check_outer(given: OuterOptimizer, inner: Any) -> None:
    """Their steps are not the same."""

    def listed(optimizers: Any) -> list[Any]:
        return list(optimizers) if isinstance(optimizers, (list, tuple)) else [optimizers]

    inners = [one for wrapper in listed(inner) for one in (wrapper, getattr(wrapper, "optimizer", None)) if one is not None]
    if any(one is other for one in listed(given) for other in inners):
        raise sparsewire.UsageError(
            "[torch] outer_optimizer is the inner optimizer: make another one, of the same parameters, for the exchanges"
        )


def _check_number(name: str, value: Any, low: float, high: float) -> None:
    if not isinstance(value, (int, float)) or not low <= value <= high or (name == "outer_lr" and value == 0):
        raise sparsewire.UsageError(f"[torch] {name}={value!r} is not in {'(' if name == 'outer_lr' else '['}{low}, {high}]")


def _move(optimizers: Sequence[torch.optim.Optimizer], fragments: Sequence[Fragment]) -> None:
    """Their parameters become the starts of the same: their groups, and schedulers of them, stay."""
    start_of = {id(p): s for fragment in fragments for p, s in zip(fragment.parameters, fragment.starts)}
    if any(optimizer.state for optimizer in optimizers):
        raise sparsewire.UsageError("[torch] outer_optimizer has taken steps already: give a new one")
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    for group in groups:
        group["params"] = [start_of[id(p)] for p in group["params"] if id(p) in start_of]
    found = {id(start) for group in groups for start in group["params"]}
    missing = [name for f in fragments for name, start in zip(f.names, f.starts) if id(start) not in found]
    if missing:
        raise sparsewire.UsageError(
            f"[torch] outer_optimizer has not the parameter {missing[0]}: make it of all model.parameters()"
        )
