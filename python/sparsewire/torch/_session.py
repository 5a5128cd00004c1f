"""What users hold of an exchange, whatever it is for: State (the hook) and LocalSteps have this in common."""

from __future__ import annotations

import atexit
import weakref
from typing import Any, Callable, Optional

import torch
import torch.distributed as dist

import sparsewire

from . import _saved
from ._options import Exclude, Options
from ._passes import Passes
from ._stages import Stages, wait_for_threads

_CONSOLIDATED = b"sparsewire consolidated state\n"  # before what ranks send each other for it
_open_sessions: weakref.WeakSet[Session] = weakref.WeakSet()


def check_common(exclude: Exclude, deadline: float, scaler: Any) -> None:
    if not (isinstance(deadline, (int, float)) and 0.001 <= deadline <= 3.6e7):
        raise sparsewire.UsageError(f"[torch] deadline={deadline!r} is not a number of seconds in [0.001, 36,000,000]")
    if isinstance(exclude, str):
        raise TypeError(f"[torch] exclude={exclude!r} is one string: give a list of names, or a function")
    if scaler is not None and not callable(getattr(scaler, "get_scale", None)):
        raise TypeError(f"[torch] scaler={scaler!r} is no GradScaler")


class Session:
    """Threads, connections and statistics. All of it is made by _open()."""

    process_group: Optional[dist.ProcessGroup]
    _passes: Passes
    _stages: Stages

    def _open(self, passes: Passes, deadline: float) -> None:
        self._passes = passes  # belongs to the threads
        self._stages = Stages(passes, self.process_group, deadline, type(self).__name__)
        _open_sessions.add(self)
        weakref.finalize(self, self._stages.stop).atexit = False  # what is freed ends its threads

    @property
    def error(self) -> Optional[Exception]:
        """What ended the training; after it this object must not be used again."""
        return self._stages.error

    @property
    def options(self) -> Options:
        """Those in force."""
        return self._passes.options

    def _call(self, function: Callable[[], Any]) -> Any:
        return self._stages.call(function)

    def _connect(self) -> None:
        self._stages.connect()

    def stats(self) -> dict[str, Any]:
        """Bytes, density, norms and times. Waits for an exchange that is under way.

        Returns:
            Totals are ``steps`` (backward passes of the hook, exchanges of LocalSteps), ``skipped``, ``seconds``,
            ``bytes_up`` and ``bytes_down`` (frames that this rank sent and received as a worker), ``bytes_served``
            (what it handled as a server), ``bytes_dense`` (what an all-reduce of f32 would have sent and received in as
            many steps), ``factor_against_dense`` (``bytes_dense`` over the three before it), ``host_copies``,
            ``device``. Under ``last``, of the last one: the same bytes, ``dense_bytes`` (the size of the gradient),
            ``entries_sent`` by this rank, ``entries_total`` in the update of all, ``density`` (its share of all
            entries), ``sent_norm``, ``memory_norm``, and ``seconds_sift``, ``seconds_encode``, ``seconds_exchange``,
            ``seconds_decode``, ``seconds_merge``, ``seconds_apply``.
        """
        self._stages.settle()
        return self._passes.totals.as_dict()

    def write_scalars(self, writer: Any, step: Optional[int] = None) -> None:
        """Writes the numbers of the last exchange to a ``torch.utils.tensorboard.SummaryWriter``."""
        self._stages.settle()
        for name, value in self._passes.totals.last.items():
            if isinstance(value, (int, float)):
                writer.add_scalar(f"sparsewire/{name}", value, self._passes.steps_done if step is None else step)

    def record(self, **numbers: float) -> None:
        """Writes numbers of your own, such as the loss, as a line of the metrics: ``record(loss=loss)``.

        Call it between two steps: the line has the number of steps done. The names ``loss``, ``train_loss``,
        ``test_loss``, ``test_accuracy`` and the like come first in reports. Does nothing without ``metrics=``.

        Args:
            numbers: By name. Tensors of one entry are taken as numbers.

        Raises:
            UsageError: The metrics have a number of this name already.
        """
        if not self._is_busy:
            self._stages.settle()
        taken = {"step", "rank", "skipped", *self._passes.totals.so_far(), *self._passes.totals.last} & numbers.keys()
        if taken:
            raise sparsewire.UsageError(f"[torch] the metrics have a {min(taken)} already: give it another name")
        # A loss has a gradient, and PyTorch warns of a tensor that is taken out of its graph without detach().
        plain = {name: value.detach() if isinstance(value, torch.Tensor) else value for name, value in numbers.items()}
        given = {**self._where(), **{name: float(value) for name, value in plain.items()}}
        rank, _ = self._place()
        wait = self._stages.begin(lambda: self._passes.record(given, rank))
        if not self._is_busy:
            wait()

    @property
    def _is_busy(self) -> bool:
        """Whether the thread has something for which nobody should wait now."""
        return False

    def _place(self) -> tuple[int, int]:
        """This rank, and the number of ranks; also after the process group is gone."""
        if self._passes.transport is not None:
            return self._passes.transport.rank, self._passes.transport.size
        if dist.is_available() and dist.is_initialized():
            return dist.get_rank(self.process_group), dist.get_world_size(self.process_group)
        return 0, 1

    def _where(self) -> dict[str, int]:
        """What a line of the metrics says of it."""
        return {}

    def _check_quiet(self) -> None:
        """Raises RuntimeError in the middle of something."""

    def retune(
        self,
        sparsifier: Optional[str] = None,
        *,
        downlink: Optional[str] = None,
        codec: Optional[str] = None,
        downlink_codec: Optional[str] = None,
        feedback: Optional[str] = None,
        check_every: Optional[int] = None,
        threads: Optional[int] = None,
    ) -> None:
        """Other options from the next exchange on; memories are kept. Collective: all ranks must give the same.

        What can change is what ``Worker.retune`` allows: sparsifiers and their keys, decay, codecs, check_every. What is not
        given stays.

        Args:
            sparsifier: As for ``register()``, like all others.

        Raises:
            UsageError: An option cannot change to this.
        """
        self._check_quiet()
        wanted = self.options.changed(
            sparsifier=sparsifier,
            downlink=downlink,
            codec=codec,
            downlink_codec=downlink_codec,
            feedback=feedback,
            check_every=check_every,
            threads=threads,
        )

        def do() -> None:
            self._connect()
            self._passes.retune(wanted)

        self._call(do)

    def _gather(self, state: dict[str, Any]) -> dict[str, Any]:
        """The states of all ranks as one, on every rank. Collective."""
        own = _CONSOLIDATED + _saved.to_bytes(state)

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

    def _end(self) -> None:
        self._stages.close()


@atexit.register
def _close_all() -> None:
    for session in list(_open_sessions):
        session._end()
    wait_for_threads()
