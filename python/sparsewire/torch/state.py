"""State: everything that the hook of one model keeps, and the thread that does the work."""

from __future__ import annotations

import atexit
import base64
import io
import json
import os
import queue
import threading
import warnings
import weakref
import zlib
from typing import Any, Optional

import torch
import torch.distributed as dist

import sparsewire

from ._connect import connect
from ._groups import Group, Tensor
from ._options import Exclude, Options
from ._stats import Totals

_FORMAT = 1
_CONSOLIDATED = b"sparsewire consolidated state\n"  # before what ranks send each other for it
_TYPES = (torch.float32, torch.bfloat16, torch.float16)
# After loading, buckets are regrouped once more (DDP does it after the first backward pass, or the second).
_PASSES_UNTIL_REGROUPED = 3
_open_states: weakref.WeakSet[State] = weakref.WeakSet()


class _Job:
    """One bucket of one backward pass."""

    __slots__ = ("buffer", "future", "names", "sizes", "first", "last", "scale", "event", "numbers", "group", "unused", "_ended", "_error")

    def __init__(self, buffer: torch.Tensor, names: tuple[str, ...], sizes: tuple[int, ...]) -> None:
        self.buffer, self.names, self.sizes = buffer, names, sizes
        devices: Any = [buffer.device] if buffer.is_cuda else []
        self._ended: torch.futures.Future[None] = torch.futures.Future(devices=devices)
        self._error: Optional[Exception] = None
        # Not set_exception(): DDP would try to use the exception as a tensor.
        self.future: torch.futures.Future[torch.Tensor] = self._ended.then(self._result)
        self.first = self.last = False
        self.scale = 1.0
        self.event = torch.cuda.current_stream(buffer.device).record_event() if buffer.is_cuda else None
        self.numbers = buffer
        self.group: Optional[Group] = None
        self.unused: list[Tensor] = []

    def _result(self, _: Any) -> torch.Tensor:
        if self._error is not None:
            raise self._error
        return self.buffer

    def fail(self, error: Exception) -> None:
        if not self._ended.done():
            self._error = error
            self._ended.set_result(None)

    def complete(self) -> None:
        if self.numbers is not self.buffer and self.buffer.is_cuda:
            with torch.cuda.device(self.buffer.device):
                self.buffer.copy_(self.numbers, non_blocking=False)
                self._ended.set_result(None)
        else:
            self._ended.set_result(None)


