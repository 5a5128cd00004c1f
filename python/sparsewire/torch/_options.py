"""What a user chooses, in one place: checked, saved, and turned into the options of a Worker."""

from __future__ import annotations

import dataclasses
import difflib
import json
import re
from typing import Any, Callable, Collection, Optional, Union

import sparsewire

Exclude = Union[None, Collection[str], Callable[[str, Any], bool]]


@dataclasses.dataclass
class Options:
    sparsifier: str = "topk:ratio=0.01"
    exchange: str = "sharded"
    downlink: Optional[str] = None
    codec: str = "auto"
    downlink_codec: Optional[str] = None
    feedback: str = "ef"
    scope: str = "model"
    seed: int = 0
    check_every: int = 100
    threads: int = 1
    start_step: int = 0
    min_compress_size: int = 0

    @classmethod
    def make(cls, given: dict[str, Any]) -> Options:
        """Raises TypeError if an option has another name."""
        known = [field.name for field in dataclasses.fields(cls)]
        unknown = [name for name in given if name not in known]
        if unknown:
            every = [*known, "exclude", "scaler", "deadline", "metrics"]
            near = difflib.get_close_matches(unknown[0], every, n=1)
            meant = f"; did you mean {near[0]!r}?" if near else "."
            raise TypeError(f"[torch] {unknown[0]!r} is no option{meant} There are {', '.join(every)}")
        return cls(**given)

    def __post_init__(self) -> None:
        for name in ("sparsifier", "exchange", "codec", "feedback", "scope", "downlink", "downlink_codec"):
            value = getattr(self, name)
            if not isinstance(value, str) and not (value is None and name.startswith("downlink")):
                raise TypeError(f"[torch] {name}={value!r} is not a string such as {'topk:ratio=0.01'!r}")
        for name in ("start_step", "min_compress_size"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 0:
                raise sparsewire.UsageError(f"[torch] {name}={value!r} is not a number of at least 0")
        if "scale=lr" in self.feedback:
            raise sparsewire.UsageError(
                "[torch] feedback scale=lr needs the learning rate, which a hook does not know: use feedback='ef'"
            )

    def check(self, dim: int) -> None:
        """Raises UsageError here, not in mid-backward."""
        sparsewire.Worker(max(dim, 1), **self.for_worker(dim))

    def for_worker(self, dim: int) -> dict[str, Any]:
        """Of a bucket with so many entries. DDP decides their sizes: one that has fewer than `k=` sends all of them."""
        names = ("sparsifier", "exchange", "downlink", "codec", "downlink_codec", "feedback", "scope", "seed")
        chosen = {name: getattr(self, name) for name in (*names, "check_every", "threads")}
        for name in ("sparsifier", "downlink"):
            if chosen[name] is not None:
                chosen[name] = re.sub(r"(?<=[:,])k=(\d+)", lambda k: f"k={min(int(k[1]), max(dim, 1))}", chosen[name])
        return chosen

    def for_dense(self) -> dict[str, Any]:
        return {"sparsifier": "dense", "exchange": "dense", "feedback": "none", "check_every": self.check_every}

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), sort_keys=True)
