"""The form of a saved LocalSteps, and whether it can be loaded here.

A dict of tensors, numbers and strings: "exchange" is what the exchange remembers, as in _saved.py, the rest belongs to the
weights. The consolidated form has all ranks in "exchange", and no steps of a single rank.
"""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING, Any, Mapping

import torch

import sparsewire

from . import _saved
from ._parameters import local

if TYPE_CHECKING:
    from ._fragment import Fragment
    from .local_steps import LocalSteps

_FORMAT = 1
_NUMBERS = ("steps", "since", "exchanges")


def make(outer: LocalSteps, exchanged: dict[str, Any], only_start: bool = False) -> dict[str, Any]:
    fragments = outer._fragments
    state: dict[str, Any] = {
        "format": _FORMAT,
        "consolidated": only_start,
        "exchange": exchanged,
        "steps": outer._steps,
        "since": 0 if only_start else outer._since,
        "exchanges": outer._exchanges,
        "fragments": [list(fragment.names) for fragment in fragments],
        "steps_of": [0 if only_start else fragment.steps for fragment in fragments],
        "start": _whole(fragments, "start"),
        "momentum": _whole(fragments, "momentum"),
        "base": {} if only_start else _whole(fragments, "base"),
        "outer_optimizers": [copy.deepcopy(one.state_dict()) for one in outer._outer.optimizers],
        "under_way": None,
    }
    under_way = outer._under_way
    if under_way is not None:
        fragment = under_way.fragment
        update = fragment.delta
        if outer._outer.is_sparse and not under_way.is_dense:
            update = torch.empty_like(fragment.delta)
            fragment.group.answer(update, 1.0, [])
        state["under_way"] = {
            "fragment": fragments.index(fragment),
            "left": under_way.left,
            "flags": under_way.flags(),
            "update": update.clone(),
            "taken": dict(zip(fragment.names, (one.clone() for one in fragment.taken))),
        }
    return state


def _whole(fragments: list[Fragment], kind: str) -> dict[str, torch.Tensor]:
    """By parameter; empty where there is no such thing."""
    found: dict[str, torch.Tensor] = {}
    for fragment in fragments:
        flat = getattr(fragment, kind)
        if flat is not None:
            found.update(fragment.by_name(flat))
    return found


def load(outer: LocalSteps, state: Any) -> None:
    """Raises UsageError before anything has changed."""
    _check_form(state)
    fragments = outer._fragments
    rank, size = outer._place()
    chosen = _saved.choose(state["exchange"], rank, size, outer.options)
    _saved.check_names(chosen, outer._parameters)
    _saved.check_memories(chosen, outer.options)
    if len(state["steps_of"]) != len(fragments) or state["fragments"] != [list(fragment.names) for fragment in fragments]:
        raise _misfit("it was saved with other fragments=: give the same")
    only_start = state["consolidated"]
    kinds = ["start"] + ["momentum"] * (fragments[0].momentum is not None)
    kinds += ["base"] * (fragments[0].base is not None and not only_start)
    for kind in kinds:
        _check_tensors(state, kind, fragments)
    if state["under_way"] is not None:
        _check_under_way(state["under_way"], fragments)
        left = state["under_way"]["left"]
        if left > outer._delay or state["since"] + left > outer._interval:
            raise _misfit("an exchange is under way that would not have arrived before the next one: give every= and delay= as before")
    for i, group in enumerate(outer._passes.groups.values()):
        missing = [f"{kind}{i}" for kind in group.workers if not all(f"{kind}{i}" in one for one in chosen.values())]
        if missing:
            raise _damaged(f"{missing[0]!r} is missing")
    if bool(state["momentum"]) != (fragments[0].momentum is not None):
        raise _misfit("it was saved with another outer_momentum=: give the same")
    if len(state["outer_optimizers"]) != len(outer._outer.optimizers):
        raise _misfit("it was saved with another outer_optimizer=: give the same")
    if bool(state["base"]) != (fragments[0].base is not None) and not only_start:
        raise _misfit("delay= and mix= were 0 then or are now, and were not or are not: give the same")

    for optimizer, saved in zip(outer._outer.optimizers, state["outer_optimizers"]):
        _check_optimizer(saved, optimizer)

    for optimizer, saved in zip(outer._outer.optimizers, state["outer_optimizers"]):
        optimizer.load_state_dict(saved)
    outer._call(lambda: outer._passes.load_groups(chosen, rank))
    outer._steps, outer._since, outer._exchanges = (state[name] for name in _NUMBERS)
    for fragment, steps in zip(fragments, state["steps_of"]):
        for kind in kinds:
            for name, view in zip(fragment.names, fragment.views(getattr(fragment, kind))):
                view.copy_(state[kind][name])
        fragment.steps = steps
        if only_start:
            fragment.give_start()
            outer._inside.spread(fragment.whole, outer._known)
    if state["under_way"] is not None:
        outer._go_on_with(state["under_way"])


def _misfit(what: str) -> sparsewire.UsageError:
    return sparsewire.UsageError(f"[torch] the state of LocalSteps does not fit: {what}")


