"""DiLoCo in the shape that users of torchft know."""

from __future__ import annotations

from typing import Any, Optional, Sequence

import torch
import torch.distributed as dist

from .local_steps import LocalSteps


def DiLoCo(  # noqa: N802 - torchft's name
    model_fragments: Sequence[torch.nn.Module],
    inner_optimizer: torch.optim.Optimizer,
    outer_optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer],
    sync_every: int,
    *,
    fragment_sync_delay: int = 0,
    fragment_update_alpha: float = 0.0,
    sparsifier: str = "dense",
    feedback: str = "none",
    codec: str = "auto",
    exchange: str = "dense",
    downlink: Optional[str] = None,
    average: str = "senders",
    group: Optional[dist.ProcessGroup] = None,
    memory: str = "device",
    scaler: Optional[Any] = None,
    deadline: float = 300.0,
    metrics: Optional[str] = None,
) -> LocalSteps:
    """torchft's ``DiLoCo`` without a manager: ``with sw.DiLoCo([model], inner, outer, sync_every=100): ...``.

    Everything is averaged densely in float32, as there. For a slow link give ``sparsifier="topk:k=64,chunk=4096"``,
    ``feedback="ef:decay=0.95"``, ``codec="auto:values=int2"`` and ``exchange="allgather"``, as LocalSteps has them, and an
    outer optimizer without momentum. With a delay and ``fragment_update_alpha=0`` the steps made meanwhile are kept, where
    torchft drops them.

    Args:
        model_fragments: The model in a list, or its modules, which take turns.
        inner_optimizer: Of the model; its steps are counted by a hook.
        outer_optimizer: Of the parameters of the model, or one for each fragment.
        sync_every: Inner steps from one exchange of a fragment to the next.
        fragment_sync_delay: ``delay`` of ``LocalSteps``.
        fragment_update_alpha: ``mix`` of ``LocalSteps``.
        sparsifier: This and all that follow are as for ``LocalSteps``.

    Returns:
        The ``LocalSteps``, a context manager that exchanges the last steps at its end.
    """
    modules = list(model_fragments)
    model = modules[0] if len(modules) == 1 else torch.nn.ModuleList(modules)
    return LocalSteps(
        model,
        inner_optimizer,
        sync_every,
        sparsifier=sparsifier,
        feedback=feedback,
        codec=codec,
        exchange=exchange,
        downlink=downlink,
        average=average,
        outer_optimizer=outer_optimizer,
        fragments=modules,
        delay=fragment_sync_delay,
        mix=fragment_update_alpha,
        group=group,
        min_compress_size=0,
        memory=memory,
        scaler=scaler,
        deadline=deadline,
        metrics=metrics,
    )
