"""What stands for one rank of LocalSteps: a process with a whole model, or several, which hold its shards or are copies."""

from __future__ import annotations

from typing import Any, Iterable, Mapping, Optional, Sequence

import torch
import torch.distributed as dist

import sparsewire

from ._parameters import local
from .fsdp import is_fsdp


class Inside:
    """A whole model in this process."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model

    def own(self, names: Sequence[str], known: Mapping[str, torch.Tensor]) -> list[str]:
        """Of the parameters of a fragment, those that this process exchanges."""
        return list(names)

    def spread(self, names: Sequence[str], known: Mapping[str, torch.Tensor]) -> None:
        """What this process exchanges was written into its model: now the others get it."""

    def restore(self) -> None:
        """Every process has written all that it holds."""


class Shards(Inside):
    """FSDP2: every process exchanges its shard with those that hold the same shard elsewhere."""

    def __init__(self, model: torch.nn.Module, group: Optional[dist.ProcessGroup]) -> None:
        super().__init__(model)
        if group is None:
            raise sparsewire.UsageError(
                "[torch] an FSDP2 model needs group=: make a mesh with dimensions replicate and shard, use "
                "fully_shard(mesh=mesh['shard']) and LocalSteps(..., group=mesh['replicate'].get_group())"
            )
        for p in model.parameters():
            mesh = getattr(p, "device_mesh", None)
            if mesh is None:
                continue
            if mesh.ndim > 1:
                raise sparsewire.UsageError(
                    "[torch] the model has a mesh of two dimensions, so FSDP2 would average the gradients of its replicas: "
                    "use fully_shard(mesh=mesh['shard'])"
                )
            _check_apart(dist.get_process_group_ranks(mesh.get_group()), group, "shards of the same model")

    def spread(self, names: Sequence[str], known: Mapping[str, torch.Tensor]) -> None:
        self.restore()

    def restore(self) -> None:
        modules: Iterable[Any] = self.model.modules()
        for module in modules:
            if is_fsdp(module):
                module.reshard()  # what it has gathered is out of date


class Copies(Inside):
    """DDP: every process exchanges some of the parameters, and the copies get them from it."""

    def __init__(self, ddp: torch.nn.parallel.DistributedDataParallel, group: Optional[dist.ProcessGroup]) -> None:
        super().__init__(ddp.module)
        if group is None:
            raise TypeError(
                "[torch] DistributedDataParallel averages every gradient, which LocalSteps makes unnecessary: give the "
                "plain module; with Accelerate, do not prepare() the model. Where DDP is for the processes of one machine "
                "alone, give group=, the processes with the same number in the others"
            )
        self._group = ddp.process_group
        self._ranks = dist.get_process_group_ranks(self._group)
        _check_apart(self._ranks, group, "copies in one DistributedDataParallel")

    def own(self, names: Sequence[str], known: Mapping[str, torch.Tensor]) -> list[str]:
        owners = self._owners(names, known)
        if not all(owners):
            raise sparsewire.UsageError(
                f"[torch] {len(names)} parameters of a fragment cannot be divided among {len(self._ranks)} copies: take "
                "fewer fragments"
            )
        return owners[dist.get_rank(self._group)]

    def _owners(self, names: Sequence[str], known: Mapping[str, torch.Tensor]) -> list[list[str]]:
        """The parameters of each copy, about equally many entries: the largest first, to who has least."""
        owned: list[list[str]] = [[] for _ in self._ranks]
        sizes = [0] * len(self._ranks)
        for name in sorted(names, key=lambda name: (-known[name].numel(), name)):
            least = sizes.index(min(sizes))
            owned[least].append(name)
            sizes[least] += max(known[name].numel(), 1)
        return owned

    def spread(self, names: Sequence[str], known: Mapping[str, torch.Tensor]) -> None:
        for rank, owned in zip(self._ranks, self._owners(names, known)):
            kinds = {(known[name].dtype, known[name].device): None for name in owned}
            for kind in kinds:
                same = [known[name].detach() for name in owned if (known[name].dtype, known[name].device) == kind]
                flat = torch.cat([one.reshape(-1) for one in same])
                dist.broadcast(flat, rank, group=self._group)
                if rank != dist.get_rank():
                    for one, part in zip(same, torch.split_with_sizes(flat, [one.numel() for one in same])):
                        one.copy_(part.view(one.shape))


def _check_apart(inside: Sequence[int], group: dist.ProcessGroup, what: str) -> None:
    both = sorted(set(inside) & set(dist.get_process_group_ranks(group)))
    if len(both) > 1:
        raise sparsewire.UsageError(
            f"[torch] ranks {both} hold {what}, and are in group=: give the processes that have the same place in the others"
        )


def inside_of(model: torch.nn.Module, group: Optional[dist.ProcessGroup]) -> Inside:
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"[torch] LocalSteps takes a module; this is a {type(model).__name__}")
    model = getattr(model, "_orig_mod", model)  # torch.compile
    if isinstance(model, torch.nn.parallel.DistributedDataParallel):
        return Copies(model, group)
    if is_fsdp(model):
        return Shards(model, group)
    for name, p in model.named_parameters():
        if local(p) is not p:
            raise TypeError(f"[torch] {name} is a {type(p.data).__name__}: of sharded models LocalSteps takes FSDP2's")
    return Inside(model)
