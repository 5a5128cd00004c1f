"""Starts real gloo processes: run(size, body, ...) calls a function of bodies.py, or of another file, in each."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BODIES = Path(__file__).parent / "bodies.py"


def free_port():
    with socket.socket() as probing:
        probing.bind(("127.0.0.1", 0))
        return probing.getsockname()[1]


class Ranks:
    """Processes that are all gone at the end, whatever happens."""

    def __init__(self, size, body, arguments, bodies=BODIES):
        environment = {
            **os.environ,
            "WORLD_SIZE": str(size),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(free_port()),
            "OMP_NUM_THREADS": "1",
        }
        self._outputs = [tempfile.TemporaryFile("w+") for _ in range(size)]
        self.processes = [
            subprocess.Popen(
                [sys.executable, str(bodies), body, json.dumps(arguments)],
                env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            for rank, output in enumerate(self._outputs)
        ]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def wait(self, seconds):
        """The exit codes; a process that takes longer gets None."""
        end = time.monotonic() + seconds
        codes = []
        for process in self.processes:
            try:
                codes.append(process.wait(max(0.1, end - time.monotonic())))
            except subprocess.TimeoutExpired:
                codes.append(None)
        return codes

    def output(self, rank):
        self._outputs[rank].seek(0)
        return self._outputs[rank].read()

    def result(self, rank):
        lines = [line for line in self.output(rank).splitlines() if line.startswith("RESULT ")]
        return json.loads(lines[-1][7:]) if lines else None


def run(size, body, seconds=240, bodies=BODIES, **arguments):
    """What the function returned in each process."""
    with Ranks(size, body, arguments, bodies) as ranks:
        codes = ranks.wait(seconds)
        if any(code != 0 for code in codes):
            shown = "\n".join(f"--- rank {r}: exit {codes[r]}\n{ranks.output(r)[-3000:]}" for r in range(size))
            raise AssertionError(f"{body}({arguments}) failed\n{shown}")
        return [ranks.result(rank) for rank in range(size)]
