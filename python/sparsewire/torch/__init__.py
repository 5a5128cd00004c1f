"""Sparse exchanges for PyTorch. Many steps of each rank alone, then one exchange of how far its weights have moved:

    import sparsewire.torch as sw
    outer = sw.LocalSteps(model, optimizer, every=30)

Or a communication hook for DistributedDataParallel that sends the entries worth sending, and remembers the others:

    model = DistributedDataParallel(net)
    state = sw.register(model, "topk:ratio=0.001", exchange="sharded", downlink="topk:ratio=0.001")

docs/start/pytorch.md is a tutorial.
"""

# No `from __future__ import annotations` here: DDP reads the annotations of the hook.
from typing import Any, Optional

import torch
import torch.distributed as dist

from ._connect import give_up
from ._options import Exclude, Options
from .checkpoint import DistributedCheckpoint
from .diloco import DiLoCo
from .fsdp import hook_modules, is_fsdp, modules_to_hook
from .local_steps import LocalSteps
from .state import State

__all__ = ["DiLoCo", "DistributedCheckpoint", "LocalSteps", "Options", "State", "hook", "register"]


def hook(state: State, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:  # type: ignore[name-defined]
    """For ``model.register_comm_hook(state, hook)``."""
    return state.submit(bucket)


def register(
    model: torch.nn.Module,
    sparsifier: str = "topk:ratio=0.01",
    *,
    process_group: Optional[dist.ProcessGroup] = None,
    replicate_group: Optional[dist.ProcessGroup] = None,
    exchange: str = "sharded",
    downlink: Optional[str] = None,
    codec: str = "auto",
    downlink_codec: Optional[str] = None,
    feedback: str = "ef",
    scope: str = "model",
    seed: int = 0,
    check_every: int = 100,
    threads: int = 1,
    start_step: int = 0,
    min_compress_size: int = 0,
    exclude: Exclude = None,
    scaler: Optional[Any] = None,
    deadline: float = 300.0,
    metrics: Optional[str] = None,
) -> State:
    """Makes ``model`` exchange its gradients sparsely; the options are those of :class:`State`. Collective.

    ``model`` is a DistributedDataParallel, whose process group is used unless another is given; or an FSDP2 model, whose
    replicas are the ranks of ``replicate_group``.
    """
    common = {name: value for name, value in locals().items() if name not in ("model", "process_group", "replicate_group")}
    ddp = model if isinstance(model, torch.nn.parallel.DistributedDataParallel) else None
    group = process_group if ddp is not None or replicate_group is None else replicate_group
    if ddp is not None and group is None and ddp.process_group is not dist.group.WORLD:
        group = ddp.process_group
    state: Optional[State] = None
    try:
        if ddp is not None:
            if replicate_group is not None:
                raise ValueError("[torch] replicate_group is for FSDP2 models; for DistributedDataParallel: process_group")
            if getattr(ddp, "_comm_hooks", None):
                raise ValueError("[torch] this model has a communication hook already, and DDP allows one")
            state = State(group, **common)
            state.bind(ddp)
            modules = []
        elif is_fsdp(model):
            modules = modules_to_hook(model, replicate_group, common)
            state = State(group, **common)
        else:
            if hasattr(model, "_orig_mod"):
                raise TypeError("[torch] this model was compiled: call register() before torch.compile()")
            raise TypeError(
                "[torch] register() takes a DistributedDataParallel or an FSDP2 model (fully_shard); this is of type "
                f"{type(model).__name__}: wrap the model first; with Accelerate, call register() after prepare()"
            )
    except BaseException as error:
        give_up(group, error)  # the other ranks must not wait for this one
        if state is not None:
            state.close()
        raise
    try:
        state._call(state._connect)
        if ddp is not None:
            ddp.register_comm_hook(state, hook)
        else:
            hook_modules(state, modules)
    except BaseException as error:
        if state._passes.transport is not None:
            state._passes.transport.fail(f"{type(error).__name__}: {error}")
        state.close()
        raise
    return state
