"""State: what users hold of a hook."""

from __future__ import annotations

import base64
import io
from typing import Any, Optional

import torch
import torch.distributed as dist

from . import _saved
from ._buckets import Buckets
from ._options import Exclude, Options
from ._parameters import Parameters
from ._passes import Passes
from ._session import Session, check_common



class State(Session):
    """What the hook needs and remembers, for ``model.register_comm_hook(sparsewire.torch.State(...), sparsewire.torch.hook)``.

    ``sparsewire.torch.register(model, ...)`` does the same in one line, and gives the parameters their names.

    All other arguments are those of ``register()``. Steps are counted from 1: in metrics ``step`` is the number of steps done,
    and messages name the one that failed.

    Args:
        process_group: The ranks that exchange gradients; None: all. It is used to exchange addresses only: the ranks are
            connected over TCP by themselves, by ``register()`` or at the first bucket.

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
        exchange: str = "sharded",
        downlink: Optional[str] = None,
        codec: str = "auto",
        downlink_codec: Optional[str] = None,
        feedback: str = "ef",
        scope: str = "model",
        seed: int = 0,
        check_every: int = 100,
        threads: int = 1,
        start_step: int = 0,
        min_compress_size: int = 0,
        exclude: Exclude = None,
        scaler: Optional[Any] = None,
        deadline: float = 300.0,
        metrics: Optional[str] = None,
    ) -> None:
        options = Options.of(locals())
        check_common(exclude, deadline, scaler)
        options.check()
        self.process_group = process_group
        self.exclude = exclude
        self.scaler = scaler
        self.deadline = deadline
        self.metrics = metrics
        self._reset(options)

    def _reset(self, options: Options) -> None:
        self._parameters = Parameters(self.exclude, options.min_compress_size)
        self._buckets = Buckets(self._parameters, self.scaler)
        self._open(Passes(options, self._parameters, self.scaler, self.metrics), self.deadline)

    def bind(self, module: torch.nn.Module) -> State:
        """Gives the parameters the names that they have in ``module``: the DistributedDataParallel or what it wraps.

        Without a process group of its own the State uses that of a DistributedDataParallel.

        Raises:
            UsageError: A state was loaded, and its parameters have other names or sizes.
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

    # --- what users call between backward passes ---

    def _check_quiet(self) -> None:
        if self._buckets.is_in_pass:
            raise RuntimeError("[torch] a backward pass is under way, or was broken off: call this between two of them")

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
        self._check_quiet()
        rank, size = self._place()
        return self._call(lambda: self._passes.save(rank, size))  # type: ignore[no-any-return]

    def consolidated_state_dict(self) -> dict[str, Any]:
        """The states of all ranks, on every rank, for another number of ranks. Collective."""
        return self._gather(self.state_dict())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from ``state_dict()`` of this rank, or from ``consolidated_state_dict()``. All ranks must load.

        The options must be those with which it was saved; ``retune()`` can change them afterwards. What is found in the next
        backward pass only: that not all ranks have loaded states of the same step; with FSDP2 the sizes of parameters; and,
        if this State is not bound, names and sizes. A state is for the parameters that had gradients.

        Args:
            state: What ``state_dict()`` or ``consolidated_state_dict()`` returned; not the whole checkpoint.

        Raises:
            UsageError: The state is damaged, is of another rank, of another number of ranks and not consolidated, of another
                model, or was saved with other options. Nothing has changed then.
        """
        self._check_quiet()
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
        self._end()

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
