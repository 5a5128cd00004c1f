#!/usr/bin/env python3
"""Runs mpirun for a test: with a time limit, and so that nothing is left behind, however the test ends.

    run_mpi.py SECONDS MPIRUN ARGUMENTS...    returns the exit code of mpirun, 124 when the time was up,
                                              125 when mpirun ended but a process of the job did not

The limit is times the patience (patience.py).

A rank that is stuck would outlive its test: mpirun starts ranks in process groups of their own, and a killed mpirun ends
none of them. So every process of the job is known by a variable of its environment. Open MPI's session and its shared memory
are in a folder of their own, so that jobs that run at the same time share nothing, and nothing outlives the test.
"""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import processes  # noqa: E402
from patience import patient  # noqa: E402

MARK = "SPARSEWIRE_TEST_JOB"
PR_SET_PDEATHSIG = 1
GRACE = patient(10)  # seconds for mpirun to end its ranks, and for a killed process to disappear


def processes_of(job):
    found = [int(folder.name) for folder in processes.with_variable(MARK, job)]
    return [process for process in found if process != os.getpid()]


def wait_for_all(job):
    """Whether all processes of the job have ended soon. mpirun may return a little earlier than its ranks."""
    end = time.monotonic() + GRACE
    seen_none = 0
    while seen_none < 3:  # a process that just starts another program has no environment for a moment
        seen_none = 0 if processes_of(job) else seen_none + 1
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def kill_all(job):
    for process in processes_of(job):
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            pass
    return wait_for_all(job)


def terminated(number, _):
    raise SystemExit(128 + number)


def main(limit, command):
    # Also when ctest ends without a word.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, terminated)
    folder = tempfile.mkdtemp(prefix="run_mpi-")
    environment = {**os.environ, MARK: folder, **processes.open_mpi_folder(folder)}
    mpirun = None
    try:
        mpirun = subprocess.Popen(command, stdin=subprocess.DEVNULL, env=environment)
        status = mpirun.wait(timeout=limit)
        if not wait_for_all(folder):
            print(f"run_mpi: mpirun has ended, but these processes have not: {processes_of(folder)}", file=sys.stderr)
            return 125
        return status if status >= 0 else 128 - status
    except subprocess.TimeoutExpired:
        print(f"run_mpi: the job did not end within {limit} s: {' '.join(command)}", file=sys.stderr)
        return 124
    finally:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        if mpirun is not None and mpirun.poll() is None:
            mpirun.terminate()
            try:
                mpirun.wait(timeout=GRACE)
            except subprocess.TimeoutExpired:
                mpirun.kill()
        kill_all(folder)
        if mpirun is not None:
            mpirun.wait()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(patient(float(sys.argv[1])), sys.argv[2:]))
