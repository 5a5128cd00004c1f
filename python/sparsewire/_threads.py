"""Ranks as threads of this process."""

from __future__ import annotations

import threading
from typing import Callable, TypeVar

from ._core import ThreadGroup, Transport

T = TypeVar("T")


def run_on_threads(size: int, body: Callable[[Transport], T], deadline: float = 300) -> list[T]:
    """Calls body(transport) on `size` threads, one for each rank, and returns their results in rank order.

    If a body raises, the other ranks get a TransportError in their next call, and what was raised first is raised here.
    `deadline`: seconds of silence after which a rank counts as lost.

    >>> run_on_threads(3, lambda transport: b"".join(transport.all_gather(b"%d" % transport.rank)))
    [b'012', b'012', b'012']
    """
    group = ThreadGroup(size, deadline)
    results: dict[int, T] = {}
    errors: list[BaseException] = []

    def run(rank: int) -> None:
        try:
            results[rank] = body(group.at(rank))
            group.mark_done(rank)
        except BaseException as error:  # noqa: BLE001 - also SystemExit: the other ranks must not wait
            errors.append(error)
            group.mark_lost(rank, f"{type(error).__name__}: {error}")

    threads = [threading.Thread(target=run, args=(rank,), name=f"rank {rank}") for rank in range(size)]
    started: list[threading.Thread] = []
    try:
        for thread in threads:
            thread.start()
            started.append(thread)
        for thread in started:
            thread.join()
    except BaseException as error:
        # Ctrl-C, or no more threads: the ranks end at their next call.
        group.mark_lost(0, f"{type(error).__name__}: {error}")
        for thread in started:
            thread.join()
        raise
    try:
        if errors:
            raise errors[0]
        return [results[rank] for rank in range(size)]
    finally:
        del errors  # its tracebacks refer to this frame
