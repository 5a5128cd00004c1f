"""Sparsifiers written in Python."""

from __future__ import annotations

import base64
import inspect
import json
import math
import typing
from typing import Any, Callable, Mapping, NamedTuple, Sequence

import numpy
import numpy.typing

from . import _core
from ._errors import UsageError

Floats = numpy.typing.NDArray[numpy.float32]
Indices = numpy.typing.NDArray[numpy.uint32]


class Context(NamedTuple):
    """What a sparsifier may depend on besides its spec, its input and its own state."""

    layout: list[tuple[str, int]]  #: the tensors: name and size
    dim: int  #: entries in total
    scope: str  #: "model" or "layer"
    rank: int  #: of the worker; for a server, the number of its region
    ranks: int
    weight: float  #: of this worker in the update; 0 means 1/ranks
    seed: int
    first_step: int
    role: str  #: "worker" or "server"
    model_dim: int  #: if the layout is a region only: entries of the whole model; else 0


class Sparsifier:
    """Says which entries of a gradient are sent. Derive from it, write choose(), register it.

    >>> import numpy
    >>> class Largest(Sparsifier):
    ...     def __init__(self, context, *, ratio: float = 0.01):
    ...         super().__init__(context)
    ...         self.k = max(1, round(ratio * context.dim))
    ...     def choose(self, accumulated):
    ...         order = numpy.argsort(-abs(accumulated), kind="stable")
    ...         return numpy.sort(order[:self.k])
    >>> with register_sparsifier("largest", Largest):
    ...     sifter = Sifter("largest:ratio=0.5", 4)
    ...     sifter.sift(numpy.array([1, -3, 2, 0], numpy.float32)).indices.tolist()
    [1, 2]

    The library does the rest: it adds the gradient to the memory, refuses NaN and infinity, takes the chosen entries
    out, and takes steps back. The same input must give the same choice: draw random numbers from context.seed,
    context.rank, context.role and self.step only. Sizes 0 and 1 occur.

    An object serves one Sifter or Worker; its calls come one at a time, from any thread.
    """

    #: Whether the number of entries depends on the gradient; then the exchange ``auto`` counts them in each step.
    entries_vary: bool = True

    #: The number of the step that choose() is called for, from 0. In sparsewire.torch, without those of a dense start.
    step: int = 0

    #: Set during load() if the tensors are in another order now: the new index of an old one, or None if it is gone.
    remap_index: Callable[[int], int | None] | None = None

    def __init__(self, context: Context) -> None:
        self.context = context

    def choose(self, accumulated: Floats) -> Indices | Sequence[int]:
        """The indices of the entries to send, ascending. Entries that are zero are not sent.

        `accumulated` is memory and gradient together, one number for each entry, all finite. It is a copy, read-only; what
        is kept of it stays as it is.
        """
        raise NotImplementedError(f"{type(self).__name__}.choose")

    def observe(self, indices: Indices, values: Floats, update: Floats) -> None:
        """What was sent, and the update of all workers at these entries. Called only if it is overridden."""

    def expected_entries(self) -> float:
        """Entries that one step is expected to send; infinity: all."""
        return math.inf

    def save(self) -> bytes | Mapping[str, Any] | None:
        """Everything that later choices depend on, except for the number of the step.

        Bytes, or a dict of numbers, strings, lists, None and numpy arrays. Override it together with load().
        """
        return None

    def load(self, state: Any) -> None:
        """Takes back what save() returned, with the same bits. Raise ValueError if it cannot be right."""

    def rewind(self) -> None:
        """The last choose() did not count, nor what followed: everything is to be as before it.

        A class that overrides save() and load() need not write it: then its state is saved before each choice.
        """

    # What the C++ side calls.

    def _traits(self) -> tuple[bool, bool, bool, bool]:
        def overrides(name: str) -> bool:
            return getattr(type(self), name) is not getattr(Sparsifier, name)

        has_state = overrides("save")
        if has_state != overrides("load"):
            raise UsageError(f"[{type(self).__name__}] has only one of save() and load()")
        return overrides("observe"), bool(self.entries_vary), has_state, has_state and not overrides("rewind")

    def _save_bytes(self) -> bytes:
        state = self.save()
        if isinstance(state, (bytes, bytearray, memoryview)):
            return b"b" + bytes(state)
        return b"j" + json.dumps(state, default=_array_to_json).encode()

    def _load_bytes(self, state: bytes) -> None:
        if state[:1] == b"b":
            self.load(state[1:])
            return
        try:
            loaded = json.loads(state[1:], object_hook=_array_from_json)
        except ValueError as error:
            raise UsageError(f"[{type(self).__name__}] its saved state cannot be read: {error}") from None
        self.load(loaded)


