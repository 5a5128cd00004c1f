"""All ranks begin with the weights and buffers of rank 0."""

from __future__ import annotations

import json
import zlib
from typing import Any, Optional, Sequence

import torch

import sparsewire

from ._connect import damaged
from ._parameters import local


def agree_on_model(model: torch.nn.Module, parts: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Checksums that ranks compare: sending each other's weights would end in confusion otherwise."""
    tensors = [*model.named_parameters(), *model.named_buffers()]
    described = [(name, list(local(one).shape), str(one.dtype)) for name, one in tensors]
    return {"model": _checksum(described), "fragments": _checksum([list(part) for part in parts])}


def _checksum(described: Any) -> int:
    return zlib.crc32(json.dumps(described).encode())


@torch.no_grad()
def share_weights(tensors: Sequence[torch.Tensor], transport: Optional[sparsewire.Transport]) -> None:
    """Collective."""
    for tensor in map(local, tensors):
        if transport is None or tensor.numel() == 0:
            continue
        if transport.rank == 0:
            transport.broadcast(_bytes_of(tensor))
        else:
            came = transport.broadcast()
            if len(came) != tensor.numel() * tensor.element_size():
                raise damaged(0, came[:80])
            tensor.copy_(torch.frombuffer(bytearray(came), dtype=tensor.dtype).view(tensor.shape))


def _bytes_of(tensor: torch.Tensor) -> bytes:
    return bytes(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
