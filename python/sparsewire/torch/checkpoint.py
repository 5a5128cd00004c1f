"""For torch.distributed.checkpoint, which needs to know nothing about sizes if a state is one string."""

from __future__ import annotations

import base64
import io
from typing import Any

import torch
import torch.distributed as dist

import sparsewire

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
        """Raises UsageError as ``State.load_state_dict()`` does."""
        mine = state.get(self._key()) if isinstance(state, dict) else None
        if not isinstance(mine, str):
            raise sparsewire.UsageError(
                f"[torch] the checkpoint has no state of {self._key()}: it was saved by fewer ranks, or without "
                "DistributedCheckpoint; for another number of ranks save consolidated_state_dict()"
            )
        try:
            saved = torch.load(io.BytesIO(base64.b64decode(mine, validate=True)), weights_only=True)
        except Exception as error:  # whatever torch.load() makes of damaged bytes
            raise sparsewire.UsageError(
                f"[torch] the state of {self._key()} cannot be read ({type(error).__name__}); load another checkpoint"
            ) from error
        self._state.load_state_dict(saved)
