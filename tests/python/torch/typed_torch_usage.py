"""Read by mypy --strict in types_test.py: what users write has the types that they expect, and misspelt options are refused."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel
from typing_extensions import assert_type

import sparsewire.torch as sw


def use(net: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    state = sw.register(DistributedDataParallel(net), "topk:ratio=0.01", downlink="topk:ratio=0.01", min_compress_size=100)
    assert_type(state, sw.State)
    state.retune("topk:ratio=0.1", codec="auto:values=bf16")
    assert_type(state.stats(), dict[str, Any])

    outer = sw.LocalSteps(net, optimizer, every=30, fragments=list(net.children()), delay=5, exclude=lambda name, p: p.ndim < 2)
    assert_type(outer, sw.LocalSteps)
    sw.LocalSteps(net, [optimizer], outer_optimizer=lambda start: torch.optim.SGD(start, lr=0.7, momentum=0.9))
    with outer.start_weights():
        assert_type(outer.steps, int)
    with sw.DiLoCo([net], optimizer, torch.optim.SGD(net.parameters(), lr=0.7), sync_every=100) as diloco:
        assert_type(diloco, sw.LocalSteps)

    sw.register(net, downlnk="topk:ratio=0.01")  # type: ignore[call-arg]
    sw.register(net, codec=3)  # type: ignore[arg-type]
    sw.State(None, start_steps=3)  # type: ignore[call-arg]
    state.retune(start_step=3)  # type: ignore[call-arg]
    sw.LocalSteps(net, optimizer, downlnk="topk:ratio=0.01")  # type: ignore[call-arg]
    sw.LocalSteps(net, optimizer, every="30")  # type: ignore[arg-type]
