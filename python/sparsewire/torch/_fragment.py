"""A part of a model that is exchanged at once: the weights that all ranks start from, and how far this rank has moved."""

from __future__ import annotations

from typing import Mapping, Optional, Sequence

import torch

from ._groups import Group
from ._parameters import local


class Fragment:
    """``start`` has the same bits on all ranks, in float32. All tensors of it lie in the order of the group.

    How far this rank has moved is measured from what it last wrote into its model: after rounding to the type of the
    weights, and with a share of its own weights where there is one (``base``). From anything else, what rounding or
    mixing moved would be sent as well.
    """

    def __init__(
        self,
        group: Group,
        parameters: Mapping[str, torch.Tensor],
        device: torch.device,
        keeps_base: bool,
        whole: Sequence[str],
    ) -> None:
        self.group = group
        self.whole = whole  # the names, with those that copies of this process exchange
        self.parameters = [parameters[name] for name in group.names]
        self.names = group.names
        self.start = torch.empty(group.dim, dtype=torch.float32, device=device)
        self.delta = torch.empty_like(self.start)  # then what all ranks made of it
        self.base = torch.empty_like(self.start) if keeps_base else None  # None: start, in the type of the weights
        self.momentum: Optional[torch.Tensor] = None
        self.taken: list[torch.Tensor] = []  # the weights when the message was taken
        self.steps = 0  # of this rank, that are not in a message yet
        self.starts = self.views(self.start)
        self._deltas = self.views(self.delta)
        self._bases = None if self.base is None else self.views(self.base)

    def views(self, flat: torch.Tensor) -> list[torch.Tensor]:
        """As the parameters, in their order."""
        parts = zip(self.group.tensors, self.parameters)
        return [tensor.of(flat).view(local(parameter).shape) for tensor, parameter in parts]

    def by_name(self, flat: torch.Tensor) -> dict[str, torch.Tensor]:
        """Copies."""
        return {name: view.clone() for name, view in zip(self.names, self.views(flat))}

    def begin_anew(self) -> None:
        """The weights of the model are the start."""
        for view, parameter in zip(self.starts, self.parameters):
            view.copy_(local(parameter))
        if self.base is not None:
            self.base.copy_(self.start)
        self.steps = 0

    def take(self, keep: bool) -> None:
        """``delta`` becomes how far this rank has moved. keep: its weights are needed again, by give()."""
        bases = self._bases or self.starts
        for base, delta, parameter in zip(bases, self._deltas, self.parameters):
            now = local(parameter).detach()
            if now.device != delta.device:
                now = now.to(delta.device)
            if now.dtype is torch.float32:
                torch.sub(base, now, out=delta)
            else:
                delta.copy_(base if self._bases else base.to(now.dtype))
                delta.sub_(now)
        self.taken = [local(parameter).detach().clone() for parameter in self.parameters] if keep else []
        self.steps = 0

    def give(self, mix: float) -> None:
        """The model gets the new start, and the steps that it made since take(); or ``mix`` of its own weights."""
        for i, (start, parameter) in enumerate(zip(self.starts, map(local, self.parameters))):
            if self._bases is None:
                parameter.copy_(start)
                continue
            now = parameter.detach().to(start.device, torch.float32)
            # What is not in a message yet stays part of the next one, whatever becomes of the weights.
            since = now - self.taken[i].to(start.device, torch.float32) if self.taken else None
            if mix > 0:
                parameter.copy_(start + mix * (now - start))
            else:
                parameter.copy_(start if since is None else start + since)
            self._bases[i].copy_(parameter)
            if since is not None:
                self._bases[i].sub_(since)
        self.taken = []

    def give_start(self) -> None:
        """The model gets the start alone. REQUIRES: all steps are in a message."""
        self.taken = []
        self.give(0.0)
