"""State: what users hold of a hook, and the thread that does its work."""

from __future__ import annotations

import atexit
import base64
import io
import os
import queue
import threading
import weakref
from typing import Any, Callable, Optional

import torch
import torch.distributed as dist

import sparsewire

from . import _saved
from ._job import Job
from ._line import Line
from ._options import Exclude, Options
from ._parameters import Parameters
from ._passes import Passes

_CONSOLIDATED = b"sparsewire consolidated state\n"  # before what ranks send each other for it
_TYPES = (torch.float32, torch.bfloat16, torch.float16)
_open_states: weakref.WeakSet[State] = weakref.WeakSet()


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

    Steps are counted from 1: in metrics ``step`` is the number of steps done, and messages name the one that failed.

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
        if not (isinstance(deadline, (int, float)) and 0.001 <= deadline <= 3.6e7):
            raise sparsewire.UsageError(f"[torch] deadline={deadline!r} is not a number of seconds in [0.001, 36,000,000]")
        chosen = Options.make({"sparsifier": sparsifier, **options})
        chosen.check(1 << 24)
        self.process_group = process_group
        self.exclude = exclude
        self.scaler = scaler
        self.deadline = deadline
        self.metrics = metrics
        self._reset(chosen)

    def _reset(self, options: Options) -> None:
        self.error: Optional[Exception] = None
        self._pid = os.getpid()
        self._closed = False
        self._jobs: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._begun = Line()  # buckets that are sifted
        self._exchanged = Line()  # those that wait for their answer
        self._threads: list[threading.Thread] = []
        self._parameters = Parameters(self.exclude, options.min_compress_size)
        self._seen: set[str] = set()  # in this backward pass, by the hook
        self._passes = Passes(options, self._parameters, self.scaler, self.metrics)  # belongs to the thread
        _open_states.add(self)
        weakref.finalize(self, self._jobs.put, None).atexit = False  # a State that is freed ends its thread

    @property
    def options(self) -> Options:
        """Those in force."""
        return self._passes.options

    def bind(self, module: torch.nn.Module) -> State:
        """Gives the parameters the names that they have in ``module``: the DistributedDataParallel or what it wraps."""
        self._parameters.bind(module)
        if self._passes.loaded is not None:
            _saved.check_names(self._passes.loaded, self._parameters)
        return self

    # --- the hook's side: autograd's thread ---

    def submit(self, bucket: Any) -> torch.futures.Future[torch.Tensor]:
        """What the hook does: hands a bucket to the thread. Never raises: the Future fails instead."""
        try:
            job = self._make_job(bucket)
        except Exception as raised:
            error = raised
            self.error = self.error or error
            failed = Job(torch.empty(0), (), ())
            failed.fail(self._as_runtime_error(self.error))
            if self._passes.transport is not None:
                self._passes.transport.fail(str(self.error))
            if self._threads:  # earlier buckets of this pass may be waiting for this one
                self._jobs.put((lambda: self._fail(error), queue.SimpleQueue()))
            return failed.future
        self._start()
        self._jobs.put(job)
        return job.future

    def _make_job(self, bucket: Any) -> Job:
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
        model = self._parameters.model()
        if model is not None and getattr(getattr(model, "_join_config", None), "enable", False):
            raise RuntimeError("[torch] model.join() is not supported: give all ranks equally many batches")
        buffer = bucket.buffer()
        if buffer.is_sparse or buffer.layout != torch.strided:
            raise TypeError("[torch] sparse gradients are not supported: use Embedding(sparse=False)")
        if buffer.dtype not in _TYPES:
            raise TypeError(f"[torch] gradients of {buffer.dtype} are not supported: float32, bfloat16 or float16")
        known = self._parameters
        parameters = bucket.parameters()
        names = tuple(self._parameters.name(parameter) for parameter in parameters)
        sizes = tuple(parameter.numel() for parameter in parameters)
        if sum(sizes) != buffer.numel():
            raise RuntimeError("[torch] the bucket's size is not that of its parameters")
        job = Job(buffer.detach(), names, sizes)
        if known.all is None and self._seen & set(names):  # a new pass, without the end of the last one seen
            known.all = frozenset(self._seen)
            self._seen = set()
        job.first = not self._seen
        self._seen.update(names)
        job.last = self._seen >= known.all if known.all is not None else bucket.is_last()
        if job.last:
            if known.all is None:
                known.all = frozenset(self._seen)
            self._seen = set()
        if self.scaler is not None:
            if not known.is_bound:
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

    # --- the threads: the first one does everything, or hands buckets on to the others ---

    def _start(self) -> None:
        if self._threads:
            return
        this = weakref.ref(self)
        todo: dict[str, tuple[Any, ...]] = {
            "sparsewire": (_run, this, self._jobs, self._begun),
            "sparsewire exchange": (_run_stage, this, State._exchange, self._begun, self._exchanged),
            "sparsewire answer": (_run_stage, this, State._answer, self._exchanged, None),
        }
        for name, (function, *arguments) in todo.items():
            thread = threading.Thread(target=function, args=arguments, daemon=True, name=name)
            self._threads.append(thread)
            thread.start()

    def _drain(self) -> None:
        """On the first thread: waits until the others are idle."""
        self._begun.wait_until_idle()
        self._exchanged.wait_until_idle()

    def _call(self, function: Any) -> Any:
        """Runs ``function`` on the thread, after all buckets; between backward passes."""
        if self.error is not None:
            raise self._as_runtime_error(self.error)
        if self._closed:
            raise RuntimeError("[torch] this State was closed")
        if os.getpid() != self._pid:
            raise RuntimeError("[torch] this State belongs to the process that made it, not to one that was forked")
        self._start()
        answer: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._jobs.put((function, answer))
        result, error = answer.get()
        if error is not None:
            raise error
        return result

    def _connect(self) -> None:
        self._passes.connect(self.process_group, self.deadline)

    def _work(self, job: Job) -> None:
        try:
            self._passes.waiting.append(job)
            if job.first:
                self._drain()  # the end of the last pass
            self._check_error()
            self._connect()
            # Alone there are no messages to wait for, and handing over takes longer than it saves.
            if self._passes.transport is not None and self._passes.can_begin(job):
                self._passes.begin(job)
                if job.last and self._begun.is_idle:  # nothing is left to do beside it
                    self._exchange(job)
                else:
                    self._begun.put(job)
                return
            self._drain()
            self._check_error()
            self._passes.take(job)
        except BaseException as error:  # also SystemExit: backward() must not wait for ever
            self._fail_with(job, error)

    def _exchange(self, job: Job) -> None:
        try:
            self._check_error()
            self._passes.exchange(job)
            if job.last and self._exchanged.is_idle:
                self._answer(job)
            else:
                self._exchanged.put(job)
        except BaseException as error:
            self._fail_with(job, error)

    def _answer(self, job: Job) -> None:
        try:
            self._check_error()
            self._passes.answer(job)
        except BaseException as error:
            self._fail_with(job, error)

    def _check_error(self) -> None:
        if self.error is not None:
            raise self.error

    def _fail_with(self, job: Job, error: BaseException) -> None:
        self._fail(error if isinstance(error, Exception) else RuntimeError(f"{type(error).__name__}: {error}"))
        assert self.error is not None
        job.fail(self._as_runtime_error(self.error))  # it may have come after the others had failed

    def _fail(self, error: Exception) -> None:
        if self.error is None:
            self.error = error
            transport = self._passes.transport
            if transport is not None and not isinstance(error, (sparsewire.TransportError, sparsewire.BadGradient)):
                transport.fail(f"{type(error).__name__}: {error}")
        shown = self._as_runtime_error(self.error)
        for job in list(self._passes.waiting):
            job.fail(shown)
        self._passes.waiting = []

    # --- what users call between backward passes ---

    def _check_between_passes(self) -> None:
        if self._seen:
            raise RuntimeError("[torch] a backward pass is under way, or was broken off: call this between two of them")

    def _settle(self) -> None:
        """Waits until the threads have done what they were given."""
        is_own = threading.current_thread() in self._threads
        if self._threads and not is_own and not self._closed and os.getpid() == self._pid:
            answer: queue.SimpleQueue[Any] = queue.SimpleQueue()
            self._jobs.put((lambda: None, answer))
            answer.get()

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
            self._passes.retune(wanted)

        self._call(do)

    def stats(self) -> dict[str, Any]:
        """Bytes, density, norms and times: of the last backward pass, and in total."""
        self._settle()
        return self._passes.totals.as_dict()

    def write_scalars(self, writer: Any, step: Optional[int] = None) -> None:
        """Writes the numbers of the last backward pass to a ``torch.utils.tensorboard.SummaryWriter``."""
        self._settle()
        for name, value in self._passes.totals.last.items():
            if isinstance(value, (int, float)):
                writer.add_scalar(f"sparsewire/{name}", value, self._passes.steps_done if step is None else step)

    def record(self, **numbers: float) -> None:
        """Writes numbers of your own, such as the loss, as a line of the metrics: ``state.record(loss=loss)``.

        Call it between backward passes: the line has the number of steps done. The names ``loss``, ``train_loss``,
        ``test_loss``, ``test_accuracy`` and the like come first in reports. Does nothing without ``metrics=``.
        """
        self._settle()
        taken = {"step", "rank", "skipped", *self._passes.totals.so_far(), *self._passes.totals.last} & numbers.keys()
        if taken:
            raise sparsewire.UsageError(f"[torch] the metrics have a {min(taken)} already: give it another name")
        # A loss has a gradient, and PyTorch warns of a tensor that is taken out of its graph without detach().
        plain = {name: value.detach() if isinstance(value, torch.Tensor) else value for name, value in numbers.items()}
        given = {name: float(value) for name, value in plain.items()}
        rank, _ = self._place()
        self._call(lambda: self._passes.record(given, rank))

    def _place(self) -> tuple[int, int]:
        """This rank, and the number of ranks; also after the process group is gone."""
        if self._passes.transport is not None:
            return self._passes.transport.rank, self._passes.transport.size
        if dist.is_available() and dist.is_initialized():
            return dist.get_rank(self.process_group), dist.get_world_size(self.process_group)
        return 0, 1

    def memory(self) -> dict[str, torch.Tensor]:
        """What this rank has not sent yet, by parameter: flat copies; zeros for parameters that go densely.

        Empty before the first backward pass.
        """
        return self._call(self._passes.memory)  # type: ignore[no-any-return]

    def state_dict(self) -> dict[str, Any]:
        """What this rank needs to go on: tensors, numbers and strings only. Save it on every rank.

        Call it between backward passes. The same number of ranks goes on bit for bit; ``consolidated_state_dict()`` can
        be loaded by any number.
        """
        self._check_between_passes()
        rank, size = self._place()
        return self._call(lambda: self._passes.save(rank, size))  # type: ignore[no-any-return]

    def consolidated_state_dict(self) -> dict[str, Any]:
        """The states of all ranks, on every rank, for another number of ranks. Collective."""
        own = io.BytesIO(_CONSOLIDATED)
        own.seek(0, io.SEEK_END)
        torch.save(self.state_dict(), own)

        def do() -> dict[str, Any]:
            self._connect()
            transport = self._passes.transport
            everyones = [own.getvalue()] if transport is None else transport.all_gather(own.getvalue())
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
        changes nothing, if the state is damaged, is of another rank, of another number of ranks and not consolidated, of
        another model, or was saved with other options. What is found in the next backward pass only: that not all ranks
        have loaded states of the same step; with FSDP2 the sizes of parameters; and, if this State is not bound, names and
        sizes.
        """
        self._check_between_passes()
        rank, size = self._place()
        chosen = _saved.choose(state, rank, size, self.options)
        _saved.check_names(chosen, self._parameters)
        _saved.check_memories(chosen, self.options)
        names = _saved.names_of(next(iter(chosen.values())))
        if not self._parameters.is_bound and names:
            self._parameters.all = names

        def do() -> None:
            self._passes.loaded = chosen

        self._call(do)

    def close(self) -> None:
        """Ends the thread and the connections. The State cannot be used after it. Called at exit."""
        if self._closed or os.getpid() != self._pid:
            return
        self._closed = True
        if self._threads and threading.current_thread() not in self._threads:
            self._jobs.put(None)
            for thread in self._threads:
                thread.join(0.5)
            if any(thread.is_alive() for thread in self._threads) and self._passes.transport is not None:
                self._passes.transport.fail("the process closes its State")
                for thread in self._threads:
                    thread.join(5)
        self._passes.groups = {}
        self._passes.stepped = []
        self._passes.transport = None

    def __repr__(self) -> str:
        return f"<sparsewire.torch.State {self.options.sparsifier}, {self._passes.totals.steps} steps>"

    def __getstate__(self) -> dict[str, Any]:
        saved: dict[str, Any] = {name: getattr(self, name) for name in ("options", "exclude", "deadline", "metrics")}
        if self._passes.groups or self._passes.loaded:
            buffer = io.BytesIO()
            torch.save(self.state_dict(), buffer)
            saved["state"] = base64.b64encode(buffer.getvalue()).decode()
        return saved

    def __setstate__(self, saved: dict[str, Any]) -> None:
        state, options = saved.pop("state", None), saved.pop("options")
        self.process_group, self.scaler = None, None
        self.__dict__.update(saved)
        self._reset(options)
        if state is not None:
            self.load_state_dict(torch.load(io.BytesIO(base64.b64decode(state))))


def _run(state_of: weakref.ref[State], jobs: queue.SimpleQueue[Any], begun: Line) -> None:
    """The first thread."""
    while True:
        job = jobs.get()
        state = state_of()
        if job is None or state is None:
            if isinstance(job, Job):
                job.fail(RuntimeError("sparsewire: the State is gone"))
            begun.put(None)
            return
        if isinstance(job, Job):
            state._work(job)
        else:
            state._drain()
            _reply(*job)
        del state, job  # so that the State can be freed


def _run_stage(
    state_of: weakref.ref[State],
    work: Callable[[State, Job], None],
    jobs: Line,
    later: Optional[Line],
) -> None:
    """The other threads."""
    while True:
        job = jobs.get()
        if job is None:
            if later is not None:
                later.put(None)
            return
        state = state_of()
        if state is None:
            job.fail(RuntimeError("sparsewire: the State is gone"))
        else:
            work(state, job)
        del state, job
        jobs.done()


def _reply(function: Any, answer: queue.SimpleQueue[Any]) -> None:
    try:
        answer.put((function(), None))
    except BaseException as error:
        answer.put((None, error))


@atexit.register
def _close_all() -> None:
    for state in list(_open_states):
        state.close()
