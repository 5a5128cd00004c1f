"""The form of a saved state, and whether it can be loaded here.

A dict of "rank0", "rank1", ...: one of them, or all (consolidated). Each is a dict of numbers, strings and tensors of bytes.
"""

from __future__ import annotations

import json
import re
from typing import Any, Mapping, Sequence

import torch

import sparsewire
from sparsewire import _core

from ._options import Options
from ._parameters import Parameters
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


def worker_of(one: dict[str, Any], group: int) -> bytes:
    return bytes(one[f"group{group}"].cpu().numpy().tobytes())


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
    other = [key for key in state if not (isinstance(key, str) and re.fullmatch(r"rank\d+", key))]
    if other:
        raise sparsewire.UsageError(
            f"[torch] this is not what State.state_dict() returned: it has {other[0]!r}. Of a whole checkpoint, give the "
            "part that state_dict() returned"
        )
    ranks = dict(state)
    first = next(iter(ranks))
    for key, one in ranks.items():
        _check_form(key, one)
        for name in ("world_size", "step", "groups"):
            if one[name] != ranks[first][name]:
                raise sparsewire.UsageError(
                    f"[torch] the states of {first} and {key} are not of one training: {name} differs; load states that "
                    "were saved together"
                )
    return ranks


def _damaged(key: str, what: str) -> sparsewire.UsageError:
    return sparsewire.UsageError(f"[torch] the state of {key} is damaged: {what}; load another checkpoint")


def _check_form(key: str, one: Any) -> None:
    if not isinstance(one, dict):
        raise _damaged(key, f"it is a {type(one).__name__}, not a dict")
    if one.get("format") != _FORMAT:
        raise sparsewire.UsageError(
            f"[torch] the state of {key} has format {one.get('format')!r}, and this version reads {_FORMAT}: load it with "
            "the version that saved it"
        )
    for name, kind in _FIELDS.items():
        if not isinstance(one.get(name), kind):
            raise _damaged(key, f"{name!r} is {one.get(name, 'missing')!r:.40}")
    if one["world_size"] < 1 or one["step"] < 0:
        raise _damaged(key, f"world_size={one['world_size']}, step={one['step']}")
    for name, kind in (("options", dict), ("groups", list), ("totals", dict)):
        try:
            found = json.loads(one[name])
        except ValueError:
            found = None
        if not isinstance(found, kind):
            raise _damaged(key, f"{name!r} cannot be read")
    layouts = json.loads(one["groups"])
    names = [name for layout in layouts if _is_layout(layout) for name, _, _ in layout]
    if not all(map(_is_layout, layouts)) or len(set(names)) < len(names):
        raise _damaged(key, "'groups' cannot be read")
    for name, value in one.items():
        if name in _FIELDS or name == "format":
            continue
        if not (isinstance(name, str) and re.fullmatch(r"group\d+", name) and int(name[5:]) < len(layouts)):
            raise _damaged(key, f"it has {name!r}")
        if not (isinstance(value, torch.Tensor) and value.dtype == torch.uint8 and value.ndim == 1):
            raise _damaged(key, f"{name!r} is not a tensor of bytes")
    try:
        Totals.load(json.loads(one["totals"])).as_dict()
    except (TypeError, ValueError):
        raise _damaged(key, "'totals' cannot be read") from None


def _is_layout(layout: Any) -> bool:
    return isinstance(layout, list) and len(layout) > 0 and all(
        isinstance(row, list) and len(row) == 3 and isinstance(row[0], str) and type(row[1]) is int and row[1] >= 0
        and isinstance(row[2], bool)
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
            if known[name].numel() != size:
                raise sparsewire.UsageError(
                    f"[torch] the state is of another model: {name} had {size} entries, and has {known[name].numel()}"
                )
            if parameters.is_dense(name, size, known[name]) != was_dense:
                raise sparsewire.UsageError(
                    f"[torch] {name} was{'' if was_dense else ' not'} exchanged densely when the state was saved: register "
                    "with the same exclude= and min_compress_size="
                )


def check_memories(states: dict[str, Any], options: Options) -> None:
    """Raises UsageError if the Workers of these options cannot load what was saved."""
    is_own = len(states) < next(iter(states.values()))["world_size"]
    for key, one in states.items():
        for i, layout in enumerate(groups_of(one)):
            if f"group{i}" not in one:
                continue
            sparse = [(name, size) for name, size, dense in layout if not dense]
            given = {**options.for_worker(sum(size for _, size in sparse)), "threads": 1}
            try:
                _core._check_saved_worker(worker_of(one, i), sparse, int(key[4:]), one["world_size"], is_own, **given)
            except sparsewire.UsageError as error:
                names = ", ".join(name for name, _ in sparse[:2]) + (", ..." if len(sparse) > 2 else "")
                raise sparsewire.UsageError(f"[torch] the state of {key} for parameters {names}: {error}") from None
