"""The form of a saved state, and whether it can be loaded here.

A dict of "rank0", "rank1", ...: one of them, or all (consolidated). Each is a dict of numbers, strings and tensors of bytes.
"""

from __future__ import annotations

import json
import re
import reprlib
from typing import Any, Mapping, Sequence, Union

import torch

import sparsewire
from sparsewire import _core

from ._options import Options
from ._parameters import Parameters, local
from ._stats import Totals

_FORMAT = 2
_FIELDS = {"world_size": int, "step": int, "options": str, "groups": str, "totals": str}

Layout = list[tuple[str, int, bool]]  # name, size, and whether it goes densely


def make(world_size: int, step: int, options: Options, groups: Sequence[Layout], totals: Totals) -> dict[str, Any]:
    return {
        "format": _FORMAT,
        "world_size": world_size,
        "step": step,
        "options": options.to_json(),
        "groups": json.dumps(groups),
        "totals": json.dumps(totals.save()),
    }


def groups_of(one: dict[str, Any]) -> list[Layout]:
    return [[(name, size, dense) for name, size, dense in layout] for layout in json.loads(one["groups"])]


def names_of(one: dict[str, Any]) -> frozenset[str]:
    return frozenset(name for layout in groups_of(one) for name, _, _ in layout)


def worker_of(one: dict[str, Any], name: str) -> bytes:
    return bytes(one[name].cpu().numpy().tobytes())


def to_bytes(states: dict[str, Any]) -> bytes:
    """For another rank: a line of JSON, in which a tensor is the number of its bytes, and then the bytes of all."""
    tensors: list[bytes] = []

    def put(tensor: torch.Tensor) -> list[int]:
        tensors.append(tensor.cpu().numpy().tobytes())
        return [len(tensors[-1])]

    return b"\n".join([json.dumps(states, default=put).encode(), b"".join(tensors)])


def from_bytes(words: bytes) -> dict[str, Any]:
    """What to_bytes() was given. Raises ValueError if it cannot be that."""
    line = words.partition(b"\n")[0]
    states, at = _parsed(line), len(line) + 1
    for key, one in states.items() if isinstance(states, dict) else ():
        for name, value in one.items() if isinstance(one, dict) else ():
            if isinstance(value, list):
                size = value[0] if len(value) == 1 and type(value[0]) is int else 0
                one[name] = torch.frombuffer(bytearray(words[at : at + size]), dtype=torch.uint8)  # refuses no bytes at all
                at += size
    if at != len(words):
        raise ValueError("its length is wrong")
    return _ranks_of(states)


def choose(state: Any, rank: int, size: int, options: Options) -> dict[str, Any]:
    """The states of those ranks that this one goes on from: its own, or all.

    Raises UsageError if it is not what state_dict() returned, is damaged, or is of other ranks.
    """
    ranks = _ranks_of(state)
    one = next(iter(ranks.values()))
    world = one["world_size"]
    own = f"rank{rank}"
    if world == size and own in ranks:
        saved = json.loads(ranks[own]["options"])
        is_same = all(saved.get(name) == getattr(options, name) for name in ("exchange", "downlink"))
        if is_same or len(ranks) < world:
            return {own: ranks[own]}
    if world == size and own not in ranks and len(ranks) == 1:
        raise sparsewire.UsageError(
            f"[torch] this is the state of {next(iter(ranks))}, and this is rank {rank}: save state_dict() on every "
            "rank, or consolidated_state_dict() once"
        )
    everyone = [f"rank{r}" for r in range(len(ranks))]
    if len(ranks) != world or sorted(ranks) != sorted(everyone):
        raise sparsewire.UsageError(
            f"[torch] the state is of {world} ranks, and here are {size} (this is rank {rank}): save "
            "consolidated_state_dict(), which any number of ranks can load"
        )
    return {key: ranks[key] for key in everyone}


def _ranks_of(state: Any) -> dict[str, Any]:
    if not isinstance(state, Mapping) or not state:
        raise sparsewire.UsageError(f"[torch] this is not what State.state_dict() returned, but a {type(state).__name__}")
    other = [key for key in state if not (isinstance(key, str) and re.fullmatch(r"rank[0-9]{1,9}", key))]
    if other:
        raise sparsewire.UsageError(
            f"[torch] this is not what State.state_dict() returned: it has {shown(other[0])}. Of a whole checkpoint, give "
            "the part that state_dict() returned"
        )
    ranks = dict(state)
    first = next(iter(ranks))
    for key, one in ranks.items():
        _check_form(key, one)
        for name in ("world_size", "step", "groups"):
            if one[name] != ranks[first][name]:
                raise _not_together(first, key, name)
        if one.keys() != ranks[first].keys():
            raise _not_together(first, key, shown(min(one.keys() ^ ranks[first].keys())))
    return ranks


def _not_together(first: str, key: str, name: str) -> sparsewire.UsageError:
    return sparsewire.UsageError(
        f"[torch] the states of {first} and {key} are not of one training: {name} differs; load states that were saved "
        "together"
    )


def _damaged(key: str, what: str) -> sparsewire.UsageError:
    return sparsewire.UsageError(f"[torch] the state of {key} is damaged: {what}; load another checkpoint")


