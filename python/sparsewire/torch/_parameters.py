"""The parameters of a model: their names, and which of them go densely."""

from __future__ import annotations

import warnings
import weakref
from typing import Any, Optional

import torch

import sparsewire

from ._options import Exclude


def local(parameter: torch.Tensor) -> torch.Tensor:
    """What this process holds of it: all, or its shard. Without autograd."""
    if not hasattr(parameter, "to_local"):
        return parameter
    with torch.no_grad():
        return parameter.to_local()  # type: ignore[no-any-return]


class Parameters:
    """Names come from bind(); without it parameters are numbered by first appearance."""

    def __init__(self, exclude: Exclude, min_compress_size: int, vectors_densely: bool = False) -> None:
        self._exclude = exclude
        self._vectors_densely = vectors_densely  # parameters of one dimension, or none
        self._min_compress_size = min_compress_size
        self._model: Optional[weakref.ref[Any]] = None
        self._kept: list[torch.Tensor] = []  # so that no other one gets the same id
        self._names: dict[int, str] = {}
        self.is_bound = False
        self.all: Optional[frozenset[str]] = None  # the names of all that have gradients, where they are known

    def bind(self, module: torch.nn.Module) -> None:
        if self._names:
            raise RuntimeError("[torch] bind() must come before the first backward pass, and once")
        inner = module.module if isinstance(module, torch.nn.parallel.DistributedDataParallel) else module
        known = {name: parameter for name, parameter in inner.named_parameters() if parameter.requires_grad}
        if self._exclude is not None and not callable(self._exclude):
            unknown = sorted(set(self._exclude) - set(known))
            if unknown:
                raise sparsewire.UsageError(f"[torch] exclude: the model has no parameter {', '.join(unknown)}")
        if inner is not module:
            self._model = weakref.ref(module)
        for name, parameter in known.items():
            self._add(name, parameter)
        ignored = getattr(inner, "_ddp_params_and_buffers_to_ignore", ())
        self.all = frozenset(set(known) - set(ignored))
        self.is_bound = True

    def _add(self, name: str, parameter: torch.Tensor) -> None:
        self._kept.append(parameter)
        self._names[id(parameter)] = name

    def name(self, parameter: torch.Tensor) -> str:
        name = self._names.get(id(parameter))
        if name is not None:
            return name
        if self.is_bound:
            raise sparsewire.UsageError(
                "[torch] a bucket holds a parameter that was not in the model when the hook was registered"
            )
        if not self._names:
            warnings.warn(
                "sparsewire: this State knows no parameter names, so parameters are numbered by first appearance; "
                "use sparsewire.torch.register(), or state.bind(model)",
                stacklevel=2,
            )
        name = f"parameter{len(self._names)}"
        self._add(name, parameter)
        return name

    def by_name(self) -> dict[str, torch.Tensor]:
        return {self._names[id(parameter)]: parameter for parameter in self._kept}

    def model(self) -> Any:
        """The DistributedDataParallel, where it is known and still there."""
        return self._model() if self._model is not None else None

    def is_dense(self, name: str, size: int, parameter: Optional[torch.Tensor]) -> bool:
        if size < self._min_compress_size or (self._vectors_densely and parameter is not None and parameter.ndim < 2):
            return True
        if self._exclude is None or parameter is None:
            return False
        return bool(self._exclude(name, parameter)) if callable(self._exclude) else name in self._exclude

    def dense_names(self) -> list[str]:
        return sorted(name for name, one in self.by_name().items() if self.is_dense(name, one.numel(), one))