def _check_form(state: Any) -> None:
    if not isinstance(state, Mapping) or not {"exchange", "start", "under_way"} <= state.keys():
        raise sparsewire.UsageError(
            "[torch] this is not what LocalSteps.state_dict() returned. Of a whole checkpoint, give the part that "
            "state_dict() returned"
        )
    if type(state.get("format")) is not int or state["format"] != _FORMAT:
        raise sparsewire.UsageError(
            f"[torch] the state of LocalSteps has format {_saved.shown(state.get('format'))}, and this version reads "
            f"{_FORMAT}: load it with the version that saved it"
        )
    kinds = {"consolidated": bool, "exchange": dict, "fragments": list, "steps_of": list, "start": dict, "momentum": dict}
    kinds.update({"base": dict, "outer_optimizers": list, **{name: int for name in _NUMBERS}})
    for name, kind in kinds.items():
        if type(state.get(name)) is not kind:
            raise _damaged(f"{name!r} is {_saved.shown(state.get(name, 'missing'))}")
    numbers = [*(state[name] for name in _NUMBERS), *state["steps_of"]]
    if not all(type(number) is int and 0 <= number < 1 << 63 for number in numbers):
        raise _damaged("its numbers of steps are impossible")


def _check_under_way(saved: Any, fragments: list[Fragment]) -> None:
    if not isinstance(saved, dict) or set(saved) != {"fragment", "left", "flags", "update", "taken"}:
        raise _damaged("'under_way' cannot be read")
    if any(type(saved[name]) is not int or saved[name] < 0 for name in ("fragment", "left", "flags")):
        raise _damaged("'under_way' has impossible numbers")
    if saved["fragment"] >= len(fragments) or not isinstance(saved["taken"], dict):
        raise _damaged("'under_way' is of no fragment")
    fragment = fragments[saved["fragment"]]
    if not _is_like(saved["update"], fragment.delta):
        raise _damaged("'under_way' has another size")
    for name, parameter in zip(fragment.names, fragment.parameters):
        if not _is_like(saved["taken"].get(name), local(parameter)):
            raise _damaged(f"'under_way' has not the numbers of {name}")


def _damaged(what: str) -> sparsewire.UsageError:
    return sparsewire.UsageError(f"[torch] the state of LocalSteps is damaged: {what}; load another checkpoint")


def _check_tensors(state: Any, kind: str, fragments: list[Fragment]) -> None:
    for fragment in fragments:
        for name, parameter in zip(fragment.names, fragment.parameters):
            if not _is_like(state[kind].get(name), local(parameter)):
                raise _damaged(f"{kind!r} has not the numbers of {name}")


def _check_optimizer(saved: Any, optimizer: torch.optim.Optimizer) -> None:
    """By what it has now: the settings of its groups, and tensors that are a number or as large as their parameter."""
    groups = saved.get("param_groups") if isinstance(saved, dict) and set(saved) == {"state", "param_groups"} else None
    if not isinstance(groups, list) or not isinstance(saved["state"], dict) or len(groups) != len(optimizer.param_groups):
        raise _damaged("'outer_optimizers' cannot be read")
    parameters: dict[int, torch.Tensor] = {}
    for group, here in zip(groups, optimizer.param_groups):
        numbers = group.get("params") if isinstance(group, dict) else None
        if not isinstance(numbers, list) or len(numbers) != len(here["params"]) or not set(optimizer.defaults) <= set(group):
            raise _damaged("'outer_optimizers' has other groups")
        if not all(type(number) is int for number in numbers):
            raise _damaged("'outer_optimizers' has other parameters")
        parameters.update(zip(numbers, here["params"]))
        for name, value in here.items():  # a scheduler adds some
            if name != "params" and name in group and not _is_setting_like(group[name], value):
                raise _damaged(f"'outer_optimizers' has {name}={_saved.shown(group[name])}")
    for number, entry in saved["state"].items():
        if type(number) is not int or number not in parameters or not isinstance(entry, dict):
            raise _damaged("'outer_optimizers' has the state of no parameter")
        for name, value in entry.items():
            if isinstance(value, torch.Tensor) and value.dim() > 0 and not _is_like(value, parameters[number]):
                raise _damaged(f"'outer_optimizers' has a {name} of another size, or one that is not finite")
            if not isinstance(value, (torch.Tensor, int, float, bool, type(None))):
                raise _damaged(f"'outer_optimizers' has {name}={_saved.shown(value)}")


def _is_setting_like(found: Any, here: Any) -> bool:
    if isinstance(here, (list, tuple)):
        return isinstance(found, (list, tuple)) and len(found) == len(here) and all(map(_is_setting_like, found, here))
    if isinstance(here, torch.Tensor) or isinstance(found, torch.Tensor):
        return _is_like(found, here) if isinstance(here, torch.Tensor) else False
    if isinstance(here, (int, float)) and not isinstance(here, bool):
        return isinstance(found, (int, float)) and not isinstance(found, bool) and (math.isfinite(found) or found == here)
    return found is None or here is None or type(found) is type(here)


def _is_like(found: Any, tensor: torch.Tensor) -> bool:
    if not isinstance(found, torch.Tensor) or found.is_meta or found.layout != torch.strided:
        return False
    return found.shape == tensor.shape and found.is_floating_point() and bool(found.isfinite().all())
