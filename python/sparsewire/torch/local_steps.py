"""LocalSteps: many steps of each rank alone, then one exchange of how far its weights have moved."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Iterator, Optional

import torch
import torch.distributed as dist

import sparsewire

from . import _saved_local
from ._connect import give_up
from ._counting import Counting, Optimizers, last_of
from ._device import can_work_on
from ._divide import Fragments, check_parameters, check_rhythm, divide, group_of
from ._fragment import Fragment
from ._inside import inside_of
from ._options import Exclude, Options
from ._outer import Outer, OuterOptimizer, check_outer
from ._parameters import Parameters, local
from ._passes import Passes
from ._session import Session, check_common
from ._start import agree_on_model, share_weights

# Flags that all ranks learn with an exchange.
_GOES_ON = 1  # some rank will come again
_HAS_STEPS = 2  # some rank has made steps


class _UnderWay:
    """An exchange whose result is not in the model yet."""

    def __init__(self, fragment: Fragment, wait: Callable[[], int], left: int) -> None:
        self.fragment = fragment
        self.left = left  # inner steps until it is applied
        self.is_dense = False  # its update was loaded
        self._wait: Optional[Callable[[], int]] = wait
        self._flags = 0

    def flags(self) -> int:
        """Those of all ranks. Waits for the exchange."""
        wait, self._wait = self._wait, None
        if wait is not None:
            self._flags = wait()
        return self._flags


class LocalSteps(Session):
    """Lets each rank train alone, and averages how far the ranks moved every ``every`` steps, sparsely.

        outer = sw.LocalSteps(model, optimizer, every=30)
        for x, y in batches:
            criterion(model(x), y).backward()
            optimizer.step()            # every 30th one ends with an exchange
            optimizer.zero_grad()
        outer.close()

    Collective, like ``sync()`` and ``close()``. All ranks start with the weights and buffers of rank 0. Buffers are not
    exchanged later: running statistics of BatchNorm are those of each rank.

    Args:
        model: A plain module, compiled or not; a DistributedDataParallel or FSDP2 model only with ``group``.
        optimizer: The inner one, whose steps are counted by a hook; of several the last one counts. None: call ``step()``
            after each step yourself.
        every: Inner steps from one exchange of a parameter to the next.
        sparsifier: Which entries of its movement a rank sends. The default is the 64 largest of each 4,096 (1.6 %).
        feedback: ``ef`` keeps what is not sent, ``ef:decay=0.95`` shrinks what waits in each exchange, ``none`` drops it.
        codec: How entries become bytes: the default writes a sign and one of two magnitudes. What rounding loses waits.
        exchange: Who sends to whom: ``allgather`` (all messages to all), ``sharded`` (each rank sums a part), ``server``
            (rank 0), ``dense``, or ``auto``.
        downlink: What comes back, with ``sharded`` or ``server``: a sparsifier with a memory of its own, such as
            ``topk:k=512,chunk=4096``: about as many entries as all workers together send. None: all entries of the sum.
        downlink_codec: That of the answer. None: ``codec``.
        average: ``senders``: the mean over the ranks that sent an entry; ``all``: over all ranks.
        outer_optimizer: A function that makes an optimizer of a list of tensors (the start, in float32); or an optimizer of
            the parameters of this model, or several, which then work on the start instead.
        outer_lr: start -= outer_lr * update.
        outer_momentum: Nesterov's, as in ``torch.optim.SGD``. It belongs to whole weights: see ``DiLoCo``.
        fragments: Into how many parts of similar size the model is divided, or a list of its modules. Part f has its turn when
            step = f*every/fragments (mod every), so ``every`` must be a multiple of their number.
        delay: So many inner steps go on while the messages of a part are under way. The model then gets the new start and
            the steps made meanwhile.
        mix: The share of its own weights that a rank keeps in an exchange: torchft's ``fragment_update_alpha``.
        group: The ranks; None: all. Where a model in DDP or FSDP2 is spread over processes in one place: the processes with
            the same number in the other places. Each exchanges a part of the model.
        exclude: Names of parameters, or a function of name and parameter: these are averaged densely.
        min_compress_size: Parameters with fewer entries are averaged densely, as are all of one dimension: in bf16 where
            ``codec`` rounds values, in f32 otherwise.
        memory: ``device``: start, error memory and message lie where the model is, 12 bytes a parameter (16 with ``delay``
            or ``mix``); ``host``: on the host.
        scaler: The GradScaler, if there is one: ``scaler.update()`` then counts the steps, also those that it leaves out.
        deadline: Seconds of silence after which a rank counts as lost; longer than the fastest rank may have to wait, which
            at the end is up to ``every`` steps.
        metrics: A file that gets one line of JSON for every exchange; ``{rank}`` in its name is replaced. Lines are appended.
        seed: Of random choices (``randomk``, ``rtopk``).
        check_every: After so many exchanges ranks compare checksums of their updates. 0: never.
        threads: How many threads one rank sifts and encodes with. The result does not depend on it.

    Raises:
        UsageError: An option has a value that it cannot have, or the ranks differ.
        TypeError: A model, weights or an optimizer that it cannot work with.
        TransportError: A rank did not come within the deadline.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: Optimizers,
        every: int = 30,
        *,
        sparsifier: str = "topk:k=64,chunk=4096",
        feedback: str = "ef:decay=0.95",
        codec: str = "auto:values=int2",
        exchange: str = "allgather",
        downlink: Optional[str] = None,
        downlink_codec: Optional[str] = None,
        average: str = "senders",
        outer_optimizer: OuterOptimizer = None,
        outer_lr: float = 1.0,
        outer_momentum: float = 0.0,
        fragments: Fragments = 1,
        delay: int = 0,
        mix: float = 0.0,
        group: Optional[dist.ProcessGroup] = None,
        exclude: Exclude = None,
        min_compress_size: int = 4096,
        memory: str = "device",
        scaler: Optional[Any] = None,
        deadline: float = 300.0,
        metrics: Optional[str] = None,
        seed: int = 0,
        check_every: int = 10,
        threads: int = 1,
    ) -> None:
        self.process_group = group
        try:
            options = Options.of(locals())
            check_common(exclude, deadline, scaler)
            options.check()
            counted = last_of(optimizer)
            inside = inside_of(model, group)
            model = inside.model
            parameters = Parameters(exclude, min_compress_size, vectors_densely=True)
            parameters.bind(model)
            known = {name: p for name, p in parameters.by_name().items() if p.numel() > 0}
            wholes = divide(model, known, fragments)
            parts = [inside.own(whole, known) for whole in wholes]
            check_rhythm(every, len(parts), delay, mix, memory)
            check_parameters(known, counted)
            check_outer(outer_optimizer, optimizer)
            passes = Passes(options, parameters, None, metrics)
            passes.must_agree = {"every": every, "delay": delay, "mix": mix, **agree_on_model(model, parts)}
            passes.must_agree["outer"] = repr((outer_lr, outer_momentum, outer_optimizer is None))
            place, keeps_base = _place_for(known, memory), delay > 0 or mix > 0
            self._fragments = [
                Fragment(group_of(part, options, parameters), known, place, keeps_base, whole)
                for part, whole in zip(parts, wholes)
            ]
            passes.groups = {fragment.names: fragment.group for fragment in self._fragments}
            parameters.all = frozenset(name for fragment in self._fragments for name in fragment.names)
            self._outer = Outer(outer_optimizer, outer_lr, outer_momentum, self._fragments)
            self._open(passes, deadline)
        except BaseException as error:
            give_up(group, error)  # the other ranks must not wait for this one
            raise
        self._inside = inside
        self._known = known
        self._parameters = parameters
        self._interval = every // len(parts)
        self._delay, self._mix = delay, mix
        self._under_way: Optional[_UnderWay] = None
        self._steps = 0  # inner steps
        self._since = 0  # of these, since the last exchange
        self._exchanges = 0
        self._shows_start = False
        try:
            self._call(self._connect)
            frozen = [p for name, p in model.named_parameters() if name not in known and p.numel() > 0]
            own = [known[name] for part in parts for name in part]
            share_weights([*own, *frozen, *model.buffers()], passes.transport)
            self._call(self._make_workers)
            with torch.no_grad():
                for fragment in self._fragments:
                    fragment.begin_anew()
                    inside.spread(fragment.whole, known)
        except BaseException as error:
            self._abandon(error)
            raise
        self._counting = Counting(counted, scaler, self._count)

    def _make_workers(self) -> None:
        for group in self._passes.groups.values():
            group.make_workers(self._passes.transport)

    # --- inner steps ---

    def step(self) -> None:
        """An inner step is over. Needed only where no ``optimizer`` and no ``scaler`` was given."""
        if self._counting.is_automatic:
            raise sparsewire.UsageError(
                "[torch] step() would count twice: the optimizer's steps are counted already; give optimizer=None, and call "
                "step() after each step, or do not call it"
            )
        self._count()

    @torch.no_grad()
    def _count(self) -> None:
        self._check_quiet()
        self._stages.check_usable()
        self._steps += 1
        self._since += 1
        for fragment in self._fragments:
            fragment.steps += 1
        if self._under_way is not None:
            self._under_way.left -= 1
            if self._under_way.left <= 0:
                self._apply()
        if self._since >= self._interval:
            self._begin_exchange(_GOES_ON, self._delay)
            if self._delay == 0:
                self._apply()

    @property
    def steps(self) -> int:
        """Inner steps that were counted."""
        return self._steps

    @property
    def outer_optimizer(self) -> Optional[torch.optim.Optimizer]:
        """The one that was given, for a schedule."""
        return self._outer.optimizers[0] if self._outer.optimizers else None

    # --- exchanges ---

    def _begin_exchange(self, flags: int, delay: int) -> None:
        """Of the fragment whose turn it is. All ranks take the same turns, whatever their steps."""
        if flags & _GOES_ON:
            self._check_model()
        self._since = 0
        self._exchanges += 1
        fragment = self._fragments[self._exchanges % len(self._fragments)]
        passes, group, delta = self._passes, fragment.group, fragment.delta
        flags |= _HAS_STEPS if fragment.steps > 0 else 0
        is_idle = flags == 0 and passes.options.takes_weights  # has left the training: counts for nothing
        fragment.take(keep=delay > 0)
        number, steps, is_sparse = self._exchanges, self._steps, self._outer.is_sparse

        def do() -> int:
            group.begin(delta, flags=flags, weight=0.0 if is_idle else None)
            group.finish(number)
            everyones = group.flags
            if everyones == 0:  # all have left the training, and nobody has steps: it does not count
                return everyones
            if not is_sparse:
                group.answer(delta, 1.0, [])
            passes.stepped = [group]
            passes.inner_steps = steps
            passes.end(delta.device)
            return everyones

        work = _on_stream_of(delta, do)
        self._under_way = _UnderWay(fragment, self._guarded(self._stages.begin(work)), delay)

    def _guarded(self, wait: Callable[[], int]) -> Callable[[], int]:
        """Whoever waits ends the training, on all ranks, if the exchange has failed."""

        def guarded() -> int:
            try:
                return wait()
            except BaseException as error:  # also Ctrl-C: this rank does not know what the others have made of it
                self._stages.fail(error if isinstance(error, Exception) else RuntimeError(type(error).__name__))
                raise

        return guarded

    def _apply(self, all_of_it: bool = False) -> int:
        """Waits for the exchange that is under way, and brings its result into the model. all_of_it: the start alone."""
        under_way = self._under_way
        if under_way is None:
            return 0
        flags = under_way.flags()
        self._under_way = None
        if flags != 0:
            self._outer.step(under_way.fragment, under_way.is_dense or not self._outer.is_sparse)
        if all_of_it:
            under_way.fragment.give_start()
        else:
            under_way.fragment.give(self._mix)
        self._inside.spread(under_way.fragment.whole, self._known)
        return flags

    @torch.no_grad()
    def sync(self) -> None:
        """An exchange of all parameters, now: afterwards the models of all ranks are the same. Collective.

        The next one by itself comes as many steps later as after any other.
        """
        self._check_quiet()
        self._stages.check_usable()
        self._apply()
        for _ in self._fragments:
            self._begin_exchange(_GOES_ON, 0)
            self._apply(all_of_it=True)

    @torch.no_grad()
    def close(self) -> None:
        """Exchanges the steps since the last exchange, and ends. All ranks then have the same weights. Collective.

        Ranks may have made different numbers of steps: who has closed takes part in the exchanges of the others, without
        a say in the average, until all have closed. (With ``average="all"``, the exchanges ``dense`` and ``auto``, and
        RegTop-k it counts as a rank that did not move.)
        """
        if self._stages.is_closed:
            return
        self._check_quiet()
        self._counting.remove()
        try:
            self._stages.check_usable()
            self._apply()
            quiet = 0  # exchanges one after the other in which nobody was left
            while quiet < len(self._fragments):
                self._begin_exchange(0, 0)
                quiet = 0 if self._apply(all_of_it=True) & _GOES_ON else quiet + 1
        finally:
            self._end()

    def _abandon(self, error: BaseException) -> None:
        """Ends without an exchange: the others learn why."""
        if self._passes.transport is not None:
            self._passes.transport.fail(f"{type(error).__name__}: {error}")
        self._end()

    def __enter__(self) -> LocalSteps:
        return self

    def __exit__(self, kind: Any, error: Optional[BaseException], trace: Any) -> None:
        """close(); but an exception starts no exchange: the other ranks get a RankFailed."""
        if error is None:
            self.close()
        elif not self._stages.is_closed:
            self._counting.remove()
            self._abandon(error)

    # --- what users call between steps ---

    @property
    def _is_busy(self) -> bool:
        return self._under_way is not None

    def _where(self) -> dict[str, int]:
        return {"step": self._steps}

    def _check_quiet(self) -> None:
        if self._shows_start:
            raise RuntimeError("[torch] the model holds the start weights: leave `with start_weights()` first")

    def _check_model(self) -> None:
        named = dict(self._inside.model.named_parameters())
        gone = [name for name, p in self._known.items() if named.get(name) is not p]
        if gone:
            raise sparsewire.UsageError(
                f"[torch] {gone[0]} is not the parameter that LocalSteps was made with (load_state_dict(assign=True) makes "
                "other ones): close it, and make a new one"
            )
        new = [name for name, p in named.items() if p.requires_grad and name not in self._known and p.numel() > 0]
        if new:
            raise sparsewire.UsageError(
                f"[torch] {new[0]} was frozen, or not there, when LocalSteps was made: close it, and make a new one"
            )

    @contextlib.contextmanager
    def start_weights(self) -> Iterator[None]:
        """The model holds the weights that all ranks have in common, then its own again: to evaluate, or to publish.

        They are those of the last exchange that has reached the model. Buffers stay this rank's own.
        """
        self._check_quiet()
        own = [local(p).detach().clone() for p in self._known.values()]
        self._shows_start = True
        try:
            with torch.no_grad():
                for fragment in self._fragments:
                    for p, start in zip(fragment.parameters, fragment.starts):
                        local(p).copy_(start)
                    self._inside.spread(fragment.whole, self._known)
            yield
        finally:
            with torch.no_grad():
                for p, before in zip(self._known.values(), own):
                    local(p).copy_(before)
                self._inside.restore()
            self._shows_start = False

    def memory(self) -> dict[str, torch.Tensor]:
        """What this rank has not sent yet, by parameter: flat copies; zeros for parameters that go densely."""
        return self._call(self._passes.memory)  # type: ignore[no-any-return]

    def state_dict(self) -> dict[str, Any]:
        """What this rank needs to go on: tensors, numbers and strings only. Save it on every rank, with its model.

        Not collective. It can be called between any two steps, and waits for an exchange that is under way. The same
        number of ranks goes on bit for bit; ``consolidated_state_dict()`` can be loaded by any number.
        """
        self._check_quiet()
        if self._under_way is not None:
            self._stages.check_usable()  # nobody answers in a process that was forked
            self._under_way.flags()
        rank, size = self._place()
        exchanged = self._call(lambda: self._passes.save(rank, size))
        return _saved_local.make(self, exchanged)

    def consolidated_state_dict(self) -> dict[str, Any]:
        """The start and what all ranks have not sent yet, on every rank, for another number of ranks. Collective.

        Inner steps since the last exchange are not in it: call ``sync()`` before.
        """
        self._check_quiet()
        if self._under_way is not None:
            raise RuntimeError("[torch] an exchange is under way: call sync() before consolidated_state_dict()")
        rank, size = self._place()
        everyones = self._gather(self._call(lambda: self._passes.save(rank, size)))
        return _saved_local.make(self, everyones, only_start=True)

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from ``state_dict()`` of this rank, or from ``consolidated_state_dict()``. All ranks must load.

        Load the model and the inner optimizer as well. With the consolidated form the model gets the start weights.

        Args:
            state: What ``state_dict()`` or ``consolidated_state_dict()`` returned; not the whole checkpoint.

        Raises:
            UsageError: The state is damaged, or does not fit. Nothing has changed then.
        """
        self._check_quiet()
        if self._under_way is not None:
            raise RuntimeError("[torch] an exchange is under way: load_state_dict() belongs before the first step")
        _saved_local.load(self, state)

    def _go_on_with(self, saved: dict[str, Any]) -> None:
        """An exchange whose messages had come when the state was saved."""
        fragment = self._fragments[saved["fragment"]]
        fragment.delta.copy_(saved["update"])
        fragment.taken = [saved["taken"][name].clone() for name in fragment.names]
        flags = int(saved["flags"])
        self._under_way = _UnderWay(fragment, lambda: flags, int(saved["left"]))
        self._under_way.is_dense = True

    def __repr__(self) -> str:
        return f"<sparsewire.torch.LocalSteps {self.options.sparsifier}, {self._steps} steps, {self._exchanges} exchanges>"


def _place_for(known: dict[str, torch.Tensor], memory: str) -> torch.device:
    device = next(iter(known.values())).device
    if memory == "host" or device.type != "cuda" or not can_work_on(device):
        return torch.device("cpu")
    return device


def _on_stream_of(numbers: torch.Tensor, do: Callable[[], int]) -> Callable[[], int]:
    """Another thread has another current stream."""
    if not numbers.is_cuda:
        return do
    stream = torch.cuda.current_stream(numbers.device)

    def on_stream() -> int:
        with torch.cuda.stream(stream):
            return do()

    return on_stream