def shown(value: Any) -> str:
    """As repr() does, in few words."""
    try:
        return reprlib.repr(value)
    except ValueError:  # a number of thousands of digits
        return "a large number"


def _parsed(text: Union[str, bytes]) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _check_form(key: str, one: Any) -> None:
    if not isinstance(one, dict):
        raise _damaged(key, f"it is a {type(one).__name__}, not a dict")
    if type(one.get("format")) is not int or one["format"] != _FORMAT:
        raise sparsewire.UsageError(
            f"[torch] the state of {key} has format {shown(one.get('format'))}, and this version reads {_FORMAT}: load it "
            "with the version that saved it"
        )
    for name, kind in _FIELDS.items():
        if type(one.get(name)) is not kind:
            raise _damaged(key, f"{name!r} is {shown(one.get(name, 'missing'))}")
    if not (1 <= one["world_size"] < 1 << 31 and 0 <= one["step"] < 1 << 63):
        raise _damaged(key, f"world_size={shown(one['world_size'])}, step={shown(one['step'])}")
    if not isinstance(_parsed(one["options"]), dict):
        raise _damaged(key, "'options' cannot be read")
    layouts = _parsed(one["groups"])
    if not (isinstance(layouts, list) and all(map(_is_layout, layouts))):
        raise _damaged(key, "'groups' cannot be read")
    names = [name for layout in layouts for name, _, _ in layout]
    if len(set(names)) < len(names):
        raise _damaged(key, "'groups' cannot be read")
    try:
        Totals.load(_parsed(one["totals"]))
    except ValueError:
        raise _damaged(key, "'totals' cannot be read") from None
    for name, value in one.items():
        if name in _FIELDS or name == "format":
            continue
        is_group = isinstance(name, str) and re.fullmatch(r"(group|dense)[0-9]{1,9}", name)
        if not (is_group and int(name[5:]) < len(layouts)):
            raise _damaged(key, f"it has {shown(name)}")
        if not _is_bytes(value):
            raise _damaged(key, f"{name!r} is not a tensor of bytes")


def _is_bytes(value: Any) -> bool:
    if not isinstance(value, torch.Tensor) or value.is_meta or value.layout != torch.strided:
        return False
    return value.dtype == torch.uint8 and value.ndim == 1


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and not re.search("[\ud800-\udfff]", value)  # which UTF-8 cannot say


def _is_layout(layout: Any) -> bool:
    return isinstance(layout, list) and len(layout) > 0 and all(
        isinstance(row, list) and len(row) == 3 and _is_name(row[0])
        and type(row[1]) is int and 0 <= row[1] < 1 << 32 and isinstance(row[2], bool)
        for row in layout
    )  # fmt: skip


def check_names(states: dict[str, Any], parameters: Parameters) -> None:
    """Raises UsageError if the state is of another model, as far as its parameters are known."""
    one = next(iter(states.values()))
    if parameters.all is not None and names_of(one) and names_of(one) != parameters.all:
        differing = sorted(names_of(one) ^ parameters.all)[:3]
        raise sparsewire.UsageError(f"[torch] the state is of another model: it differs in {', '.join(differing)}")
    known = parameters.by_name()
    for layout in groups_of(one):
        for name, size, was_dense in layout:
            if name not in known:
                continue
            here = local(known[name]).numel()
            if here != size:
                raise sparsewire.UsageError(
                    f"[torch] the state is of another model: {name} had {size} entries, and has {here}"
                )
            if parameters.is_dense(name, known[name].numel(), known[name]) != was_dense:
                raise sparsewire.UsageError(
                    f"[torch] {name} was{'' if was_dense else ' not'} exchanged densely when the state was saved: register "
                    "with the same exclude= and min_compress_size="
                )


def check_memories(states: dict[str, Any], options: Options) -> None:
    """Raises UsageError if the Workers of these options cannot load what was saved."""
    is_own = len(states) < next(iter(states.values()))["world_size"]
    for key, one in states.items():
        for i, layout in enumerate(groups_of(one)):
            for kind in ("group", "dense"):
                if f"{kind}{i}" in one:
                    _check_memory(one, f"{kind}{i}", key, layout, options, is_own)


def _check_memory(one: dict[str, Any], name: str, key: str, layout: Layout, options: Options, is_own: bool) -> None:
    is_dense = name.startswith("dense")
    tensors = [(tensor, size) for tensor, size, dense in layout if dense == is_dense]
    default = {"sparsifier": "", "downlink": None, "scope": "model", "seed": 0}
    given = {**default, **options.for_dense()} if is_dense else options.for_worker(sum(size for _, size in tensors))
    try:
        ranks = one["world_size"]
        _core._check_saved_worker(worker_of(one, name), tensors, int(key[4:]), ranks, is_own, **{**given, "threads": 1})
    except sparsewire.UsageError as error:
        names = ", ".join(tensor for tensor, _ in tensors[:2]) + (", ..." if len(tensors) > 2 else "")
        raise sparsewire.UsageError(f"[torch] the state of {key} for parameters {names}: {error}") from None
