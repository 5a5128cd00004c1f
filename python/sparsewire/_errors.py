"""The exceptions of the library; the C++ module raises them."""

from __future__ import annotations

from typing import Any


class UsageError(ValueError):
    """An argument that cannot work. The message names the value and what is allowed."""


class FormatError(ValueError):
    """Bytes that are not a valid frame."""


class BadGradient(RuntimeError):
    """A NaN, an infinity, or a sum that overflows. The step was taken back on all ranks; the next one can follow.

    ``rank`` had the gradient, ``index`` is the lowest index that is not finite, ``step`` the number of the step: a Sifter
    or Worker counts from 0, sparsewire.torch from 1. Rank and index are -1 if it is the update of all ranks that
    overflows, which sparsewire.torch finds for float16.
    """

    def __init__(self, message: str, rank: int, step: int, index: int) -> None:
        super().__init__(message)
        self.rank = rank
        self.step = step
        self.index = index

    def __reduce__(self) -> tuple[Any, ...]:
        return (BadGradient, (str(self), self.rank, self.step, self.index))


class RankFailed(RuntimeError):
    """Rank ``rank`` could not do its part, and raises its own error. All ranks took the step back.

    Or it could not take part in ``sparsewire.torch.register()``.
    """

    def __init__(self, message: str, rank: int) -> None:
        super().__init__(message)
        self.rank = rank

    def __reduce__(self) -> tuple[Any, ...]:
        return (RankFailed, (str(self), self.rank))


class ReplicasDiffer(RuntimeError):
    """Ranks got different updates: faulty hardware, or a bug in sparsewire."""


class TransportError(ConnectionError):
    """Rank ``rank`` is gone, silent, or sent what cannot be read; -1: not known. Make a new transport, load a state."""

    def __init__(self, message: str, rank: int) -> None:
        super().__init__(message)
        self.rank = rank

    def __reduce__(self) -> tuple[Any, ...]:
        return (TransportError, (str(self), self.rank))
