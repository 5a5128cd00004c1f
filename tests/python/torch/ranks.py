"""Real gloo processes for tests: run(size, body, ...) calls a function of bodies.py in each, and returns what they return.

Most of the time of such a process goes into importing torch, so one process imports it and becomes all ranks
(`models.become_ranks`), and they are kept for the next call, unless something went wrong or the test asks for its own
(`Ranks`).
"""

import atexit
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

BODIES = Path(__file__).parent / "bodies.py"


def free_port():
    with socket.socket() as probing:
        probing.bind(("127.0.0.1", 0))
        return probing.getsockname()[1]


class Ranks:
    """Processes that are all gone at the end, whatever happens."""

    def __init__(self, size, bodies=BODIES):
        self._questions, self._answers, self._printed, files = [], [], [], []
        for rank in range(size):
            reading, question = os.pipe()
            answer, writing = os.pipe()
            files.append((reading, writing))
            self._questions.append(os.fdopen(question, "w"))
            self._answers.append(queue.Queue())
            self._printed.append([])
            threading.Thread(target=self._read, args=(rank, os.fdopen(answer)), daemon=True).start()
        environment = {
            **os.environ,
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
                self._answers[rank].put(json.loads(line[7:]))
            else:
                self._printed[rank].append(line)
        self._answers[rank].put(["ended", ""])

    def _watch(self):
        for line in self._process.stdout:
            self._endings.put([int(number) for number in line.split()])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def ask(self, body, seconds, without=(), **arguments):
        """The results, by rank; None for ranks in `without`, for which nobody waits."""
        for question in self._questions:
            question.write(json.dumps([body, arguments]) + "\n")
            question.flush()
        end = time.monotonic() + seconds
        results, bad = [], []
        for rank in range(len(self._questions)):
            if rank in without:
                results.append(None)
                continue
            try:
                kind, value = self._answers[rank].get(timeout=max(0.1, end - time.monotonic()))
            except queue.Empty:
                kind, value = "no answer", ""
            if kind != "result":
                bad.append(f"--- rank {rank}: {kind}\n{value}\n{''.join(self._printed[rank])[-2000:]}")
            results.append(value)
        if bad:
            raise AssertionError(f"{body}({arguments}) failed\n" + "\n".join(bad))
        return results

    def wait(self, seconds, without=()):
        """Ends them as a script ends, and returns the exit codes."""
        waiting = [rank for rank in range(len(self._questions)) if rank not in without]
        for rank in waiting:
            self._questions[rank].close()
        codes, end = {}, time.monotonic() + seconds
        while not all(rank in codes for rank in waiting):
            rank, code = self._endings.get(timeout=max(0.1, end - time.monotonic()))
            codes[rank] = code
        return [codes[rank] for rank in waiting]


_kept = {}


def run(size, body, seconds=240, bodies=BODIES, **arguments):
    key = (size, str(bodies))
    ranks = _kept.pop(key, None) or Ranks(size, bodies)
    try:
        results = ranks.ask(body, seconds, **arguments)
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
