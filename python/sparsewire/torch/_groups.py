"""The parameters of a bucket, the Workers that exchange them, and what these do in one backward pass."""

from __future__ import annotations

import re
from typing import Any, Callable, Optional, Sequence, Union

import numpy
import torch

import sparsewire

from ._device import array
from ._options import Options
from ._stats import PartStats


BAD_GRADIENT = (
    "[torch] the gradient of rank {rank} is not finite at {where} in step {number}, or a sum with it is not: start the "
    "processes again from a checkpoint (where infinities are normal, give scaler=)"
)


class Tensor:
    """Where a parameter lies in a group."""

    __slots__ = ("name", "start", "size", "is_dense")

    def __init__(self, name: str, start: int, size: int, is_dense: bool) -> None:
        self.name, self.start, self.size, self.is_dense = name, start, size, is_dense

    def of(self, numbers: torch.Tensor) -> torch.Tensor:
        return numbers[self.start : self.start + self.size]


class _Part:
    """Tensors of a group that one Worker exchanges: where they lie if they are neighbours, copied together otherwise."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self.tensors = tensors
        self.is_in_place = all(one.start + one.size == other.start for one, other in zip(tensors, tensors[1:]))
        self.starts: dict[str, int] = {}
        self.size = 0
        for tensor in tensors:
            self.starts[tensor.name] = self.size
            self.size += tensor.size
        self.worker: Optional[sparsewire.Worker] = None
        self._packed: Optional[torch.Tensor] = None

    @property
    def layout(self) -> list[tuple[str, int]]:
        return [(tensor.name, tensor.size) for tensor in self.tensors]

    def pack(self, numbers: torch.Tensor) -> torch.Tensor:
        if self.is_in_place:
            return self._in_place(numbers)
        if self._packed is None or (self._packed.dtype, self._packed.device) != (numbers.dtype, numbers.device):
            self._packed = torch.empty(self.size, dtype=numbers.dtype, device=numbers.device)
        torch.cat([tensor.of(numbers) for tensor in self.tensors], out=self._packed)
        return self._packed

    def _in_place(self, numbers: torch.Tensor) -> torch.Tensor:
        start = self.tensors[0].start
        return numbers if self.size == len(numbers) else numbers[start : start + self.size]

    def write_update(self, numbers: torch.Tensor, factor: float) -> None:
        assert self.worker is not None
        if self.is_in_place:
            self.worker.write_update(array(self._in_place(numbers)), factor)
            return
        assert self._packed is not None
        self.worker.write_update(array(self._packed), factor)
        for tensor in self.tensors:
            start = self.starts[tensor.name]
            tensor.of(numbers).copy_(self._packed[start : start + tensor.size])

    def describe(self, index: int) -> str:
        """An index of the Worker in words."""
        for name, start in reversed(list(self.starts.items())):
            if start <= index:
                return f"index {index - start} of parameter {name}"
        return f"index {index}"


class Group:
    """Parameters that are exchanged together: those of a bucket.

    Tensors that are excluded, or too small, go densely by a Worker of their own: a ratio holds for the others only.
    All calls are collective, in the same order on all ranks. Steps have numbers that begin with 1.
    """

    def __init__(
        self,
        tensors: Sequence[Tensor],
        options: Options,
        transport: Optional[sparsewire.Transport],
        bad: str = BAD_GRADIENT,
    ) -> None:
        self.tensors = list(tensors)
        self.names = tuple(tensor.name for tensor in tensors)
        self.left = set(self.names)  # those that no later group has taken over
        self.dim = sum(tensor.size for tensor in tensors)
        self.options = options
        self._transport = transport
        self._bad = bad  # what a BadGradient says
        self._sparse = _Part([tensor for tensor in tensors if not tensor.is_dense])
        self._dense = _Part([tensor for tensor in tensors if tensor.is_dense])
        self._start = _Part(self.tensors)  # all of them densely
        self._begun: list[_Part] = []  # whose step has begun, by begin()
        self._done: list[_Part] = []  # the steps of this pass, in order
        self._is_answered = False  # by step()
        self._buffer: Optional[torch.Tensor] = None

    @property
    def layout(self) -> list[tuple[str, int, bool]]:
        return [(tensor.name, tensor.size, tensor.is_dense) for tensor in self.tensors]

    @property
    def is_all_dense(self) -> bool:
        return not self._sparse.tensors

    @property
    def worker(self) -> Optional[sparsewire.Worker]:
        """The one that has the memory."""
        return self._sparse.worker

    @property
    def workers(self) -> dict[str, sparsewire.Worker]:
        """Those that have a memory, by the names under which it is saved."""
        dense = (self._start if self.is_all_dense else self._dense).worker
        keeps = dense is not None and dense.config["feedback"] != "none"
        found = {"group": self.worker, "dense": dense if keeps else None}
        return {name: worker for name, worker in found.items() if worker is not None}

    def make_worker(self) -> sparsewire.Worker:
        return self._worker_of(self._sparse)

    def _worker_of(self, part: _Part) -> sparsewire.Worker:
        """Makes it, if it is not there yet."""
        if part.worker is None:
            options = self.options.for_worker(part.size) if part is self._sparse else self.options.for_dense()
            part.worker = sparsewire.Worker(part.layout, transport=self._transport, **options)
        return part.worker

    def buffer(self, like: torch.Tensor, on_host: bool) -> torch.Tensor:
        """A buffer for numbers that are elsewhere or in another order: on their device, or in pinned memory of the host."""
        device = torch.device("cpu") if on_host else like.device
        if self._buffer is None or (self._buffer.dtype, self._buffer.device) != (like.dtype, device):
            pinned = on_host and like.is_cuda
            self._buffer = torch.empty(self.dim, dtype=like.dtype, device=device, pin_memory=pinned)
        return self._buffer

    def free_buffer(self) -> None:
        self._buffer = None

    def is_made(self, starting: bool) -> bool:
        """Whether the Workers for the next step are there: making one takes messages."""
        return all(part.worker is not None for part in self._parts(starting))

    def _parts(self, starting: bool) -> list[_Part]:
        if starting or self.is_all_dense:
            return [self._start]
        return [self._dense, self._sparse] if self._dense.tensors else [self._sparse]

    def step(
        self, numbers: torch.Tensor, unscale: float, number: int, starting: bool, at_once: bool = False
    ) -> None:
        """One step. ``numbers`` must stay as they are until answer() or take_back().

        at_once: it will not be taken back, and all of its update is wanted. Then ``numbers`` may be the answer already.
        """
        self._done = []
        parts = self._parts(starting)
        self._is_answered = at_once and len(parts) == 1 and parts[0].is_in_place
        for part in parts:
            if self._is_answered:
                worker = self._worker_of(part)
                array_of_part = array(part.pack(numbers))
                self._run(part, number, lambda: worker._step_in_place(array_of_part, unscale))
            else:
                self._begin(part, numbers, unscale)
                self._finish(part, number)
        if not starting and not self.is_all_dense:
            self._start.worker = None  # the dense start is over

    def begin(
        self,
        numbers: torch.Tensor,
        unscale: float = 1.0,
        starting: bool = False,
        flags: int = 0,
        weight: Optional[float] = None,
    ) -> None:
        """The first half of a step, without messages. REQUIRES: is_made(). It cannot be taken back before finish()."""
        self._done = []
        self._is_answered = False
        self._begun = self._parts(starting)
        for part in self._begun:
            self._begin(part, numbers, unscale, flags, weight)

    def finish(self, number: int) -> None:
        """The second half; from any thread."""
        for part in self._begun:
            self._finish(part, number)

    def _begin(
        self, part: _Part, numbers: torch.Tensor, unscale: float, flags: int = 0, weight: Optional[float] = None
    ) -> None:
        worker = self._worker_of(part)
        worker.begin_step(array(part.pack(numbers)), unscale=unscale, flags=flags, weight=weight)

    def _finish(self, part: _Part, number: int) -> None:
        assert part.worker is not None
        self._run(part, number, part.worker.finish_step)

    def _run(self, part: _Part, number: int, messages: Callable[[], None]) -> None:
        """What needs all ranks in the step of a part; errors have the numbers and names of the hook."""
        try:
            messages()
        except sparsewire.BadGradient as error:
            self.take_back()  # what this group has done before
            words = self._bad.format(rank=error.rank, where=part.describe(error.index), number=number)
            raise sparsewire.BadGradient(words, error.rank, number, error.index) from None
        except (sparsewire.RankFailed, sparsewire.TransportError) as error:
            raise _with_number(error, number) from error
        self._done.append(part)

    def take_back(self) -> None:
        for part in reversed(self._done):
            assert part.worker is not None
            part.worker.take_back_step()
        self._done = []

    @property
    def flags(self) -> int:
        """Those of all ranks in the steps of this pass, or-ed."""
        assert self._done and self._done[0].worker is not None
        return self._done[0].worker.stats()["flags"]

    def find_overflow(self, dtype: torch.dtype, factor: float) -> Optional[str]:
        """What of factor * update is too large for the type, in words. The same on all ranks."""
        if dtype is not torch.float16 and factor == 1.0:
            return None
        info = torch.finfo(dtype)
        limit = info.max / (2 - info.eps) * (2 - info.eps / 2)  # from here on rounding gives infinity
        for part in self._done:
            assert part.worker is not None
            update = part.worker.update()
            values = update.values
            if not len(values) or float(max(values.max(), -values.min())) * factor < limit:
                continue
            at = int(numpy.argmax(numpy.abs(values)))
            return f"{float(values[at]) * factor:.6g} at {part.describe(int(update.indices[at]))}"
        return None

    def answer(self, numbers: torch.Tensor, factor: float, unused: Sequence[Tensor]) -> None:
        """Writes the update. Entries of ``unused`` tensors, which nobody will apply, return to the memory."""
        if self._is_answered:
            return
        for part in self._done:
            part.write_update(numbers, factor)
        if self._done[-1] is self._sparse and unused:
            self._put_back([tensor for tensor in unused if not tensor.is_dense])
        for tensor in unused:
            tensor.of(numbers).zero_()

    def apply(self, weights: torch.Tensor, lr: float) -> None:
        """weights -= lr * update, only where there is one. REQUIRES: the tensors of a part are neighbours."""
        for part in self._done:
            assert part.worker is not None and part.is_in_place
            part.worker.apply_update(array(part.pack(weights)), lr)

    def make_workers(self, transport: Optional[sparsewire.Transport]) -> None:
        """Those of its steps. Collective."""
        self._transport = transport
        for part in self._parts(starting=False):
            self._worker_of(part)

    def _put_back(self, unused: Sequence[Tensor]) -> None:
        # The update is the weighted sum of what was sent, and the weights sum to 1: what is owed stays the same if every
        # rank adds the update to its own memory.
        worker = self.make_worker()
        update = worker.update()
        indices, values = update.indices, update.values
        at: Any
        for tensor in unused:
            start = self._sparse.starts[tensor.name]
            if update.is_full:
                at, came = slice(None), values[start : start + tensor.size]
            else:
                first, last = numpy.searchsorted(indices, [start, start + tensor.size])
                at, came = indices[first:last].astype(numpy.int64) - start, values[first:last]
            if not numpy.any(came):
                continue
            memory = numpy.empty(tensor.size, numpy.float32)
            worker.read_memory(tensor.name, memory)
            memory[at] += came
            worker.write_memory(tensor.name, memory)

    def memory(self, tensor: Tensor) -> torch.Tensor:
        """What is not sent yet: zeros if the tensor goes densely and unrounded."""
        found = torch.zeros(tensor.size)
        worker = self.workers.get("dense" if tensor.is_dense else "group")
        if worker is not None:
            worker.read_memory(tensor.name, found)
        return found

    def stats(self) -> list[PartStats]:
        """Of the steps of this pass."""
        return [PartStats(part.worker._last_stats(), part is self._sparse) for part in self._done if part.worker]

    def adopt(self, others: Sequence[Group]) -> None:
        """Takes over what groups of another order held; they lose these tensors."""
        held = [group.worker for group in others if group.worker is not None]
        if held and not self.is_all_dense:
            self.make_worker().adopt(held)
        for group in others:
            group.left -= set(self.names)


def _with_number(
    error: Union[sparsewire.RankFailed, sparsewire.TransportError], number: int
) -> Union[sparsewire.RankFailed, sparsewire.TransportError]:
    """The error with the number of the hook's step: a Worker counts its own, from 0, and not those of a dense start."""
    return type(error)(re.sub(r"\bin step \d+", f"in step {number}", str(error), count=1), error.rank)
