"""State: what users hold of a hook."""

from __future__ import annotations

import atexit
import base64
import io
import weakref
from typing import Any, Callable, Optional

import torch
import torch.distributed as dist

import sparsewire

from . import _saved
from ._buckets import Buckets
from ._options import Exclude, Options
from ._parameters import Parameters
from ._passes import Passes
from ._stages import Stages, wait_for_threads

_CONSOLIDATED = b"sparsewire consolidated state\n"  # before what ranks send each other for it
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
        if isinstance(exclude, str):
            raise TypeError(f"[torch] exclude={exclude!r} is one string: give a list of names, or a function")
        if scaler is not None and not callable(getattr(scaler, "get_scale", None)):
            raise TypeError(f"[torch] scaler={scaler!r} is no GradScaler")
        chosen = Options.make({"sparsifier": sparsifier, **options})
        chosen.check(1 << 24)
        self.process_group = process_group
        self.exclude = exclude
        self.scaler = scaler
        self.deadline = deadline
        self.metrics = metrics
        self._reset(chosen)

    def _reset(self, options: Options) -> None:
        self._parameters = Parameters(self.exclude, options.min_compress_size)
        self._buckets = Buckets(self._parameters, self.scaler)
        self._passes = Passes(options, self._parameters, self.scaler, self.metrics)  # belongs to the threads
        self._stages = Stages(self._passes, self.process_group, self.deadline)
        _open_states.add(self)
        weakref.finalize(self, self._stages.stop).atexit = False  # a State that is freed ends its threads

    @property
    def error(self) -> Optional[Exception]:
        """What ended the training; after it the State must not be used again."""
        return self._stages.error

    @property
    def options(self) -> Options:
        """Those in force."""
        return self._passes.options

    def bind(self, module: torch.nn.Module) -> State:
        """Gives the parameters the names that they have in ``module``: the DistributedDataParallel or what it wraps.

        Without a process group of its own the State uses that of a DistributedDataParallel.
        """
        self._parameters.bind(module)
        ddp = module if isinstance(module, torch.nn.parallel.DistributedDataParallel) else None
        if ddp is not None and self.process_group is None and ddp.process_group is not dist.group.WORLD:
            self.process_group = self._stages.group = ddp.process_group
        if self._passes.loaded is not None:
            _saved.check_names(self._passes.loaded, self._parameters)
        return self

    def submit(self, bucket: Any) -> torch.futures.Future[torch.Tensor]:
        """What the hook does: hands a bucket to the threads. Never raises: the Future fails instead."""
        try:
            self._stages.check_usable()
            job = self._buckets.make_job(bucket)
        except Exception as error:
            return self._stages.refuse(error).future
        self._stages.put(job)
        return job.future

    def _call(self, function: Callable[[], Any]) -> Any:
        return self._stages.call(function)

    def _connect(self) -> None:
        self._stages.connect()

    # --- what users call between backward passes ---

    def _check_between_passes(self) -> None:
        if self._buckets.is_in_pass:
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
            self._passes.retune(wanted)

        self._call(do)

    def stats(self) -> dict[str, Any]:
        """Bytes, density, norms and times: of the last backward pass, and in total."""
        self._stages.settle()
        return self._passes.totals.as_dict()

    def write_scalars(self, writer: Any, step: Optional[int] = None) -> None:
        """Writes the numbers of the last backward pass to a ``torch.utils.tensorboard.SummaryWriter``."""
        self._stages.settle()
        for name, value in self._passes.totals.last.items():
            if isinstance(value, (int, float)):
                writer.add_scalar(f"sparsewire/{name}", value, self._passes.steps_done if step is None else step)

    def record(self, **numbers: float) -> None:
        """Writes numbers of your own, such as the loss, as a line of the metrics: ``state.record(loss=loss)``.

        Call it between backward passes: the line has the number of steps done. The names ``loss``, ``train_loss``,
        ``test_loss``, ``test_accuracy`` and the like come first in reports. Does nothing without ``metrics=``.
        """
        self._stages.settle()
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

        Empty before the first backward pass. After load_state_dict() it is there again after the next one.
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
        own = _CONSOLIDATED + _saved.to_bytes(self.state_dict())

        def do() -> dict[str, Any]:
            self._connect()
            transport = self._passes.transport
            everyones = [own] if transport is None else transport.all_gather(own)
            merged: dict[str, Any] = {}
            for rank, one in enumerate(everyones):
                if not one.startswith(_CONSOLIDATED):
                    raise RuntimeError(
                        f"[torch] rank {rank} is not in consolidated_state_dict(): all ranks must call it, between two "
                        "backward passes"
                    )
                try:
                    merged.update(_saved.from_bytes(one[len(_CONSOLIDATED) :]))
                except ValueError as error:
                    raise sparsewire.TransportError(
                        f"[torch] what rank {rank} sent for consolidated_state_dict() is damaged: {error}", rank
                    ) from None
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
        self._call(lambda: self._passes.load(chosen, rank))
        if not self._parameters.is_bound and names:
            self._parameters.all = names

    def close(self) -> None:
        """Ends the thread and the connections. The State cannot be used after it. Called at exit."""
        self._stages.close()

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
            self.load_state_dict(torch.load(io.BytesIO(base64.b64decode(state)), weights_only=True))


@atexit.register
def _close_all() -> None:
    for state in list(_open_states):
        state.close()
    wait_for_threads()
