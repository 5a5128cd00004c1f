"""Real gloo processes for tests: run(size, body, ...) calls a function of bodies.py in each, and returns what they return.

Most of the time of such a process goes into importing torch, so one process imports it and becomes all ranks
(`models.become_ranks`), and they are kept for the next call, unless something went wrong or the test asks for its own
(`Ranks`).
"""

import atexit
import json
import os
import queue
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import patience

BODIES = Path(__file__).parent / "bodies.py"
LIMIT = patience.patient(240)


def free_port():
    """One that the system gives nobody by itself: a process takes it only some seconds later."""
    given = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    while True:
        port = random.randrange(10000, max(11000, int(given[0])))
        with socket.socket() as probing:
            try:
                probing.bind(("127.0.0.1", port))
                return port
            except OSError:  # somebody has it
                pass


class Ranks:
    """Processes that are all gone at the end, whatever happens."""

    def __init__(self, size, bodies=BODIES):
        self._questions, self._printed, files = [], [], []
        self._answers = queue.Queue()  # of all ranks, because the first one that fails counts
        for rank in range(size):
            reading, question = os.pipe()
            answer, writing = os.pipe()
            files.append((reading, writing))
            self._questions.append(os.fdopen(question, "w"))
            self._printed.append([])
            threading.Thread(target=self._read, args=(rank, os.fdopen(answer)), daemon=True).start()
        tests = str(Path(patience.__file__).parent)
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([*filter(None, [os.environ.get("PYTHONPATH")]), tests]),
            "WORLD_SIZE": str(size),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(free_port()),
            "OMP_NUM_THREADS": "1",
            "RANK_FILES": json.dumps(files),
        }
        theirs = sum(files, ())
        self._process = subprocess.Popen(
            [sys.executable, str(bodies)],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            pass_fds=theirs,
            text=True,
            start_new_session=True,
        )
        for file in theirs:
            os.close(file)
        self._endings = queue.Queue()
        threading.Thread(target=self._watch, daemon=True).start()

    def _read(self, rank, file):
        for line in file:
            if line.startswith("ANSWER "):
                self._answers.put([rank, *json.loads(line[7:])])
            else:
                self._printed[rank].append(line)
        self._answers.put([rank, "ended", ""])

    def _watch(self):
        for line in self._process.stdout:
            self._endings.put([int(number) for number in line.split()])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(LIMIT)

    def ask(self, body, limit=LIMIT, without=(), **arguments):
        """The results, by rank; None for ranks in `without`, for which nobody waits. The first rank that fails, or the
        limit, ends all of them: others may be waiting for that rank, so they are not waited for."""
        for question in self._questions:
            try:
                question.write(json.dumps([body, arguments]) + "\n")
                question.flush()
            except BrokenPipeError:  # it has ended, as its answer says
                pass
        results, end = [None] * len(self._questions), time.monotonic() + limit
        waiting = set(range(len(results))) - set(without)
        while waiting:
            try:
                rank, kind, value = self._answers.get(timeout=max(0, end - time.monotonic()))
            except queue.Empty:
                raise self._failure(body, arguments, {one: f"no answer in {limit} s" for one in waiting}) from None
            if rank in waiting and kind != "result":
                raise self._failure(body, arguments, {rank: f"{kind}\n{value}"})
            if rank in waiting:
                results[rank] = value
                waiting.remove(rank)
        return results

    def _failure(self, body, arguments, what):
        """Ends all ranks; `what` happened, by rank."""
        self.__exit__()
        lines = [f"{body}({arguments}) failed; all ranks were ended"]
        lines += [f"--- rank {rank}: {said}\n{''.join(self._printed[rank])[-2000:]}" for rank, said in sorted(what.items())]
        return AssertionError("\n".join(lines))

    def wait(self, limit=LIMIT, without=()):
        """Ends them as a script ends, and returns the exit codes."""
        waiting = [rank for rank in range(len(self._questions)) if rank not in without]
        for rank in waiting:
            self._questions[rank].close()
        codes, end = {}, time.monotonic() + limit
        while late := [rank for rank in waiting if rank not in codes]:
            try:
                rank, codes[rank] = self._endings.get(timeout=max(0, end - time.monotonic()))
            except queue.Empty:
                self.__exit__()
                raise AssertionError(f"ranks {late} did not end in {limit} s") from None
        return [codes[rank] for rank in waiting]


_kept = {}


def run(size, body, limit=LIMIT, bodies=BODIES, **arguments):
    key = (size, str(bodies))
    ranks = _kept.pop(key, None) or Ranks(size, bodies)
    try:
        results = ranks.ask(body, limit, **arguments)
    except BaseException:
        ranks.__exit__()
        raise
    _kept[key] = ranks
    return results


def assert_said(results, expected):
    """Every rank said, by name, what is expected; `models.said_by` makes the results."""
    for said in results:
        assert set(said) == set(expected)
        for name, words in expected.items():
            assert words in said[name], (name, said[name])


@atexit.register
def _end():
    for ranks in _kept.values():
        ranks.__exit__()
