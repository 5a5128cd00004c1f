"""What the State's threads do: buckets of a backward pass become steps of groups, and get their answers."""

from __future__ import annotations

import json
import time
import zlib
from typing import Any, Optional

import torch
import torch.distributed as dist

import sparsewire

from . import _saved
from ._connect import connect, give_up, parse
from ._device import Streams, can_work_on, describe
from ._groups import Group, Tensor
from ._job import Job
from ._options import Options
from ._parameters import Parameters
from ._stats import Totals

# After loading, buckets are regrouped once more (DDP does it after the first backward pass, or the second).
_PASSES_UNTIL_REGROUPED = 3


class Passes:
    """One backward pass after the other, and what stays between them."""

    def __init__(self, options: Options, parameters: Parameters, scaler: Any, metrics: Optional[str]) -> None:
        self.options = options
        self.transport: Optional[sparsewire.Transport] = None
        self.groups: dict[tuple[str, ...], Group] = {}
        self.totals = Totals()
        self.steps_done = 0
        self.loaded: Optional[dict[str, Any]] = None  # a saved state of which the next pass makes groups
        self.waiting: list[Job] = []  # of this pass, without an answer yet
        self.stepped: list[Group] = []  # those whose step is finished in this pass
        self._parameters = parameters
        self._scaler = scaler
        self._metrics = metrics
        self._is_connected = False
        self._passes_loaded = 0
        self._ready: list[Job] = []  # their step is done
        self._held: list[Job] = []  # their parameters belong to groups that were saved, which differ
        self._is_bad = False
        self._host_copies = 0  # of buckets, in this pass
        self._streams = Streams()
        self._clock: Optional[float] = None  # when the totals were last brought up to date
        self.must_agree: dict[str, Any] = {}  # more that all ranks must have been given
        self.inner_steps: Optional[int] = None  # what a line of the metrics calls steps, where a pass has many

    # --- connecting ---

    def connect(self, group: Optional[dist.ProcessGroup], deadline: float) -> None:
        if self._is_connected:
            return
        try:
            self._open_metrics(group)
        except Exception as error:
            give_up(group, error)
            raise
        self.transport = connect(group, deadline)
        self._is_connected = True
        self._clock = time.monotonic()
        self._compare_options()

    def _open_metrics(self, group: Optional[dist.ProcessGroup]) -> None:
        """So that a file that cannot be written is known now."""
        if self._metrics is not None:
            rank = dist.get_rank(group) if dist.is_available() and dist.is_initialized() else 0
            self._metrics = self._metrics.replace("{rank}", str(rank))
            with open(self._metrics, "a", encoding="utf-8"):
                pass

    def _look_at_the_clock(self) -> None:
        now = time.monotonic()
        self.totals.seconds += 0.0 if self._clock is None else now - self._clock
        self._clock = now

    def record(self, numbers: dict[str, float], rank: int) -> None:
        """A line of the metrics: what is given, and where the training is."""
        if self._metrics is None:
            return
        self._look_at_the_clock()
        step = self.steps_done if self.inner_steps is None else self.inner_steps
        line = {"step": step, "rank": rank, **self.totals.so_far(), **numbers}
        with open(self._metrics.replace("{rank}", str(rank)), "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def _compare_options(self) -> None:
        """What Workers do not compare by themselves, and what would end in confusion."""
        if self.transport is None:
            return
        own: dict[str, Any] = {"start_step": self.options.start_step, "min_compress_size": self.options.min_compress_size}
        own.update(self.must_agree)
        own["scaler"] = int(self._scaler is not None)
        if self._parameters.is_bound:
            own["exclude"] = zlib.crc32("\n".join(self._parameters.dense_names()).encode())
        everyones = [parse(rank, one) for rank, one in enumerate(self.transport.all_gather(json.dumps(own).encode()))]
        for rank, other in enumerate(everyones):
            for name in other.keys() & everyones[0].keys():
                if other[name] != everyones[0][name]:
                    raise sparsewire.UsageError(f"[torch] rank {rank} was given another {name}= than rank 0")

    @property
    def is_starting(self) -> bool:
        return self.steps_done < self.options.start_step

    # --- a pass ---

    def take(self, job: Job) -> None:
        """The next bucket, which is already among those that wait."""
        if job.first:
            self._begin()
        if self._passes_loaded > 0 and job.names not in self.groups:
            self._hold(job)
        else:
            job.group = self._group(job)
            if self._must_copy(job):
                job.numbers = job.group.buffer(job.buffer, on_host=True)
                job.numbers.copy_(job.buffer)
                self._host_copies += 1
            self._do_step(job)
            self._ready.append(job)
        if self._scaler is not None and not job.last:
            return
        gathered = self._collect() if job.last and self._held else []
        self._answer(self._ready + gathered)
        answered, self._ready = self._ready, []
        if job.last:
            for one in self._held:
                self._spread(one, gathered)
            answered = answered + self._held
        for one in answered:
            one.complete()
            self.waiting.remove(one)  # afterwards, so that a job that cannot be completed fails with the State
        if job.last:
            self.end(job.buffer.device)

    # The same in three parts, each on a thread of its own: while one bucket is exchanged, the next one is sifted, and the
    # one before it is answered. Not for everything: what has begun cannot be taken back without messages.

    def can_begin(self, job: Job) -> bool:
        """Whether begin(), exchange() and answer() can do what take() does."""
        if self._scaler is not None or self.loaded is not None or self._passes_loaded > 0 or self._watches_unused():
            return False
        group = self.groups.get(job.names)
        if group is None or not group.left or not group.is_made(self.is_starting):
            return False
        return job.event is None or can_work_on(job.buffer.device)

    def begin(self, job: Job) -> None:
        if job.first:
            self._begin()
        job.group = self.groups[job.names]
        if job.event is not None:
            self._streams.enter(job.buffer, job.event)
        job.group.begin(job.numbers, 1.0 / job.scale, self.is_starting)

    def exchange(self, job: Job) -> None:
        assert job.group is not None
        job.group.finish(self.steps_done + 1)
        self.stepped.append(job.group)

    def answer(self, job: Job) -> None:
        if job.event is not None:
            self._streams.enter(job.buffer, job.event)
        self._answer([job])
        job.complete()
        self.waiting.remove(job)
        if job.last:
            self.end(job.buffer.device)

    def _must_copy(self, job: Job) -> bool:
        """Whether the bucket is on a GPU and must be copied to the host. Waits for it: the thread, or its stream."""
        if job.event is None:
            return False
        if can_work_on(job.buffer.device):
            self._streams.enter(job.buffer, job.event)
            return False
        job.event.synchronize()
        return True

    def _begin(self) -> None:
        if self.loaded is not None:
            self.make_loaded_groups()
        self._is_bad = False
        self._host_copies = 0
        self.stepped = []
        self._ready = []
        self._held = []

    def _do_step(self, job: Job) -> None:
        group = job.group
        assert group is not None
        if self._is_bad:
            return
        job.unused = self._find_unused(group, job.numbers)
        at_once = self._scaler is None and not job.unused and job.numbers.dtype is not torch.float16
        try:
            group.step(job.numbers, 1.0 / job.scale, self.steps_done + 1, self.is_starting, at_once)
        except sparsewire.BadGradient:
            if self._scaler is None:
                raise
            self._take_back()
            return
        self.stepped.append(group)

    def _take_back(self) -> None:
        """All steps of this pass: no rank counts it, and every bucket becomes infinite, so that the scaler skips it."""
        for group in reversed(self.stepped):
            group.take_back()
        self.stepped = []
        self._is_bad = True

    def _answer(self, jobs: list[Job]) -> None:
        for job in jobs:
            assert job.group is not None
            found = None if self._is_bad else job.group.find_overflow(job.numbers.dtype, job.scale)
            if found is not None and self._scaler is None:
                job.group.take_back()
                raise self.too_large(found, job.numbers.dtype)
            if found is not None:
                self._take_back()
        for job in jobs:
            assert job.group is not None
            if self._is_bad:
                job.numbers.fill_(float("inf"))
            else:
                job.group.answer(job.numbers, job.scale, job.unused)

    def too_large(self, found: str, dtype: torch.dtype) -> sparsewire.BadGradient:
        number = self.steps_done + 1
        return sparsewire.BadGradient(
            f"[torch] in step {number} the update of all ranks is {found}, too large for gradients of {dtype}: use "
            "bfloat16 or float32 parameters (with autocast they are float32), or make the loss smaller",
            -1,
            number,
            -1,
        )

    def end(self, device: torch.device) -> None:
        self.totals.device = describe(device)
        if self._is_bad:
            self.totals.skipped += 1
        else:
            self.steps_done += 1
            size = self.transport.size if self.transport is not None else 1
            self.totals.add([part for group in self.stepped for part in group.stats()], size)
            self.totals.host_copies += self._host_copies
        self._passes_loaded = max(0, self._passes_loaded - 1)
        if not self._held and self._passes_loaded:  # DDP's buckets are the groups again
            self._passes_loaded = 0
            for group in self.groups.values():
                group.free_buffer()
        self.groups = {names: group for names, group in self.groups.items() if group.left}
        self._look_at_the_clock()
        if self._metrics is not None:
            rank = self.transport.rank if self.transport is not None else 0
            self.record({"skipped": self._is_bad, **self.totals.last}, rank)

    # --- groups ---

    def _group(self, job: Job) -> Group:
        group = self.groups.get(job.names)
        if group is not None and group.left:
            return group
        group = self._make_group(job.names, job.sizes)
        before = [other for other in self.groups.values() if other.left & set(job.names)]
        if before:
            group.adopt(before)
        self.groups[job.names] = group
        return group

    def _make_group(self, names: Any, sizes: Any) -> Group:
        parameters = self._parameters.by_name()
        tensors, start = [], 0
        for name, size in zip(names, sizes):
            tensors.append(Tensor(name, start, size, self._parameters.is_dense(name, size, parameters.get(name))))
            start += size
        return Group(tensors, self.options, self.transport)

    def _watches_unused(self) -> bool:
        model = self._parameters.model()
        return model is not None and bool(model.find_unused_parameters or model.static_graph)

    def _find_unused(self, group: Group, numbers: torch.Tensor) -> list[Tensor]:
        """The tensors of which no rank has a gradient: DDP would not apply an update of them."""
        if not self._watches_unused():
            return []
        any_used = torch.stack([tensor.of(numbers).any() for tensor in group.tensors])
        used = bytes(any_used.tolist())  # together: a GPU is waited for once
        everyones = [used] if self.transport is None else self.transport.all_gather(used)
        return [tensor for i, tensor in enumerate(group.tensors) if not any(flags[i] for flags in everyones)]

    # --- after loading, until DDP has regrouped its buckets ---

    def load(self, states: dict[str, Any], rank: int) -> None:
        """The memories are made by the next pass: that takes messages."""
        one = next(iter(states.values()))
        self.totals = Totals.load(json.loads(states.get(f"rank{rank}", one)["totals"]))
        self.loaded = states
        self.steps_done = int(one["step"])

    def load_groups(self, states: dict[str, Any], rank: int) -> None:
        """The same where the groups are those that were saved, and have their Workers."""
        self.load(states, rank)
        self.loaded = None
        for i, group in enumerate(self.groups.values()):
            for name, worker in group.workers.items():
                worker.load([_saved.worker_of(state, f"{name}{i}") for state in states.values()])

    def make_loaded_groups(self) -> None:
        assert self.loaded is not None
        states, self.loaded = self.loaded, None
        _saved.check_names(states, self._parameters)
        one = next(iter(states.values()))
        self.groups = {}
        for i, layout in enumerate(_saved.groups_of(one)):
            names = tuple(name for name, _, _ in layout)
            group = self._make_group(names, [size for _, size, _ in layout])
            if f"group{i}" in one:
                group.make_worker().load([_saved.worker_of(state, f"group{i}") for state in states.values()])
            self.groups[names] = group
        self._passes_loaded = _PASSES_UNTIL_REGROUPED if self.groups else 0

    def _hold(self, job: Job) -> None:
        sizes = {tensor.name: tensor.size for group in self.groups.values() for tensor in group.tensors}
        for name, size in zip(job.names, job.sizes):
            if sizes.get(name) != size:
                raise sparsewire.UsageError(
                    f"[torch] the state that was loaded is of another model: {name} had {sizes.get(name, 'no')} entries, "
                    f"and has {size}"
                )
        self._held.append(job)

    def _collect(self) -> list[Job]:
        """The gradients in the order of the groups that were saved, not of DDP's first buckets."""
        made = []
        at = {name: (job, i) for job in self._held for i, name in enumerate(job.names)}
        for group in self.groups.values():
            if group.names[0] not in at:
                continue  # a bucket is this group
            like = at[group.names[0]][0]
            gathered = Job(torch.empty(0, dtype=like.buffer.dtype), group.names, tuple(t.size for t in group.tensors))
            must_copy = any([self._must_copy(at[tensor.name][0]) for tensor in group.tensors])
            self._host_copies += must_copy
            gathered.group, gathered.scale = group, like.scale
            gathered.numbers = group.buffer(like.buffer, on_host=must_copy)
            for tensor in group.tensors:
                job, i = at[tensor.name]
                start = sum(job.sizes[:i])
                tensor.of(gathered.numbers).copy_(job.buffer[start : start + tensor.size])
            made.append(gathered)
        for gathered in made:
            self._do_step(gathered)
        return made

    @staticmethod
    def _spread(job: Job, gathered: list[Job]) -> None:
        where = {tensor.name: (one, tensor) for one in gathered if one.group for tensor in one.group.tensors}
        start = 0
        for name, size in zip(job.names, job.sizes):
            one, tensor = where[name]
            job.buffer[start : start + size].copy_(tensor.of(one.numbers))
            start += size

    # --- between passes ---

    def retune(self, options: Options) -> None:
        changed: list[tuple[Any, bool]] = []

        def give(worker: Any, is_dense: bool, given: Options) -> None:
            worker.retune(**(given.for_dense() if is_dense else given.for_worker(worker.dim)))

        try:
            for group in self.groups.values():
                for name, worker in group.workers.items():
                    give(worker, name == "dense", options)
                    changed.append((worker, name == "dense"))
        except ValueError:  # on all ranks alike: the options do not fit this group
            for worker, is_dense in changed:
                give(worker, is_dense, self.options)
            raise
        for group in self.groups.values():
            group.options = options
        self.options = options

    def memory(self) -> dict[str, torch.Tensor]:
        if self.loaded is not None:
            raise RuntimeError("[torch] a state was loaded: its memory is there after the next backward pass")
        return {
            tensor.name: group.memory(tensor)
            for group in self.groups.values()
            for tensor in group.tensors
            if tensor.name in group.left
        }

    def save(self, rank: int, size: int) -> dict[str, Any]:
        if self.loaded is not None:  # loaded, and no backward pass since
            return dict(self.loaded)
        groups = [group for group in self.groups.values() if group.left]
        one = _saved.make(size, self.steps_done, self.options, [group.layout for group in groups], self.totals)
        for i, group in enumerate(groups):
            for name, worker in group.workers.items():
                one[f"{name}{i}"] = torch.frombuffer(bytearray(worker.save()), dtype=torch.uint8)
        return {f"rank{rank}": one}
