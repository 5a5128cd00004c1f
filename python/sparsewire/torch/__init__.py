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
    """Makes ``model`` exchange its gradients sparsely. Collective: all ranks call it, with the same options.

    Ratios, and ``k``, hold for each bucket of DistributedDataParallel, or for each module of FSDP2.

    Args:
        model: A DistributedDataParallel, or an FSDP2 model (torch 2.7 or later) that is sharded over one dimension of a
            mesh.
        sparsifier: Which entries a rank sends: ``topk:ratio=0.01`` and others that ``sparsewire list`` shows.
        process_group: The ranks that exchange. None: those of the DistributedDataParallel. It is used to exchange
            addresses only: the ranks are connected over TCP by themselves.
        replicate_group: With FSDP2: the ranks that hold the same shard in other replicas.
        exchange: Who sends to whom: ``sharded`` (each rank sums a part), ``allgather``, ``server`` (rank 0), ``dense``,
            or ``auto`` (frames, or all values where those are shorter).
        downlink: What comes back: a sparsifier with an error memory of its own, on whoever sums up. None: all entries
            of the sum.
        codec: How indices and values become bytes: ``auto``, ``auto:values=bf16``, ``int8`` and so on. What rounding
            loses stays in the error memory.
        downlink_codec: That of the answer. None: ``codec``.
        feedback: What happens to entries that are not sent: ``ef`` keeps them, ``ef:decay=0.95`` shrinks what waits in
            each step, ``none`` drops them, ``momentum:m=0.9,clip=1`` is momentum before the choice (DGC), for an
            optimizer without any.
        scope: ``model``: the largest entries of a bucket; ``layer``: each parameter sends its share.
        seed: Of random choices (``randomk``, ``rtopk``).
        check_every: After so many steps ranks compare checksums of their updates, and a difference is an error. 0:
            never.
        threads: How many threads one rank sifts and encodes with. The result does not depend on it.
        start_step: So many backward passes at the beginning are exchanged densely.
        min_compress_size: Parameters with fewer entries are exchanged densely.
        exclude: Names of parameters, or a function of name and parameter: these are exchanged densely. Not with FSDP2.
        scaler: The GradScaler, if there is one. A step in which the gradient of any rank is infinite is then taken back
            on all ranks. Not with FSDP2.
        deadline: Seconds of silence after which a rank counts as lost. It must be longer than any pause between two
            backward passes: an evaluation, or a checkpoint.
        metrics: A file that gets one line of JSON for every backward pass; ``{rank}`` in its name is replaced. Lines
            are appended.

    Returns:
        What saves, loads, counts and ends the hook.

    Raises:
        UsageError: An option has a value that it cannot have. Options that differ between ranks: the first backward pass.
        TypeError: The model is not wrapped, or was compiled before.
        ValueError: The model has a hook already, or a mesh that does not fit.
        TransportError: A rank did not come within the deadline.
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
