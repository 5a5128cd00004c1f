"""What the passes cost: sums over the groups of a pass, and over all passes."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any, NamedTuple, Optional, Sequence

if TYPE_CHECKING:
    from sparsewire._core import _LastStats

_SUMS = ("entries_sent", "entries_total", "dense_bytes", "bytes_up", "bytes_down", "bytes_served")
_TIMES = ("ns_sift", "ns_encode", "ns_exchange", "ns_decode", "ns_merge", "ns_apply")


def _dense_traffic(dense_bytes: int, ranks: int) -> float:
    """What an all-reduce of so many bytes sends and receives: 2(P-1)/P out, as much in."""
    return dense_bytes * 4 * (ranks - 1) / ranks


class PartStats(NamedTuple):
    """What the step of a Worker cost."""

    numbers: _LastStats
    is_sparse: bool

    @property
    def bytes_served(self) -> int:
        """In an all-reduce every rank also serves a part."""
        return self.numbers.bytes_served if self.is_sparse else self.numbers.bytes_up + self.numbers.bytes_down

    def to_dict(self) -> dict[str, Any]:
        return {**self.numbers.to_dict(), "bytes_served": self.bytes_served}


def _of_pass(parts: Sequence[PartStats], ranks: int) -> dict[str, Any]:
    """The numbers of a pass, from those of its steps."""
    stats = [part.to_dict() for part in parts]
    found: dict[str, Any] = {name: sum(one[name] for one in stats) for name in _SUMS}
    parameters = found["dense_bytes"] // 4
    found["density"] = found["entries_total"] / parameters if parameters else 0.0
    for name in ("sent_norm2", "memory_norm2"):
        found[name.replace("norm2", "norm")] = math.sqrt(sum(one[name] for one in stats))
    for name in _TIMES:
        found["seconds_" + name[3:]] = sum(one[name] for one in stats) / 1e9
    dense = _dense_traffic(found["dense_bytes"], ranks)
    moved = found["bytes_up"] + found["bytes_down"] + found["bytes_served"]
    found["factor_against_dense"] = dense / moved if moved else 1.0
    return found


@dataclasses.dataclass
class Totals:
    steps: int = 0
    skipped: int = 0  # because a gradient was infinite
    bytes_up: int = 0
    bytes_down: int = 0
    bytes_served: int = 0
    bytes_dense: int = 0  # what an all-reduce of f32 would have sent and received
    seconds: float = 0.0  # since the ranks were connected, with those before a state was loaded
    host_copies: int = 0  # buckets of a GPU that were copied to the host
    device: str = "host"  # where the last pass was worked on

    def __post_init__(self) -> None:
        self._last: dict[str, Any] = {}
        self._newest: Optional[tuple[Sequence[PartStats], int]] = None  # what `last` is made of when it is asked for

    def add(self, parts: Sequence[PartStats], ranks: int) -> None:
        """One pass more. backward() returns after it, so it does no more than it has to."""
        self._newest = parts, ranks
        self.steps += 1
        dense = 0
        for part in parts:
            self.bytes_up += part.numbers.bytes_up
            self.bytes_down += part.numbers.bytes_down
            self.bytes_served += part.bytes_served
            dense += part.numbers.dense_bytes
        self.bytes_dense += int(_dense_traffic(dense, ranks))

    @property
    def last(self) -> dict[str, Any]:
        """The numbers of the last pass."""
        if self._newest is not None:
            self._last, self._newest = _of_pass(*self._newest), None
        return self._last

    def as_dict(self) -> dict[str, Any]:
        moved = self.bytes_up + self.bytes_down + self.bytes_served
        return {**self.save(), "factor_against_dense": self.bytes_dense / moved if moved else 1.0}

    def so_far(self) -> dict[str, Any]:
        """What stands in every line of the metrics: the axes of charts."""
        return {"seconds": self.seconds, "rank_bytes_up": self.bytes_up, "rank_bytes_down": self.bytes_down}

    def save(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "last": self.last}

    @classmethod
    def load(cls, saved: Any) -> Totals:
        """Raises ValueError if it is not what save() returned; a number may be missing."""
        if not isinstance(saved, dict) or not isinstance(saved.get("last", {}), dict):
            raise ValueError
        made = cls()
        for name, default in dataclasses.asdict(made).items():
            value = saved.get(name, default)
            is_number = type(value) in (int, float) and 0 <= value < 1 << 63
            if not (isinstance(value, str) if isinstance(default, str) else is_number):
                raise ValueError
            setattr(made, name, value)
        made._last = saved.get("last", {})
        return made
