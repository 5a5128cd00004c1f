#!/usr/bin/env python3
"""transport/run_mpi.py: returns the exit code, and leaves no process and no file behind, however the job ends.

    run_mpi_test.py MPIRUN
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True  # the source tree stays as it is
sys.path.append(str(Path(__file__).parent.parent))
import processes  # noqa: E402
import run_mpi  # noqa: E402
from patience import patient  # noqa: E402

RUNNER = Path(__file__).with_name("run_mpi.py")
LIMIT = 240  # seconds, times the patience: for everything that is waited for


def processes_in(folder):
    """The command lines of all processes whose temporary folder this is: the runner, mpirun and all ranks."""
    return processes.command_lines_with("TMPDIR", folder)


def until(condition, what):
    end = time.monotonic() + patient(LIMIT)
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {LIMIT} s: {what}")
        time.sleep(0.02)


def run(job_limit, *command, signal_number=None):
    """Runs a job of two ranks, returns its exit code and what it wrote to stderr, and checks that nothing is left."""
    with tempfile.TemporaryDirectory() as folder:
        runner = subprocess.Popen([sys.executable, RUNNER, str(job_limit), MPIRUN, "-n", "2", *command],
                                  stderr=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": folder})
        try:
            if signal_number is not None:
                until(lambda: processes_in(folder).count(b"sleep 1000 ") == 2, "two ranks run")
                runner.send_signal(signal_number)
            _, errors = runner.communicate(timeout=patient(LIMIT))
        finally:
            runner.kill()
        assert not processes_in(folder), processes_in(folder)
        assert not os.listdir(folder), os.listdir(folder)
        return runner.returncode, errors


def returns_the_exit_code():
    assert run(LIMIT, "true")[0] == 0
    assert run(LIMIT, "sh", "-c", "exit 3")[0] == 3


def ends_a_job_that_takes_too_long():
    status, errors = run(5, "sleep", "1000")
    assert status == 124, status
    assert "did not end within" in errors, errors


def ends_a_job_when_it_is_interrupted():
    for number in (signal.SIGTERM, signal.SIGINT):
        status, _ = run(LIMIT, "sleep", "1000", signal_number=number)
        assert status == 128 + number, status


def ends_a_rank_that_mpirun_has_left():
    run_mpi.GRACE = 1
    status = run_mpi.main(patient(LIMIT), ["sh", "-c", "setsid sleep 1000 > /dev/null 2>&1 & exit 0"])
    assert status == 125, status


MPIRUN = sys.argv[1]
for test in [returns_the_exit_code, ends_a_job_that_takes_too_long, ends_a_job_when_it_is_interrupted,
             ends_a_rank_that_mpirun_has_left]:
    print("==", test.__name__, flush=True)
    test()
