"""Ranks that are processes give the bits that ranks on threads give, in Python and in C++ (golden.txt)."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from golden import GOLDEN, RANKS, together
from patience import patient

import processes
import sparsewire

# Other libraries do not read these. Root is allowed because a container often has no other user.
OPEN_MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
}
SCRIPT = str(Path(__file__).parent / "golden.py")


def assert_golden(line):
    everyones = json.loads(line)
    assert len(everyones) == RANKS
    found = [together(digests) for digests in zip(*everyones)]
    assert dict(zip(map(tuple, GOLDEN), found)) == {tuple(row): row[3] for row in GOLDEN}


def start(command, **more):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen([str(word) for word in command], text=True, start_new_session=True, **pipes, **more)


def test_over_tcp():
    ranks = [start([sys.executable, SCRIPT, "tcp", rank]) for rank in range(RANKS)]
    try:
        addresses = [rank.stdout.readline().strip() for rank in ranks]
        for rank in ranks:
            rank.stdin.write(json.dumps(addresses) + "\n")
            rank.stdin.flush()
    except BaseException:
        processes.end_all(ranks)
        raise
    assert_golden(processes.finish(ranks)[0])


def test_over_mpi():
    if not sparsewire.has_mpi():
        pytest.skip("this build has no MPI")
    if shutil.which("mpirun") is None:
        pytest.skip("there is no mpirun")
    command = ["mpirun", "-n", RANKS, sys.executable, SCRIPT, "mpi"]
    assert_golden(processes.finish([start(command, env={**os.environ, **OPEN_MPI})])[0])


def test_one_that_fails_ends_the_others_and_says_why():
    """processes.finish(), with which several of the tests here run their ranks."""
    waits = "import threading; threading.Event().wait()"
    started = [start([sys.executable, "-c", code]) for code in (waits, "raise LookupError('not here')", waits)]
    with pytest.raises(AssertionError, match=r"ended with 1; all were ended:\n(.|\n)*LookupError: not here"):
        processes.finish(started)
    assert all(process.wait(processes.LIMIT) != 0 for process in started)


def test_what_does_not_end_is_named():
    started = [start([sys.executable, "-c", code]) for code in ("import threading; threading.Event().wait()", "")]
    with pytest.raises(AssertionError, match=r"not ended in .* s: .*threading"):
        processes.finish(started, patient(0.1))
    assert started[0].wait(processes.LIMIT) == -signal.SIGKILL
