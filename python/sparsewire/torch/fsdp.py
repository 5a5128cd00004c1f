"""FSDP2: shards are reduced densely inside, the replicas of a shard exchange their gradients sparsely."""

from __future__ import annotations

from typing import Any, Optional

import torch
import torch.distributed as dist

import sparsewire

from ._device import can_work_on
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


def _parameter_groups(module: Any) -> list[Any]:
    """The groups of parameters that FSDP2 reduces together: at most one, unless parameters have meshes of their own."""
    state = module._get_fsdp_state()
    groups = getattr(state, "_fsdp_param_groups", None)
    if groups is None:  # before torch 2.12
        groups = [] if state._fsdp_param_group is None else [state._fsdp_param_group]
    return list(groups)


def modules_to_hook(
    model: torch.nn.Module, replicate_group: Optional[dist.ProcessGroup], common: dict[str, Any]
) -> list[tuple[Any, str]]:
    """The modules whose gradients are to be exchanged, and their names. Raises ValueError if that cannot work."""
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
    hooked = []
    for name, module in modules:
        groups = _parameter_groups(module)
        if any(group._is_hsdp for group in groups):
            raise ValueError(
                "[torch] the model has a mesh of two dimensions, so FSDP2 would reduce its replicas densely: use "
                "fully_shard(mesh=mesh['shard'])"
            )
        if len(groups) > 1:
            raise ValueError(f"[torch] the parameters of module {name} have several meshes, which is not supported")
        for group in groups:
            _check_group(group, replicate_group)
            hooked.append((module, name))
    return hooked


def hook_modules(state: State, modules: list[tuple[Any, str]]) -> None:
    state._parameters.all = frozenset(name for _, name in modules)
    for module, name in modules:
        module.set_all_reduce_hook(_Hook(state, name, len(modules)))


def _check_group(group: Any, replicate_group: dist.ProcessGroup) -> None:
    if group._all_reduce_hook is not None:
        raise ValueError("[torch] this model has an all-reduce hook already, and FSDP2 allows one")
    shards = set(dist.get_process_group_ranks(group.mesh_info.shard_process_group))
    both = shards & set(dist.get_process_group_ranks(replicate_group))
    if len(both) > 1:
        raise ValueError(
            f"[torch] ranks {sorted(both)} hold shards of the same replica, and are in replicate_group: use "
            "mesh['replicate'].get_group()"
        )


class _Hook:
    """Of one module: the reduced gradients of its own parameters come as one flat tensor, and are answered in place."""

    def __init__(self, state: State, name: str, modules: int) -> None:
        self._state = state
        self._name = name
        self._modules = modules

    def __call__(self, gradient: torch.Tensor) -> None:
        state = self._state
        if state.error is not None:
            raise state._stages.as_runtime_error(state.error)
        try:
            if gradient.is_cuda:
                stream = torch.cuda.current_stream(gradient.device)  # the one that FSDP2 reduces on
                state._call(lambda: self._step_on(stream, gradient))
            else:
                state._call(lambda: self._step(gradient))
        except Exception as error:
            state._stages.fail(error)
            raise state._stages.as_runtime_error(error) from error

    def _step_on(self, stream: torch.cuda.Stream, gradient: torch.Tensor) -> None:
        with torch.cuda.stream(stream):
            self._step(gradient)

    def _step(self, gradient: torch.Tensor) -> None:
        passes = self._state._passes
        if passes.loaded is not None:
            passes.make_loaded_groups()
        size = gradient.numel()
        group = passes.groups.get((self._name,))
        if group is None:
            is_small = size < passes.options.min_compress_size
            group = Group([Tensor(self._name, 0, size, is_small)], passes.options, passes.transport)
            passes.groups[group.names] = group
        cause = f"{size} gradients came, and {group.dim} before" if size != group.dim else ""
        if group in passes.stepped:
            cause = "a second backward pass began before all other modules had gradients"
        if cause:
            raise sparsewire.UsageError(
                f"[torch] module {self._name}: {cause}. With FSDP2 every parameter needs a gradient in every backward pass"
            )
        numbers = gradient.detach()
        must_copy = gradient.is_cuda and not can_work_on(gradient.device)
        if must_copy:
            numbers = group.buffer(gradient, on_host=True)
            numbers.copy_(gradient)
            passes.totals.host_copies += 1
        group.step(numbers, 1.0, passes.steps_done + 1, passes.is_starting)
        found = group.find_overflow(numbers.dtype, 1.0)
        if found is not None:
            group.take_back()
            raise passes.too_large(found, numbers.dtype)
        group.answer(numbers, 1.0, [])
        if must_copy:
            gradient.copy_(numbers)
        passes.stepped.append(group)
        if len(passes.stepped) == self._modules:
            passes.end(gradient.device)
            passes.stepped = []