_ARRAY = "numpy.ndarray"


def _array_to_json(value: Any) -> Any:
    if isinstance(value, numpy.generic):
        return value.item()
    if not isinstance(value, numpy.ndarray) or value.dtype.hasobject:
        raise UsageError(f"a state holds numbers, strings, lists and numpy arrays, not {type(value).__name__}")
    data = base64.b64encode(numpy.ascontiguousarray(value).tobytes()).decode()
    return {_ARRAY: [value.dtype.str, list(value.shape), data]}


def _array_from_json(fields: dict[str, Any]) -> Any:
    if list(fields) != [_ARRAY]:
        return fields
    dtype, shape, data = fields[_ARRAY]
    return numpy.frombuffer(base64.b64decode(data), numpy.dtype(dtype)).reshape(shape).copy()


class Registration:
    """Ends with unregister(), or with the `with` block; what was made before goes on."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._is_active = True

    def unregister(self) -> None:
        """The name is free again."""
        if self._is_active:
            self._is_active = False
            _core._unregister_sparsifier(self.name)

    def __enter__(self) -> Registration:
        return self

    def __exit__(self, *exception: object) -> None:
        self.unregister()


def register_sparsifier(
    name: str,
    factory: Callable[..., Sparsifier],
    keys: Mapping[str, type] | None = None,
    *,
    summary: str = "",
    example: str = "",
) -> Registration:
    """Makes `name` a sparsifier in this process: "name:key=value" then works wherever a spec does.

    `factory` is the class, or a function. It is called with a Context and, as keyword arguments, the keys that the spec
    gives. `keys` says which keys there are and their types (float, int, bool, str); without it they are the
    keyword-only parameters of the factory, with the types of their annotations or defaults.

    The registration lasts until unregister_sparsifier(name), the end of a `with` block around it, or the end of the
    process. Every process of a training has to register it.
    """
    types = _keys_of(factory) if keys is None else dict(keys)
    for key, kind in types.items():
        if kind not in (float, int, bool, str):
            raise UsageError(f"[{name}] key {key}: a type of float, int, bool, str is needed, not {kind!r}")
    summary = summary or (inspect.getdoc(factory) or "written in Python").splitlines()[0]
    _core._register_sparsifier(
        name, factory, [(key, kind.__name__) for key, kind in types.items()], summary, example or name
    )
    return Registration(name)


def unregister_sparsifier(name: str) -> None:
    """Ends what register_sparsifier(name, ...) began."""
    _core._unregister_sparsifier(name)


def _keys_of(factory: Callable[..., Sparsifier]) -> dict[str, type]:
    function = getattr(factory, "__init__") if isinstance(factory, type) else factory
    try:
        annotations = typing.get_type_hints(function)
    except (NameError, TypeError):  # a name that is not there; with Python 3.9 also "float | None"
        annotations = {key: _type_of(text) for key, text in getattr(function, "__annotations__", {}).items()}
    keys: dict[str, type] = {}
    for key, parameter in inspect.signature(factory).parameters.items():
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
            continue
        kind: Any = annotations.get(key)
        if kind is None and parameter.default is not inspect.Parameter.empty and parameter.default is not None:
            kind = type(parameter.default)
        args = [one for one in typing.get_args(kind) if one is not type(None)]
        keys[key] = args[0] if len(args) == 1 else (kind or str)
    return keys


def _type_of(annotation: Any) -> Any:
    """What "float" or "float | None" says; nothing for any other text."""
    if not isinstance(annotation, str):
        return annotation
    names = [name.strip() for name in annotation.split("|") if name.strip() != "None"]
    return {"float": float, "int": int, "bool": bool, "str": str}.get(names[0]) if len(names) == 1 else None
