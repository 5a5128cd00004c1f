"""One bucket of one backward pass, and the Future that DDP waits for."""

from __future__ import annotations

from typing import Any, Optional

import torch

from ._groups import Group, Tensor


class Job:
    """A bucket on its way: made by the hook, answered by the thread."""

    def __init__(self, buffer: torch.Tensor, names: tuple[str, ...], sizes: tuple[int, ...]) -> None:
        self.buffer, self.names, self.sizes = buffer, names, sizes
        devices: Any = [buffer.device] if buffer.is_cuda else []
        self._ended: torch.futures.Future[Optional[torch.Tensor]] = torch.futures.Future(devices=devices)
        self._error: Optional[Exception] = None
        # Not set_exception(): DDP would try to use the exception as a tensor.
        self.future: torch.futures.Future[torch.Tensor] = self._ended.then(self._result)
        self.first = self.last = False
        self.scale = 1.0
        self.event = torch.cuda.current_stream(buffer.device).record_event() if buffer.is_cuda else None
        self.numbers = buffer
        self.group: Optional[Group] = None
        self.unused: list[Tensor] = []

    @classmethod
    def make_failed(cls, error: Exception) -> Job:
        """Of a bucket that cannot be exchanged."""
        job = cls(torch.empty(0), (), ())
        job.fail(error)
        return job

    def _result(self, _: Any) -> torch.Tensor:
        if self._error is not None:
            raise self._error
        return self.buffer

    def fail(self, error: Exception) -> None:
        if not self._ended.done():
            self._error = error
            try:
                self._ended.set_result(None)
            except RuntimeError:  # another thread was faster
                pass

    def complete(self) -> None:
        """On the stream on which the answer was written: who waits for the Future waits for it."""
        if self.numbers is not self.buffer and self.buffer.is_cuda:
            with torch.cuda.device(self.buffer.device):
                self.buffer.copy_(self.numbers, non_blocking=False)
                self._ended.set_result(self.buffer)
        else:
            # A Future looks for tensors in its result, and remembers the current stream if there is one on a GPU.
            self._ended.set_result(self.buffer if self.buffer.is_cuda else None)
