"""The parameters that one Worker serves, and what it does for one backward pass."""

from __future__ import annotations

from typing import Any, Optional, Sequence

import numpy
import torch

import sparsewire

from ._options import Options


class Tensor:
    """Where a parameter lies in a group."""

    __slots__ = ("name", "start", "size", "is_dense")

    def __init__(self, name: str, start: int, size: int, is_dense: bool) -> None:
        self.name, self.start, self.size, self.is_dense = name, start, size, is_dense

    def of(self, numbers: torch.Tensor) -> torch.Tensor:
        return numbers[self.start : self.start + self.size]


class Group:
    """Parameters that are exchanged together: those of a bucket.

    Tensors that are excluded, or too small, go densely by a Worker of their own; for the other Worker they are zeros.
    All calls are collective, in the same order on all ranks.
    """

    def __init__(
        self, tensors: Sequence[Tensor], options: Options, transport: Optional[sparsewire.Transport]
    ) -> None:
        self.tensors = list(tensors)
        self.names = tuple(tensor.name for tensor in tensors)
        self.left = set(self.names)  # those that no later group has taken over
        self.dim = sum(tensor.size for tensor in tensors)
        self.options = options
        self._transport = transport
        self._dense = [tensor for tensor in tensors if tensor.is_dense]
        self._small: Optional[torch.Tensor] = None
        self._small_worker: Optional[sparsewire.Worker] = None
        self._start_worker: Optional[sparsewire.Worker] = None
        self.worker: Optional[sparsewire.Worker] = None
        self._done: list[sparsewire.Worker] = []  # the steps of this pass, in order
        self._host: Optional[torch.Tensor] = None

    @property
    def layout(self) -> list[tuple[str, int]]:
        return [(tensor.name, tensor.size) for tensor in self.tensors]

    @property
    def is_all_dense(self) -> bool:
        return len(self._dense) == len(self.tensors)

    def make_worker(self) -> sparsewire.Worker:
        if self.worker is None:
            self.worker = sparsewire.Worker(self.layout, transport=self._transport, **self.options.for_worker())
        return self.worker

    def _make_dense(self, layout: Any) -> sparsewire.Worker:
        return sparsewire.Worker(layout, transport=self._transport, **self.options.for_dense())

    def host(self, like: torch.Tensor) -> torch.Tensor:
        """A buffer in host memory, for numbers that are elsewhere or in another order."""
        if self._host is None or self._host.dtype != like.dtype:
            self._host = torch.empty(self.dim, dtype=like.dtype, pin_memory=like.is_cuda)
        return self._host

    def step(self, numbers: torch.Tensor, unscale: float, starting: bool) -> None:
        """One step. ``numbers`` must stay as this leaves them until answer() or take_back()."""
        self._done = []
        if starting or self.is_all_dense:
            if self._start_worker is None:
                self._start_worker = self._make_dense(self.layout)
            self._step(self._start_worker, numbers, unscale)
            return
        worker = self.make_worker()
        if self._dense:
            if self._small is None or self._small.dtype != numbers.dtype:
                self._small = torch.empty(sum(tensor.size for tensor in self._dense), dtype=numbers.dtype)
            if self._small_worker is None:
                self._small_worker = self._make_dense([(tensor.name, tensor.size) for tensor in self._dense])
            torch.cat([tensor.of(numbers) for tensor in self._dense], out=self._small)
            for tensor in self._dense:
                tensor.of(numbers).zero_()
            self._step(self._small_worker, self._small, unscale)
        self._step(worker, numbers, unscale)

    def _step(self, worker: sparsewire.Worker, numbers: torch.Tensor, unscale: float) -> None:
        try:
            worker.begin_step(numbers, unscale=unscale)
            worker.finish_step()
        except sparsewire.BadGradient:
            self.take_back()  # what this group has done before
            raise
        self._done.append(worker)

    def take_back(self) -> None:
        for worker in reversed(self._done):
            worker.take_back_step()
        self._done = []

    def answer(self, numbers: torch.Tensor, factor: float, unused: Sequence[Tensor]) -> None:
        """Writes the update. Entries of ``unused`` tensors, which nobody will apply, return to the memory."""
        worker = self._done[-1]
        worker.write_update(numbers, factor)
        if len(self._done) == 2:
            assert self._small is not None
            self._done[0].write_update(self._small, factor)
            start = 0
            for tensor in self._dense:
                tensor.of(numbers).copy_(self._small[start : start + tensor.size])
                start += tensor.size
        if worker is self.worker and unused:
            self._put_back(worker, [tensor for tensor in unused if not tensor.is_dense])
        for tensor in unused:
            tensor.of(numbers).zero_()

    @staticmethod
    def _put_back(worker: sparsewire.Worker, unused: Sequence[Tensor]) -> None:
        # The update is the weighted sum of what was sent, and the weights sum to 1: what is owed stays the same if every
        # rank adds the update to its own memory.
        update = worker.update()
        indices, values = update.indices, update.values
        at: Any
        for tensor in unused:
            if update.is_full:
                at, came = slice(None), values[tensor.start : tensor.start + tensor.size]
            else:
                first, last = numpy.searchsorted(indices, [tensor.start, tensor.start + tensor.size])
                at, came = indices[first:last].astype(numpy.int64) - tensor.start, values[first:last]
            if not numpy.any(came):
                continue
            memory = numpy.empty(tensor.size, numpy.float32)
            worker.read_memory(tensor.name, memory)
            memory[at] += came
            worker.write_memory(tensor.name, memory)

    def stats(self) -> list[dict[str, Any]]:
        """Of the steps of this pass."""
        found = []
        for worker in self._done:
            one: dict[str, Any] = dict(worker.stats())
            if worker is self._small_worker:
                one["dense_bytes"] = 0  # its entries are among those of the other Worker
            if worker is not self.worker:  # an all-reduce: every rank also serves a part
                one["bytes_served"] = one["bytes_up"] + one["bytes_down"]
            found.append(one)
        return found

    def adopt(self, others: Sequence[Group]) -> None:
        """Takes over what groups of another order held; they lose these tensors."""
        held = [group.worker for group in others if group.worker is not None]
        if held and not self.is_all_dense:
            self.make_worker().adopt(held)
        for group in others:
            group.left -= set(self.names)
