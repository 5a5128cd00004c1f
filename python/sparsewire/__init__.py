"""Sparse gradients for data-parallel training.

A :class:`Sifter` adds a gradient to its error memory and moves the entries worth sending out of it; :func:`encode` and
:func:`decode` turn them into bytes and back; a :class:`Worker` does all of it together with other ranks. To try an idea
of your own, derive from :class:`Sparsifier`.

>>> import numpy, sparsewire
>>> sifter = sparsewire.Sifter("topk:ratio=0.25", 8)
>>> sent = sifter.sift(numpy.array([5, -1, 0, 2, -7, 1, 0, 3], numpy.float32))
>>> sent.indices.tolist(), sent.values.tolist()
([0, 4], [5.0, -7.0])
>>> frame = sparsewire.encode(sent)
>>> sparsewire.decode(frame) == sent
True

After a fork the child has no threads but its own: make new Workers and transports there, and new Sifters if they have
more than one thread.
"""

from __future__ import annotations

from ._core import (
    Sifter,
    SparseVector,
    TcpListener,
    ThreadGroup,
    Transport,
    Worker,
    __version__,
    decode,
    encode,
    has_cuda,
    has_mpi,
    inspect,
    local_address_towards,
    mpi_transport,
    tcp_transport,
)
from ._errors import BadGradient, FormatError, RankFailed, ReplicasDiffer, TransportError, UsageError
from ._lists import Choice, ExchangeChoice, codecs, exchanges, sparsifiers, value_formats
from ._sparsifier import Context, Registration, Sparsifier, register_sparsifier, unregister_sparsifier
from ._threads import run_on_threads

__all__ = [
    "BadGradient",
    "Choice",
    "Context",
    "ExchangeChoice",
    "FormatError",
    "RankFailed",
    "Registration",
    "ReplicasDiffer",
    "Sifter",
    "SparseVector",
    "Sparsifier",
    "TcpListener",
    "ThreadGroup",
    "Transport",
    "TransportError",
    "UsageError",
    "Worker",
    "__version__",
    "codecs",
    "decode",
    "encode",
    "exchanges",
    "has_cuda",
    "has_mpi",
    "inspect",
    "local_address_towards",
    "mpi_transport",
    "register_sparsifier",
    "run_on_threads",
    "sparsifiers",
    "tcp_transport",
    "unregister_sparsifier",
    "value_formats",
]

# A traceback says sparsewire.BadGradient, whichever file it lies in.
for _public in (BadGradient, FormatError, RankFailed, ReplicasDiffer, TransportError, UsageError):
    _public.__module__ = __name__
del _public
