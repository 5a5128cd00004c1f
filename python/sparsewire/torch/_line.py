"""Buckets on their way from one thread to the next."""

from __future__ import annotations

import queue
import threading
from typing import Optional

from ._job import Job


class Line:
    """Like queue.Queue with its join(), but the thread that gets wakes up faster: a SimpleQueue waits on one lock only."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Optional[Job]] = queue.SimpleQueue()
        self._changed = threading.Condition()
        self._unfinished = 0

    def put(self, job: Optional[Job]) -> None:
        """None ends the thread that gets it."""
        with self._changed:
            self._unfinished += 1
        self._jobs.put(job)

    def get(self) -> Optional[Job]:
        return self._jobs.get()

    def done(self) -> None:
        """The job that was gotten last needs nothing more."""
        with self._changed:
            self._unfinished -= 1
            if self._unfinished == 0:
                self._changed.notify_all()

    @property
    def is_idle(self) -> bool:
        return self._unfinished == 0

    def wait_until_idle(self) -> None:
        if self.is_idle:
            return
        with self._changed:
            self._changed.wait_for(lambda: self.is_idle)
