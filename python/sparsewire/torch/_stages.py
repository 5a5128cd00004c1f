"""The threads that do a State's work: the first one does everything, or hands buckets on to the others."""

from __future__ import annotations

import os
import queue
import threading
import time
from typing import Any, Callable, Optional

import torch.distributed as dist

import sparsewire

from ._job import Job
from ._line import Line
from ._passes import Passes


_NAME = "sparsewire"  # the names of the threads begin with it


def wait_for_threads() -> None:
    """Those of States that were freed may still be closing their connections.

    The interpreter must not end meanwhile: it ends a thread that comes back from C++ in mid-function, and that aborts the
    process.
    """
    end = time.monotonic() + 5
    for thread in threading.enumerate():
        if thread.name.startswith(_NAME) and thread is not threading.current_thread():
            thread.join(max(0.0, end - time.monotonic()))


class Stages:
    """Sifts, exchanges and answers buckets, each on a thread of its own where there are messages to wait for.

    The threads hold this object and not the State, so that a State that nobody holds any more can end them.
    """

    def __init__(self, passes: Passes, group: Optional[dist.ProcessGroup], deadline: float, name: str = "State") -> None:
        self.error: Optional[Exception] = None
        self._passes = passes
        self.group = group
        self._deadline = deadline
        self._name = name  # of what users hold
        self._pid = os.getpid()
        self._is_closed = False
        self._jobs: queue.SimpleQueue[Any] = queue.SimpleQueue()  # Jobs, functions with a queue for answers, None
        self._begun = Line()  # buckets that are sifted
        self._exchanged = Line()  # those that wait for their answer
        self._threads: list[threading.Thread] = []
        self._failed: list[Job] = []  # a GPU may still be at work on them

    # --- for other threads ---

    def check_usable(self) -> None:
        if self.error is not None:
            raise self.error
        if self._is_closed:
            raise RuntimeError(f"[torch] this {self._name} was closed")
        if os.getpid() != self._pid:
            raise RuntimeError(f"[torch] this {self._name} belongs to the process that made it: make it after a fork")

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def put(self, job: Job) -> None:
        self._start()
        self._jobs.put(job)

    def refuse(self, error: Exception) -> Job:
        """A job that has failed, and all that wait with it: earlier buckets of a pass may be waiting for this one."""
        self.error = self.error or error
        failed = Job.make_failed(self.as_runtime_error(self.error))
        if self._passes.transport is not None:
            self._passes.transport.fail(str(self.error))
        if self._threads:
            self._jobs.put((lambda: self.fail(error), queue.SimpleQueue()))
        return failed

    def call(self, function: Callable[[], Any]) -> Any:
        """Runs the function on the first thread, after all buckets; between backward passes."""
        return self.begin(function)()

    def begin(self, function: Callable[[], Any]) -> Callable[[], Any]:
        """The same without waiting: what is returned waits, and returns the result."""
        if self.error is not None:
            raise self.as_runtime_error(self.error)
        self.check_usable()
        self._start()
        return self._put(function)

    def settle(self) -> None:
        """Waits until the threads have done what they were given."""
        is_own = threading.current_thread() in self._threads
        if self._threads and not is_own and not self._is_closed and os.getpid() == self._pid:
            self._put(lambda: None)()

    def stop(self) -> None:
        """The threads end when they have done what they were given."""
        self._jobs.put(None)

    def close(self) -> None:
        """Ends the threads and the connections, and waits for it."""
        if self._is_closed or os.getpid() != self._pid:
            return
        self._is_closed = True
        if self._threads and threading.current_thread() not in self._threads:
            self.stop()
            for thread in self._threads:
                thread.join(0.5)
            if any(thread.is_alive() for thread in self._threads) and self._passes.transport is not None:
                self._passes.transport.fail("the process closes its State")
                for thread in self._threads:
                    thread.join(5)
        self._passes.groups = {}
        self._passes.stepped = []
        self._passes.transport = None

    def as_runtime_error(self, error: Exception) -> RuntimeError:
        if isinstance(error, RuntimeError) and str(error).startswith("sparsewire on rank"):
            return error
        rank = dist.get_rank(self.group) if dist.is_initialized() else 0
        made = RuntimeError(f"sparsewire on rank {rank}: {type(error).__name__}: {error}")
        made.__cause__ = error
        return made

    def fail(self, error: Exception) -> None:
        if self.error is None:
            self.error = error
            transport = self._passes.transport
            if transport is not None and not isinstance(error, (sparsewire.TransportError, sparsewire.BadGradient)):
                transport.fail(f"{type(error).__name__}: {error}")
        shown = self.as_runtime_error(self.error)
        self._failed += self._passes.waiting
        for job in list(self._passes.waiting):
            job.fail(shown)
        self._passes.waiting = []

    def _put(self, function: Callable[[], Any]) -> Callable[[], Any]:
        answer: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._jobs.put((function, answer))

        def wait() -> Any:
            result, error = answer.get()
            if error is not None:
                raise error
            return result

        return wait

    def _start(self) -> None:
        if self._threads:
            return
        todo: dict[str, Callable[[], None]] = {
            _NAME: self._run,
            _NAME + " exchange": lambda: self._run_stage(self._exchange, self._begun, self._exchanged),
            _NAME + " answer": lambda: self._run_stage(self._answer, self._exchanged, None),
        }
        self._threads = [threading.Thread(target=run, daemon=True, name=name) for name, run in todo.items()]
        for thread in self._threads:
            thread.start()

    # --- the first thread ---

    def connect(self) -> None:
        self._passes.connect(self.group, self._deadline)

    def _run(self) -> None:
        while True:
            job = self._jobs.get()
            if job is None:
                self._begun.put(None)
                return
            if isinstance(job, Job):
                self._work(job)
            else:
                self._drain()
                _reply(*job)
            del job  # what it holds can be freed

    def _work(self, job: Job) -> None:
        try:
            self._passes.waiting.append(job)
            if job.first:
                self._drain()  # the end of the last pass
            self._check_error()
            self.connect()
            # Alone there are no messages to wait for, and handing over takes longer than it saves.
            if self._passes.transport is not None and self._passes.can_begin(job):
                self._passes.begin(job)
                if job.last and self._begun.is_idle:  # nothing is left to do beside it
                    self._exchange(job)
                else:
                    self._begun.put(job)
                return
            self._drain()
            self._check_error()
            self._passes.take(job)
        except BaseException as error:  # also SystemExit: backward() must not wait for ever
            self._fail_with(job, error)

    def _drain(self) -> None:
        """Waits until the other threads are idle."""
        self._begun.wait_until_idle()
        self._exchanged.wait_until_idle()

    # --- the others ---

    @staticmethod
    def _run_stage(work: Callable[[Job], None], jobs: Line, later: Optional[Line]) -> None:
        while True:
            job = jobs.get()
            if job is None:
                if later is not None:
                    later.put(None)
                return
            work(job)
            del job
            jobs.done()

    def _exchange(self, job: Job) -> None:
        try:
            self._check_error()
            self._passes.exchange(job)
            if job.last and self._exchanged.is_idle:
                self._answer(job)
            else:
                self._exchanged.put(job)
        except BaseException as error:
            self._fail_with(job, error)

    def _answer(self, job: Job) -> None:
        try:
            self._check_error()
            self._passes.answer(job)
        except BaseException as error:
            self._fail_with(job, error)

    def _check_error(self) -> None:
        if self.error is not None:
            raise self.error

    def _fail_with(self, job: Job, error: BaseException) -> None:
        self.fail(error if isinstance(error, Exception) else RuntimeError(f"{type(error).__name__}: {error}"))
        assert self.error is not None
        self._failed.append(job)
        job.fail(self.as_runtime_error(self.error))  # it may have come after the others had failed


def _reply(function: Callable[[], Any], answer: queue.SimpleQueue[Any]) -> None:
    try:
        answer.put((function(), None))
    except BaseException as error:
        answer.put((None, error))
