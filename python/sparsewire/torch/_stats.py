"""What the passes cost: sums over the groups of a pass, and over all passes."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

_SUMS = ("entries_sent", "entries_total", "dense_bytes", "bytes_up", "bytes_down", "bytes_served")
_TIMES = ("ns_sift", "ns_encode", "ns_exchange", "ns_decode", "ns_merge", "ns_apply")


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
    last: dict[str, Any] = dataclasses.field(default_factory=dict)

    def add(self, stats: list[dict[str, Any]], ranks: int) -> None:
        last: dict[str, Any] = {name: sum(one[name] for one in stats) for name in _SUMS}
        parameters = last["dense_bytes"] // 4
        last["density"] = last["entries_total"] / parameters if parameters else 0.0
        for name in ("sent_norm2", "memory_norm2"):
            last[name.replace("norm2", "norm")] = math.sqrt(sum(one[name] for one in stats))
        for name in _TIMES:
            last["seconds_" + name[3:]] = sum(one[name] for one in stats) / 1e9
        dense = last["dense_bytes"] * 4 * (ranks - 1) / ranks  # 2(P-1)/P out, as much in
        moved = last["bytes_up"] + last["bytes_down"] + last["bytes_served"]
        last["factor_against_dense"] = dense / moved if moved else 1.0
        self.last = last
        self.steps += 1
        self.bytes_up += last["bytes_up"]
        self.bytes_down += last["bytes_down"]
        self.bytes_served += last["bytes_served"]
        self.bytes_dense += int(dense)

    def as_dict(self) -> dict[str, Any]:
        moved = self.bytes_up + self.bytes_down + self.bytes_served
        totals = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        totals["factor_against_dense"] = self.bytes_dense / moved if moved else 1.0
        return totals

    def so_far(self) -> dict[str, Any]:
        """What stands in every line of the metrics: the axes of charts."""
        return {"seconds": self.seconds, "rank_bytes_up": self.bytes_up, "rank_bytes_down": self.bytes_down}

    def save(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    @classmethod
    def load(cls, saved: dict[str, Any]) -> Totals:
        known = {field.name for field in dataclasses.fields(cls)}
        return cls(**{name: value for name, value in saved.items() if name in known})