class State:
    """What the hook needs and remembers, for ``model.register_comm_hook(sparsewire.torch.State(...), sparsewire.torch.hook)``.

    ``sparsewire.torch.register(model, ...)`` does the same in one line, and gives the parameters their names.

    process_group: the ranks that exchange gradients; None: all. It is not used for communication: the ranks are connected
        over TCP by themselves, by ``register()`` or at the first bucket.
    sparsifier, exchange, downlink, codec, downlink_codec, feedback, scope, seed, check_every, threads: as for
        ``sparsewire.Worker``. A ``ratio`` holds for every bucket; so does ``k``.
    start_step: so many backward passes are exchanged densely first.
    min_compress_size: parameters with fewer entries are exchanged densely.
    exclude: names of parameters, or a function of name and parameter: these are exchanged densely.
    scaler: the GradScaler, if there is one. A step in which a gradient is infinite is then taken back on all ranks.
    deadline: seconds of silence after which a rank counts as lost. It must be longer than any pause between two backward
        passes: an evaluation, or a checkpoint.
    metrics: a file that gets one line of JSON for every backward pass; ``{rank}`` in its name is replaced.

    >>> state = State(sparsifier="topk:ratio=0.01", start_step=10)
    >>> state.options.sparsifier
    'topk:ratio=0.01'
    >>> State(sparsifier="topk:ratio=2")
    Traceback (most recent call last):
        ...
    sparsewire.UsageError: [topk] ratio=2 is not in (0, 1]
    """

    def __init__(
        self,
        process_group: Optional[dist.ProcessGroup] = None,
        sparsifier: str = "topk:ratio=0.01",
        *,
        exclude: Exclude = None,
        scaler: Optional[Any] = None,
        deadline: float = 300.0,
        metrics: Optional[str] = None,
        **options: Any,
    ) -> None:
        self.options = Options.make({"sparsifier": sparsifier, **options})
        self.options.check(1 << 24)
        self.process_group = process_group
        self.exclude = exclude
        self.scaler = scaler
        self.deadline = deadline
        self.metrics = metrics
        self._reset()

    def _reset(self) -> None:
        self.error: Optional[Exception] = None
        self._pid = os.getpid()
        self._transport: Optional[sparsewire.Transport] = None
        self._connected = False
        self._closed = False
        self._jobs: queue.Queue[Any] = queue.Queue()
        self._thread: Optional[threading.Thread] = None
        self._model: Optional[weakref.ref[Any]] = None
        self._parameters: list[torch.Tensor] = []  # kept, so that no other one gets the same id
        self._names: dict[int, str] = {}
        self._bound = False
        self._all: Optional[frozenset[str]] = None  # the names of all parameters, where they are known
        self._seen: set[str] = set()  # in this backward pass, by the hook
        # The rest belongs to the thread.
        self._groups: dict[tuple[str, ...], Group] = {}
        self._loaded: Optional[dict[str, Any]] = None
        self._passes_loaded = 0
        self._pass: list[_Job] = []  # those of this pass that have no answer yet: these two, and the one at work
        self._stepped: list[_Job] = []  # their step is done
        self._held: list[_Job] = []  # their parameters belong to groups that were saved, which differ
        self._steps: list[Group] = []  # those whose step is finished in this pass
        self._is_bad = False
        self._step = 0
        self.totals = Totals()
        _open_states.add(self)
        weakref.finalize(self, self._jobs.put, None).atexit = False  # a State that is freed ends its thread

    # --- names ---

    def bind(self, module: torch.nn.Module) -> State:
        """Gives the parameters the names that they have in ``module``: the DistributedDataParallel or what it wraps."""
        if self._names:
            raise RuntimeError("[torch] bind() must come before the first backward pass, and once")
        inner = module.module if isinstance(module, torch.nn.parallel.DistributedDataParallel) else module
        if inner is not module:
            self._model = weakref.ref(module)
        known = set()
        for name, parameter in inner.named_parameters():
            if parameter.requires_grad:
                self._parameters.append(parameter)
                self._names[id(parameter)] = name
                known.add(name)
        ignored = getattr(inner, "_ddp_params_and_buffers_to_ignore", ())
        self._all = frozenset(known - set(ignored))
        self._bound = True
        if self.exclude is not None and not callable(self.exclude):
            unknown = sorted(set(self.exclude) - known)
            if unknown:
                raise sparsewire.UsageError(f"[torch] exclude: the model has no parameter {', '.join(unknown)}")
        return self

    def _name(self, parameter: torch.Tensor) -> str:
        name = self._names.get(id(parameter))
        if name is not None:
            return name
        if self._bound:
            raise sparsewire.UsageError(
                "[torch] a bucket holds a parameter that was not in the model when the hook was registered"
            )
        if not self._names:
            warnings.warn(
                "sparsewire: this State knows no parameter names, so parameters are numbered by first appearance; "
                "use sparsewire.torch.register(), or state.bind(model)",
                stacklevel=2,
            )
        name = f"parameter{len(self._names)}"
        self._parameters.append(parameter)
        self._names[id(parameter)] = name
        return name

    def _is_dense(self, name: str, size: int, parameter: Optional[torch.Tensor]) -> bool:
        if size < self.options.min_compress_size:
            return True
        if self.exclude is None or parameter is None:
            return False
        return bool(self.exclude(name, parameter)) if callable(self.exclude) else name in self.exclude

    # --- the hook's side: autograd's thread ---

    def submit(self, bucket: Any) -> torch.futures.Future[torch.Tensor]:
        """What the hook does: hands a bucket to the thread. Never raises: the Future fails instead."""
        try:
            job = self._make_job(bucket)
        except Exception as raised:
            error = raised
            self.error = self.error or error
            failed = _Job(torch.empty(0), (), ())
            failed.fail(self._as_runtime_error(self.error))
            if self._transport is not None:
                self._transport.fail(str(self.error))
            if self._thread is not None:  # earlier buckets of this pass may be waiting for this one
                self._jobs.put((lambda: self._fail(error), queue.Queue()))
            return failed.future
        self._start()
        self._jobs.put(job)
        return job.future

    def _make_job(self, bucket: Any) -> _Job:
        if self.error is not None:
            raise self.error
        if self._closed:
            raise RuntimeError("[torch] this State was closed")
        if os.getpid() != self._pid:
            raise RuntimeError("[torch] this State belongs to the process that made it: register the hook after a fork")
        if not isinstance(bucket, dist.GradBucket):  # type: ignore[attr-defined]
            raise TypeError(
                f"[torch] the hook got a {type(bucket).__name__} instead of a bucket: torch.compile's Python reducer is "
                "not supported; set torch._dynamo.config.optimize_ddp = True or compile the inner module"
            )
        model = self._model() if self._model is not None else None
        if model is not None and getattr(getattr(model, "_join_config", None), "enable", False):
            raise RuntimeError("[torch] model.join() is not supported: give all ranks equally many batches")
        buffer = bucket.buffer()
        if buffer.is_sparse or buffer.layout != torch.strided:
            raise TypeError("[torch] sparse gradients are not supported: use Embedding(sparse=False)")
        if buffer.dtype not in _TYPES:
            raise TypeError(f"[torch] gradients of {buffer.dtype} are not supported: float32, bfloat16 or float16")
        parameters = bucket.parameters()
        names = tuple(self._name(parameter) for parameter in parameters)
        sizes = tuple(parameter.numel() for parameter in parameters)
        if sum(sizes) != buffer.numel():
            raise RuntimeError("[torch] the bucket's size is not that of its parameters")
        job = _Job(buffer.detach(), names, sizes)
        if self._all is None and self._seen & set(names):  # a new pass, without the end of the last one seen
            self._all = frozenset(self._seen)
            self._seen = set()
        job.first = not self._seen
        self._seen.update(names)
        job.last = self._seen >= self._all if self._all is not None else bucket.is_last()
        if job.last:
            if self._all is None:
                self._all = frozenset(self._seen)
            self._seen = set()
        if self.scaler is not None:
            if not self._bound:
                raise sparsewire.UsageError("[torch] with a scaler the State must know the model: state.bind(model)")
            if job.first:
                self._scale = float(self.scaler.get_scale())
            job.scale = self._scale
        return job

    def _as_runtime_error(self, error: Exception) -> RuntimeError:
        if isinstance(error, RuntimeError) and str(error).startswith("sparsewire on rank"):
            return error
        rank = dist.get_rank(self.process_group) if dist.is_initialized() else 0
        made = RuntimeError(f"sparsewire on rank {rank}: {type(error).__name__}: {error}")
        made.__cause__ = error
        return made

    # --- the thread ---

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=_run, args=(weakref.ref(self), self._jobs), daemon=True)
            self._thread.name = "sparsewire"
            self._thread.start()

    def _call(self, function: Any) -> Any:
        """Runs ``function`` on the thread, after all buckets; between backward passes."""
        if self.error is not None:
            raise self._as_runtime_error(self.error)
        if self._closed:
            raise RuntimeError("[torch] this State was closed")
        if os.getpid() != self._pid:
            raise RuntimeError("[torch] this State belongs to the process that made it, not to one that was forked")
        self._start()
        answer: queue.Queue[Any] = queue.Queue()
        self._jobs.put((function, answer))
        result, error = answer.get()
        if error is not None:
            raise error
        return result

    def _connect(self) -> None:
        if not self._connected:
            self._transport = connect(self.process_group, self.deadline)
            self._connected = True
            self._compare_options()

    def _compare_options(self) -> None:
        """What Workers do not compare by themselves, and what would end in confusion."""
        if self._transport is None:
            return
        own = {"start_step": self.options.start_step, "min_compress_size": self.options.min_compress_size}
        own["scaler"] = int(self.scaler is not None)
        if self._bound:
            parameters = ((self._names[id(parameter)], parameter) for parameter in self._parameters)
            dense = sorted(name for name, one in parameters if self._is_dense(name, one.numel(), one))
            own["exclude"] = zlib.crc32("\n".join(dense).encode())
        everyones = [json.loads(one) for one in self._transport.all_gather(json.dumps(own).encode())]
        for rank, other in enumerate(everyones):
            for name in other.keys() & everyones[0].keys():
                if other[name] != everyones[0][name]:
                    raise sparsewire.UsageError(f"[torch] rank {rank} was given another {name}= than rank 0")

    def _work(self, job: _Job) -> None:
        try:
            self._pass.append(job)
            if self.error is not None:
                raise self.error
            self._connect()
            if job.first:
                self._begin_pass()
            self._handle(job)
        except BaseException as error:  # also SystemExit: backward() must not wait for ever
            self._fail(error if isinstance(error, Exception) else RuntimeError(f"{type(error).__name__}: {error}"))

    def _fail(self, error: Exception) -> None:
        if self.error is None:
            self.error = error
            if self._transport is not None and not isinstance(error, (sparsewire.TransportError, sparsewire.BadGradient)):
                self._transport.fail(f"{type(error).__name__}: {error}")
        shown = self._as_runtime_error(self.error)
        for job in self._pass:
            job.fail(shown)
        self._pass = []

    def _begin_pass(self) -> None:
        if self._loaded is not None:
            self._make_loaded_groups()
        self._is_bad = False
        self._steps = []
        self._stepped = []
        self._held = []

    def _handle(self, job: _Job) -> None:
        if self._passes_loaded > 0 and job.names not in self._groups:
            self._held.append(job)
        else:
            job.group = self._group(job)
            if job.event is not None:
                job.event.synchronize()
                job.numbers = job.group.host(job.buffer)
                job.numbers.copy_(job.buffer)
            self._do_step(job)
            self._stepped.append(job)
        if self.scaler is not None and not job.last:
            return
        gathered = self._collect() if job.last and self._held else []
        for one in self._stepped + gathered:
            self._write_answer(one)
        answered, self._stepped = self._stepped, []
        if job.last:
            for one in self._held:
                self._spread(one, gathered)
            answered = answered + self._held
            self._end_pass()  # before backward() returns, so that stats() and state_dict() know of it
        for one in answered:
            self._pass.remove(one)
            one.complete()

    def _do_step(self, job: _Job) -> None:
        group = job.group
        assert group is not None
        if self._is_bad:
            return
        job.unused = self._find_unused(group, job.numbers)
        try:
            group.step(job.numbers, 1.0 / job.scale, self._step < self.options.start_step)
        except sparsewire.BadGradient as error:
            if self.scaler is None:
                name = next((t.name for t in group.tensors if t.start <= error.index < t.start + t.size), "?")
                raise sparsewire.BadGradient(f"{error} (parameter {name})", error.rank, error.step, error.index) from None
            for done in reversed(self._steps):
                done.take_back()
            self._steps = []
            self._is_bad = True
            return
        self._steps.append(group)

    def _write_answer(self, job: _Job) -> None:
        assert job.group is not None
        if self._is_bad:
            job.numbers.fill_(float("inf"))
        else:
            job.group.answer(job.numbers, job.scale, job.unused)

    def _end_pass(self) -> None:
        if self._is_bad:
            self.totals.skipped += 1
        else:
            self._step += 1
            size = self._transport.size if self._transport is not None else 1
            self.totals.add([stats for group in self._steps for stats in group.stats()], size)
            self.totals.host_copies += sum(1 for group in self._steps if group._host is not None)
        self._passes_loaded = max(0, self._passes_loaded - 1)
        if not self._held:  # DDP's buckets are the groups again
            self._passes_loaded = 0
        self._groups = {names: group for names, group in self._groups.items() if group.left}
        if self.metrics is not None:
            self._write_line()

    def _write_line(self) -> None:
        rank = self._transport.rank if self._transport is not None else 0
        assert self.metrics is not None
        with open(self.metrics.replace("{rank}", str(rank)), "a", encoding="utf-8") as file:
            line = {"step": self._step, "skipped": self._is_bad, "rank": rank, **self.totals.last}
            file.write(json.dumps(line) + "\n")

    # --- groups ---

    def _group(self, job: _Job) -> Group:
        group = self._groups.get(job.names)
        if group is not None and group.left:
            return group
        parameters = {self._names[id(parameter)]: parameter for parameter in self._parameters}
        group = self._make_group(job.names, job.sizes, parameters)
        before = [other for other in self._groups.values() if other.left & set(job.names)]
        if before:
            group.adopt(before)
        self._groups[job.names] = group
        return group

    def _make_group(self, names: Any, sizes: Any, parameters: dict[str, torch.Tensor]) -> Group:
        tensors, start = [], 0
        for name, size in zip(names, sizes):
            tensors.append(Tensor(name, start, size, self._is_dense(name, size, parameters.get(name))))
            start += size
        return Group(tensors, self.options, self._transport)

    def _find_unused(self, group: Group, numbers: torch.Tensor) -> list[Tensor]:
        """The tensors of which no rank has a gradient: DDP would not apply an update of them."""
        model = self._model() if self._model is not None else None
        if model is None or not (model.find_unused_parameters or model.static_graph):
            return []
        used = bytes(bool(tensor.of(numbers).any()) for tensor in group.tensors)
        everyones = [used] if self._transport is None else self._transport.all_gather(used)
        return [tensor for i, tensor in enumerate(group.tensors) if not any(flags[i] for flags in everyones)]

    def _collect(self) -> list[_Job]:
        """After loading: the gradients in the order of the groups that were saved, not of DDP's first buckets."""
        made = []
        at = {name: (job, i) for job in self._held for i, name in enumerate(job.names)}
        for group in self._groups.values():
            if group.names[0] not in at:
                continue  # a bucket is this group
            like = at[group.names[0]][0]
            gathered = _Job(torch.empty(0, dtype=like.buffer.dtype), group.names, tuple(t.size for t in group.tensors))
            gathered.group, gathered.scale, gathered.numbers = group, like.scale, group.host(like.buffer)
            for tensor in group.tensors:
                job, i = at[tensor.name]
                start = sum(job.sizes[:i])
                if job.event is not None:
                    job.event.synchronize()
                tensor.of(gathered.numbers).copy_(job.buffer[start : start + tensor.size])
            made.append(gathered)
        for gathered in made:
            self._do_step(gathered)
        return made

    @staticmethod
    def _spread(job: _Job, gathered: list[_Job]) -> None:
        where = {tensor.name: (one, tensor) for one in gathered if one.group for tensor in one.group.tensors}
        start = 0
        for name, size in zip(job.names, job.sizes):
            one, tensor = where[name]
            job.buffer[start : start + size].copy_(tensor.of(one.numbers))
            start += size

    # --- what users call between backward passes ---

    def _check_between_passes(self) -> None:
        if self._seen:
            raise RuntimeError("[torch] a backward pass is under way, or was broken off: call this between two of them")

    def retune(self, sparsifier: Optional[str] = None, **options: Any) -> None:
        """Other options from the next step on; memories are kept. Collective: all ranks must give the same.

        What can change is what ``Worker.retune`` allows: sparsifiers and their keys, decay, codecs, check_every.
        """
        self._check_between_passes()
        for name in ("start_step", "min_compress_size"):
            if options.get(name, getattr(self.options, name)) != getattr(self.options, name):
                raise sparsewire.UsageError(f"[torch] {name} cannot change after registration")
        changed = {**self.options.__dict__, **options}
        if sparsifier is not None:
            changed["sparsifier"] = sparsifier
        wanted = Options.make(changed)
        wanted.check(1 << 24)

        def do() -> None:
            self._connect()
            for group in self._groups.values():
                if group.worker is not None:
                    group.worker.retune(**wanted.for_worker())
                group.options = wanted
            self.options = wanted

        self._call(do)

    def stats(self) -> dict[str, Any]:
        """Bytes, density, norms and times: of the last backward pass, and in total."""
        return self.totals.as_dict()

    def write_scalars(self, writer: Any, step: Optional[int] = None) -> None:
        """Writes the numbers of the last backward pass to a ``torch.utils.tensorboard.SummaryWriter``."""
        for name, value in self.totals.last.items():
            if isinstance(value, (int, float)):
                writer.add_scalar(f"sparsewire/{name}", value, self._step if step is None else step)

    def _place(self) -> tuple[int, int]:
        """This rank, and the number of ranks; also after the process group is gone."""
        if self._transport is not None:
            return self._transport.rank, self._transport.size
        if dist.is_available() and dist.is_initialized():
            return dist.get_rank(self.process_group), dist.get_world_size(self.process_group)
        return 0, 1

    def memory(self) -> dict[str, torch.Tensor]:
        """What this rank has not sent yet, by parameter: flat copies. Empty before the first backward pass."""

        def do() -> dict[str, torch.Tensor]:
            found = {}
            for group in self._groups.values():
                for tensor in group.tensors:
                    if group.worker is not None and tensor.name in group.left:
                        found[tensor.name] = torch.empty(tensor.size)
                        group.worker.read_memory(tensor.name, found[tensor.name])
            return found

        return self._call(do)  # type: ignore[no-any-return]

    def state_dict(self) -> dict[str, Any]:
        """What this rank needs to go on: tensors, numbers and strings only. Save it on every rank.

        Call it between backward passes. The same number of ranks goes on bit for bit; ``consolidated_state_dict()`` can
        be loaded by any number.
        """

        self._check_between_passes()

        def do() -> dict[str, Any]:
            rank, size = self._place()
            saved: dict[str, Any] = {"format": _FORMAT, "world_size": size, "step": self._step}
            saved["options"] = self.options.to_json()
            if self._loaded is not None:  # loaded, and no backward pass since
                return dict(self._loaded)
            groups = [group for group in self._groups.values() if group.left]
            saved["groups"] = json.dumps([group.layout for group in groups])
            saved["totals"] = json.dumps(self.totals.save())
            for i, group in enumerate(groups):
                if group.worker is not None:
                    saved[f"group{i}"] = torch.frombuffer(bytearray(group.worker.save()), dtype=torch.uint8)
            return {f"rank{rank}": saved}

        return self._call(do)  # type: ignore[no-any-return]

    def consolidated_state_dict(self) -> dict[str, Any]:
        """The states of all ranks, on every rank, for another number of ranks. Collective."""
        own = io.BytesIO(_CONSOLIDATED)
        own.seek(0, io.SEEK_END)
        torch.save(self.state_dict(), own)

        def do() -> dict[str, Any]:
            self._connect()
            everyones = [own.getvalue()] if self._transport is None else self._transport.all_gather(own.getvalue())
            merged: dict[str, Any] = {}
            for rank, one in enumerate(everyones):
                if not one.startswith(_CONSOLIDATED):
                    raise RuntimeError(
                        f"[torch] rank {rank} is not in consolidated_state_dict(): all ranks must call it, between two "
                        "backward passes"
                    )
                merged.update(torch.load(io.BytesIO(one[len(_CONSOLIDATED) :])))
            return merged

        return self._call(do)  # type: ignore[no-any-return]

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from ``state_dict()`` of this rank, or from ``consolidated_state_dict()``. All ranks must load.

        The options must be those with which it was saved; ``retune()`` can change them afterwards. Raises UsageError, and
        changes nothing, if the state is of another rank, or of another number of ranks and not consolidated. Whether it
        fits the model and the options is found in the next backward pass.
        """
        self._check_between_passes()
        rank, size = self._place()
        ranks = {key: value for key, value in state.items() if key.startswith("rank")}
        if not ranks:
            raise sparsewire.UsageError("[torch] this is not what State.state_dict() returned")
        one = next(iter(ranks.values()))
        if one.get("format") != _FORMAT:
            raise sparsewire.UsageError(f"[torch] the state has format {one.get('format')}; this version reads {_FORMAT}")
        world = int(one["world_size"])
        if world == size and f"rank{rank}" in ranks:
            kept = {f"rank{rank}": ranks[f"rank{rank}"]}
        elif world == size and len(ranks) == 1:
            raise sparsewire.UsageError(
                f"[torch] this is the state of {next(iter(ranks))}, and this is rank {rank}: save state_dict() on every "
                "rank, or consolidated_state_dict() once"
            )
        elif len(ranks) == world:
            kept = {f"rank{r}": ranks[f"rank{r}"] for r in range(world)}
        else:
            raise sparsewire.UsageError(
                f"[torch] the state is of {world} ranks, and here are {size} (this is rank {rank}): save "
                "consolidated_state_dict(), which any number of ranks can load"
            )

        if not self._bound:
            self._all = frozenset(name for layout in json.loads(one["groups"]) for name, _ in layout)

        def do() -> None:
            self._loaded = kept

        self._call(do)

    def _make_loaded_groups(self) -> None:
        assert self._loaded is not None
        states, self._loaded = self._loaded, None
        one = next(iter(states.values()))
        layouts = json.loads(one["groups"])
        parameters = {self._names[id(parameter)]: parameter for parameter in self._parameters}
        known = self._all if self._all is not None else set(parameters)
        saved = {name for layout in layouts for name, _ in layout}
        if self._all is not None and saved != set(known):
            differing = sorted(saved ^ set(known))[:3]
            raise sparsewire.UsageError(f"[torch] the state is of another model: it differs in {', '.join(differing)}")
        self._groups = {}
        for i, layout in enumerate(layouts):
            names = tuple(name for name, _ in layout)
            for name, numel in layout:
                if name in parameters and parameters[name].numel() != numel:
                    raise sparsewire.UsageError(
                        f"[torch] the state is of another model: {name} had {numel} entries, and has "
                        f"{parameters[name].numel()}"
                    )
            group = self._make_group(names, [numel for _, numel in layout], parameters)
            if f"group{i}" in one:
                saved_workers = [bytes(state[f"group{i}"].numpy().tobytes()) for state in states.values()]
                group.make_worker().load(saved_workers)
            self._groups[names] = group
        self._step = int(one["step"])
        rank = self._transport.rank if self._transport is not None else 0
        self.totals = Totals.load(json.loads(states.get(f"rank{rank}", one)["totals"]))
        self._passes_loaded = _PASSES_UNTIL_REGROUPED

    def close(self) -> None:
        """Ends the thread and the connections. The State cannot be used after it. Called at exit."""
        if self._closed or os.getpid() != self._pid:
            return
        self._closed = True
        if self._thread is not None and self._thread is not threading.current_thread():
            self._jobs.put(None)
            self._thread.join(0.5)
            if self._thread.is_alive() and self._transport is not None:
                self._transport.fail("the process closes its State")
                self._thread.join(5)
        self._groups = {}
        self._transport = None

    def __repr__(self) -> str:
        return f"<sparsewire.torch.State {self.options.sparsifier}, {self.totals.steps} steps>"

    def __getstate__(self) -> dict[str, Any]:
        saved: dict[str, Any] = {name: getattr(self, name) for name in ("options", "exclude", "deadline", "metrics")}
        if self._groups or self._loaded:
            buffer = io.BytesIO()
            torch.save(self.state_dict(), buffer)
            saved["state"] = base64.b64encode(buffer.getvalue()).decode()
        return saved

    def __setstate__(self, saved: dict[str, Any]) -> None:
        state = saved.pop("state", None)
        self.process_group, self.scaler = None, None
        self.__dict__.update(saved)
        self._reset()
        if state is not None:
            self.load_state_dict(torch.load(io.BytesIO(base64.b64decode(state))))


def _run(state_of: weakref.ref[State], jobs: queue.Queue[Any]) -> None:
    while True:
        job = jobs.get()
        if job is None:
            return
        state = state_of()
        if state is None:
            if isinstance(job, _Job):
                job.fail(RuntimeError("sparsewire: the State is gone"))
            return
        if isinstance(job, _Job):
            state._work(job)
        else:
            _answer(*job)
        del state, job  # so that the State can be freed


def _answer(function: Any, answer: queue.Queue[Any]) -> None:
    try:
        answer.put((function(), None))
    except BaseException as error:
        answer.put((None, error))


@atexit.register
def _close_all() -> None:
    for state in list(_open_states):
        state.close()
