"""What a user chooses, in one place: checked, saved, and turned into the options of a Worker."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any, Callable, Collection, Mapping, Optional, Union

import sparsewire

Exclude = Union[None, Collection[str], Callable[[str, Any], bool]]


_TEXTS = ("sparsifier", "exchange", "codec", "feedback", "scope", "average", "downlink", "downlink_codec")
_CHECKED_DIM = 1 << 16


@dataclasses.dataclass
class Options:
    """The one list of them: `register()`, `State` and `LocalSteps` write it out for editors and type checkers."""

    sparsifier: str = "topk:ratio=0.01"
    exchange: str = "sharded"
    downlink: Optional[str] = None
    codec: str = "auto"
    downlink_codec: Optional[str] = None
    feedback: str = "ef"
    scope: str = "model"
    average: str = "all"
    seed: int = 0
    check_every: int = 100
    threads: int = 1
    start_step: int = 0
    min_compress_size: int = 0

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> Options:
        """Those among the arguments of a function."""
        known = {field.name for field in dataclasses.fields(cls)}
        return cls(**{name: value for name, value in arguments.items() if name in known})

    def changed(self, **given: Any) -> Options:
        """With those that are not None. Checked."""
        made = dataclasses.replace(self, **{name: value for name, value in given.items() if value is not None})
        made.check()
        return made

    def __post_init__(self) -> None:
        for name in _TEXTS:
            value = getattr(self, name)
            if not isinstance(value, str) and not (value is None and name.startswith("downlink")):
                raise TypeError(f"[torch] {name}={value!r} is not a string such as {'topk:ratio=0.01'!r}")
        for name in ("start_step", "min_compress_size", "seed", "check_every"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 0:
                raise sparsewire.UsageError(f"[torch] {name}={value!r} is not a number of at least 0")
        if "scale=lr" in self.feedback:
            raise sparsewire.UsageError(
                "[torch] feedback scale=lr needs the learning rate, which a hook does not know: use feedback='ef'"
            )

    def check(self) -> None:
        """Raises UsageError here, not in mid-backward."""
        sparsewire.Worker(_CHECKED_DIM, **self.for_worker(_CHECKED_DIM))

    def for_worker(self, dim: int) -> dict[str, Any]:
        """Of a bucket with so many entries. DDP decides their sizes: one that has fewer than `k=` sends all of them."""
        chosen = {name: getattr(self, name) for name in (*_TEXTS, "seed", "check_every", "threads")}
        for name in ("sparsifier", "downlink"):
            if chosen[name] is not None:
                chosen[name] = re.sub(r"(?<=[:,])k=(\d+)", lambda k: f"k={min(int(k[1]), max(dim, 1))}", chosen[name])
        return chosen

    def for_dense(self) -> dict[str, Any]:
        """Of parameters that are not sifted. Rounded to bf16 where the values of the others are rounded."""
        dense = {"sparsifier": "dense", "exchange": "dense", "feedback": "none", "check_every": self.check_every}
        if self.takes_weights:  # an all-reduce cannot leave out a rank that has made no steps
            dense["exchange"] = "server" if self.exchange == "server" else "sharded"
            rounds = re.search(r"values=(?!f32)", self.codec)
            dense.update(feedback="ef", codec="auto:values=bf16" if rounds else "auto")
        return {**dense, "average": self.average}

    @property
    def takes_weights(self) -> bool:
        """Whether ranks may have weights that change from step to step."""
        plain = self.exchange not in ("dense", "auto") and "regtopk" not in self.sparsifier
        return self.average == "senders" and plain

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), sort_keys=True)
