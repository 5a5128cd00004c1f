"""FSDP2: shards are reduced densely inside, the replicas of a shard exchange their gradients sparsely."""

from __future__ import annotations

from typing import Any, Optional

import torch
import torch.distributed as dist

import sparsewire

from ._groups import Group, Tensor
from .state import State


def _module_type() -> Any:
    try:
        from torch.distributed.fsdp import FSDPModule  # 2.6 and later
    except ImportError:
        return None
    return FSDPModule


def is_fsdp(model: torch.nn.Module) -> bool:
    kind = _module_type()
    return kind is not None and isinstance(model, kind)


def register_fsdp(
    model: torch.nn.Module, sparsifier: str, replicate_group: Optional[dist.ProcessGroup], common: dict[str, Any]
) -> State:
    if replicate_group is None:
        raise ValueError(
            "[torch] an FSDP2 model needs replicate_group=: make a mesh with dimensions replicate and shard, use "
            "fully_shard(mesh=mesh['shard']) and register(..., replicate_group=mesh['replicate'].get_group())"
        )
    for name in ("scaler", "exclude"):
        if common[name] is not None:
            raise ValueError(f"[torch] {name}= is not supported with FSDP2")
    kind = _module_type()
    modules = [(name or "model", module) for name, module in model.named_modules() if isinstance(module, kind)]
    if not hasattr(modules[0][1], "set_all_reduce_hook"):
        raise RuntimeError("[torch] FSDP2 needs torch 2.7 or later: FSDPModule.set_all_reduce_hook is missing")
    state = State(replicate_group, sparsifier, **common)
    hooks = []
    for name, module in modules:
        groups = module._get_fsdp_state()._fsdp_param_groups
        if any(group._is_hsdp for group in groups):
            raise ValueError(
                "[torch] the model has a mesh of two dimensions, so FSDP2 would reduce its replicas densely: use "
                "fully_shard(mesh=mesh['shard'])"
            )
        if groups:  # it has parameters of its own
            hooks.append((module, name))
    for module, name in hooks:
        module.set_all_reduce_hook(_Hook(state, name, len(hooks)))
    state._call(state._connect)
    return state


class _Hook:
    """Of one module: the reduced gradients of its own parameters come as one flat tensor, and are answered in place."""

    def __init__(self, state: State, name: str, modules: int) -> None:
        self._state = state
        self._name = name
        self._modules = modules
        self._size: Optional[int] = None

    def __call__(self, gradient: torch.Tensor) -> None:
        state = self._state
        if state.error is not None:
            raise state._as_runtime_error(state.error)
        try:
            state._call(lambda: self._step(gradient))
        except Exception as error:
            state._fail(error)
            raise state._as_runtime_error(error) from error

    def _step(self, gradient: torch.Tensor) -> None:
        state = self._state
        if state._loaded is not None:
            state._make_loaded_groups()
        size = gradient.numel()
        group = state._groups.get((self._name,))
        if group is None:
            is_small = size < state.options.min_compress_size
            group = Group([Tensor(self._name, 0, size, is_small)], state.options, state._transport)
            state._groups[group.names] = group
        if size != group.dim or group in state._steps:
            raise sparsewire.UsageError(
                f"[torch] module {self._name} has {size} gradients, and had {group.dim}; or another module had none: with "
                "FSDP2 every parameter needs a gradient in every backward pass"
            )
        if gradient.is_cuda:
            numbers = group.host(gradient)
            numbers.copy_(gradient)
        else:
            numbers = gradient.detach()
        group.step(numbers, 1.0, state._step < state.options.start_step)
        group.answer(numbers, 1.0, [])
        if gradient.is_cuda:
            gradient.copy_(numbers)
        state._steps.append(group)
        if len(state._steps) == self._modules:
            state._end_pass()
            state._steps = []
