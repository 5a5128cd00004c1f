"""What there is to choose from, as `sparsewire list` shows it."""

from __future__ import annotations

from typing import NamedTuple

from . import _core


class Choice(NamedTuple):
    """A part that a spec string can name."""

    name: str
    summary: str
    example: str


class ExchangeChoice(NamedTuple):
    """An exchange, and whether it takes a downlink."""

    name: str
    summary: str
    example: str
    takes_downlink: bool


def sparsifiers() -> list[Choice]:
    """Every sparsifier: those of the library, then the registered ones.

    >>> [choice.example for choice in sparsifiers() if choice.name == "topk"]
    ['topk:ratio=0.01']
    """
    return [Choice(*row) for row in _core._sparsifiers()]


def codecs() -> list[Choice]:
    """Every way to write indices.

    >>> "golomb" in [choice.name for choice in codecs()]
    True
    """
    return [Choice(*row) for row in _core._codecs()]


def value_formats() -> list[Choice]:
    """Every format of values.

    >>> value_formats()[0].name
    'f32'
    """
    return [Choice(*row) for row in _core._value_formats()]


def exchanges() -> list[ExchangeChoice]:
    """Every exchange.

    >>> [choice.name for choice in exchanges() if choice.takes_downlink]
    ['server', 'sharded', 'auto']
    """
    return [ExchangeChoice(*row) for row in _core._exchanges()]
