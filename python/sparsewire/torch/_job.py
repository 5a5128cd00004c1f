"""One bucket of one backward pass, and the Future that DDP waits for."""

from __future__ import annotations

from typing import Any, Optional

import torch

from ._groups import Group, Tensor


class _Failure:
    """The result of a Future of tensors on a GPU that fails: it looks for tensors by pickling, and fails if that does."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __reduce__(self) -> Any:
        raise self._error


class Job:
    """A bucket on its way: made by the hook, answered by the thread."""

    def __init__(
        self,
        buffer: torch.Tensor,
        names: tuple[str, ...],
        sizes: tuple[int, ...],
        event: Optional[torch.cuda.Event] = None,
    ) -> None:
        self.buffer, self.names, self.sizes = buffer, names, sizes
        self.event = event  # on a GPU: when the gradient is there
        self._error: Optional[Exception] = None
        self._ended: torch.futures.Future[Any]
        self.future: torch.futures.Future[torch.Tensor]
        # Not set_exception(): DDP would try to use the exception as a tensor.
        if buffer.is_cuda:
            self.future = self._ended = torch.futures.Future(devices=[buffer.device])  # then() is slow on a GPU
        else:
            self._ended = torch.futures.Future()
            self.future = self._ended.then(self._result)
        self.first = self.last = False
        self.scale = 1.0
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
                self._ended.set_result(_Failure(error) if self.buffer.is_cuda else None)
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
