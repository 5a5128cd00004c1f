"""How a model is divided into fragments, and what LocalSteps cannot work with."""

from __future__ import annotations

from typing import Any, Optional, Sequence, Union

import torch

import sparsewire

from ._groups import Group, Tensor
from ._options import Options
from ._parameters import Parameters, local

Fragments = Union[int, Sequence[torch.nn.Module]]

_BAD_WEIGHTS = (
    "[torch] the weights of rank {rank} are not finite at {where} in exchange {number}, or a sum of how far they moved is "
    "not: start the processes again from a checkpoint"
)


def check_rhythm(every: Any, parts: int, delay: Any, mix: Any, memory: Any) -> None:
    if type(every) is not int or every < 1:
        raise sparsewire.UsageError(f"[torch] every={every!r} is not a number of steps of at least 1")
    if every % parts != 0:
        raise sparsewire.UsageError(f"[torch] every={every} is no multiple of the number of fragments, {parts}")
    if type(delay) is not int or not 0 <= delay <= every // parts:
        raise sparsewire.UsageError(
            f"[torch] delay={delay!r} is not in [0, {every // parts}]: one exchange ends before the next one begins"
        )
    if not isinstance(mix, (int, float)) or not 0 <= mix < 1:
        raise sparsewire.UsageError(f"[torch] mix={mix!r} is not in [0, 1)")
    if memory not in ("device", "host"):
        raise sparsewire.UsageError(f"[torch] memory={memory!r} is neither 'device' nor 'host'")


def check_parameters(known: dict[str, torch.Tensor], optimizer: Optional[torch.optim.Optimizer]) -> None:
    if not known:
        raise sparsewire.UsageError("[torch] the model has no parameter that requires a gradient")
    for name, p in known.items():
        if p.dtype not in (torch.float32, torch.bfloat16, torch.float16):
            raise TypeError(f"[torch] {name} is of {p.dtype}: float32, bfloat16 and float16 are supported")
    if optimizer is not None:
        trained = {id(p) for group in optimizer.param_groups for p in group["params"]}
        if not trained & {id(p) for p in known.values()}:
            raise sparsewire.UsageError("[torch] the optimizer has none of the model's parameters: make it of this model")


def divide(model: torch.nn.Module, known: dict[str, torch.Tensor], fragments: Fragments) -> list[list[str]]:
    """The names of the parameters of each fragment."""
    if type(fragments) is int:
        if not 1 <= fragments <= max(len(known), 1):
            raise sparsewire.UsageError(f"[torch] fragments={fragments} is not in [1, {len(known)}], the parameters there are")
        total, before = sum(p.numel() for p in known.values()), 0
        parts: list[list[str]] = [[] for _ in range(fragments)]
        names = list(known)
        for i, name in enumerate(names):
            middle = before + known[name].numel() / 2
            at = min(fragments - 1, int(fragments * middle / max(total, 1)))
            # No fragment stays empty: the parameters that are left must reach the fragments that are.
            at = max(at, fragments - (len(names) - i))
            filled = next((f for f, part in enumerate(parts) if not part), fragments)
            parts[min(at, filled)].append(name)
            before += known[name].numel()
        return parts
    names_of = {id(p): name for name, p in known.items()}
    divided: list[list[str]] = []
    for module in fragments:  # type: ignore[union-attr]
        if not isinstance(module, torch.nn.Module):
            raise TypeError("[torch] fragments= takes a number, or a list of modules of the model")
        divided.append([names_of[id(p)] for p in module.parameters() if p.requires_grad and id(p) in names_of])
    flat = [name for part in divided for name in part]
    if len(set(flat)) < len(flat):
        twice = next(name for name in flat if flat.count(name) > 1)
        raise sparsewire.UsageError(f"[torch] fragments: {twice} is in two of the modules")
    missing = [name for name in known if name not in set(flat)]
    if missing or not all(divided):
        what = f"{missing[0]} is in none of the modules" if missing else "a module has no parameter that is trained"
        raise sparsewire.UsageError(f"[torch] fragments: {what}")
    return divided


def group_of(names: Sequence[str], options: Options, parameters: Parameters) -> Group:
    """Those that go densely lie first, so that both kinds are neighbours."""
    known = parameters.by_name()
    names = [name for name in names if local(known[name]).numel() > 0]  # a shard may have nothing of it
    dense = {name: parameters.is_dense(name, known[name].numel(), known[name]) for name in names}
    tensors, start = [], 0
    for name in sorted(names, key=lambda name: not dense[name]):
        size = local(known[name]).numel()
        tensors.append(Tensor(name, start, size, dense[name]))
        start += size
    if not tensors:
        raise sparsewire.UsageError("[torch] this process has no entry of a fragment: give fewer fragments=")
    return Group(tensors, options, None, _BAD_WEIGHTS)  # without connections yet
