"""For torch.distributed.checkpoint, which needs to know nothing about sizes if a state is one string."""

from __future__ import annotations

import base64
import io
from typing import Any

import torch
import torch.distributed as dist

from .state import State


class DistributedCheckpoint:
    """Wraps a State for ``torch.distributed.checkpoint``: ``save({"sparsewire": DistributedCheckpoint(state)}, ...)``."""

    def __init__(self, state: State) -> None:
        self._state = state

    def _key(self) -> str:
        return f"rank{dist.get_rank(self._state.process_group)}"

    def state_dict(self) -> dict[str, Any]:
        buffer = io.BytesIO()
        torch.save(self._state.state_dict(), buffer)
        return {self._key(): base64.b64encode(buffer.getvalue()).decode()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._state.load_state_dict(torch.load(io.BytesIO(base64.b64decode(state[self._key()]))))
