"""Where buckets on a GPU are worked on: there, on a stream of its own; or on the host, where this build has no CUDA."""

from __future__ import annotations

import threading
from typing import Any, Optional

import torch

import sparsewire
from sparsewire import _core

_NAMES = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}
_usable: dict[torch.device, bool] = {}
_here = threading.local()  # has a `stream`, as a number, after Streams.enter(): asking torch for it takes long


def can_work_on(device: torch.device) -> bool:
    """Whether Workers can use gradients on this GPU. (A tensor of a ROCm build says that it is on CUDA, too.)"""
    known = _usable.get(device)
    if known is None:
        known = torch.version.cuda is not None and sparsewire.has_cuda() and _core._is_usable(device.index)
        _usable[device] = known
    return known


def array(numbers: torch.Tensor) -> Any:
    """What Workers take fastest: on a GPU a pointer with the current stream; torch's __dlpack__() is slow there."""
    if not numbers.is_cuda or not numbers.is_contiguous():
        return numbers
    stream = getattr(_here, "stream", None)
    if stream is None:
        stream = torch.cuda.current_stream(numbers.device).cuda_stream
    return numbers.data_ptr(), _NAMES[numbers.dtype], numbers.numel(), numbers.device.index, stream


def describe(device: torch.device) -> str:
    """For the statistics: what happens to gradients there."""
    if device.type != "cuda":
        return "host"
    if can_work_on(device):
        return f"{device}: gradients and memories stay there"
    return (
        f"host: buckets of a GPU are copied to the host and back, because this build of sparsewire has no code for {device}"
    )


class Streams(threading.local):
    """The streams of each thread, one for each GPU. Of high priority: kernels of the backward pass are long."""

    def __init__(self) -> None:
        self._streams: dict[torch.device, torch.cuda.Stream] = {}
        self._current: Optional[torch.device] = None

    def enter(self, buffer: torch.Tensor, event: torch.cuda.Event) -> None:
        """From now on this thread works on the stream of the buffer's GPU, where it waits for the event."""
        device = buffer.device
        stream = self._streams.get(device)
        if device != self._current:
            torch.cuda.set_device(device)
            if stream is None:
                stream = self._streams[device] = torch.cuda.Stream(device, priority=-1)  # type: ignore[no-untyped-call]
                torch.cuda.set_stream(stream)  # each GPU has a current stream of its own
            self._current = device
        assert stream is not None
        _here.stream = stream.cuda_stream
        stream.wait_event(event)
        # No record_stream(): who waits for the answer waits for this stream, and failed buckets are kept (Stages).
