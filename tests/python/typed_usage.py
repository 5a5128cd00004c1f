"""Read by mypy --strict in types_test.py: what users write has the types that they expect."""

from __future__ import annotations

import numpy
from numpy.typing import NDArray
from typing_extensions import assert_type

import sparsewire


class Largest(sparsewire.Sparsifier):
    def __init__(self, context: sparsewire.Context, *, ratio: float = 0.01) -> None:
        super().__init__(context)
        self.k = max(1, round(ratio * context.dim))

    def choose(self, accumulated: NDArray[numpy.float32]) -> list[int]:
        return sorted(numpy.argsort(-abs(accumulated), kind="stable")[: self.k].tolist())

    def save(self) -> dict[str, int]:
        return {"k": self.k}

    def load(self, state: dict[str, int]) -> None:
        self.k = state["k"]


def use(gradient: NDArray[numpy.float32]) -> None:
    with sparsewire.register_sparsifier("largest", Largest, {"ratio": float}):
        sifter = sparsewire.Sifter("largest:ratio=0.1", {"weight": 90, "bias": 10}, feedback="ef", seed=1)
        sent = sifter.sift(gradient, lr=0.1)
        assert_type(sent, sparsewire.SparseVector)
        assert_type(sent.indices, NDArray[numpy.uint32])
        assert_type(sifter.stats()["entries"], int)
        sifter.load(sifter.save())

    frame = sparsewire.encode(sent, codec="auto")
    assert_type(frame, bytes)
    assert_type(sparsewire.encode([1], [0.5], 2), bytes)
    assert_type(sparsewire.inspect(frame)["codec"], str)

    def body(transport: sparsewire.Transport) -> float:
        worker = sparsewire.Worker([("all", 100)], transport=transport, sparsifier="topk:k=1", downlink=None)
        worker.step(gradient, loss=1.0)
        worker.retune(sparsifier="topk:k=2")
        worker.apply_update(gradient, 0.1)
        return worker.stats()["loss"]

    assert_type(sparsewire.run_on_threads(2, body, deadline=10), list[float])
    sparsewire.Worker(3, sparsifer="topk")  # type: ignore[call-arg]
    sparsewire.Sifter("topk:k=1", 3).sift("text")  # type: ignore[call-overload]
