"""Ranks that are processes give the bits that ranks on threads give, in Python and in C++ (golden.txt)."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from golden import GOLDEN, RANKS, together

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


@pytest.mark.timeout(120)
def test_over_tcp():
    processes = [
        subprocess.Popen(
            [sys.executable, SCRIPT, "tcp", str(rank)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for rank in range(RANKS)
    ]
    try:
        addresses = [process.stdout.readline().strip() for process in processes]
        for process in processes:
            process.stdin.write(json.dumps(addresses) + "\n")
            process.stdin.flush()
        assert_golden(processes[0].stdout.readline())
        assert [process.wait(30) for process in processes] == [0] * RANKS
    finally:
        for process in processes:
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()


@pytest.mark.timeout(120)
def test_over_mpi():
    if not sparsewire.has_mpi():
        pytest.skip("this build has no MPI")
    if shutil.which("mpirun") is None:
        pytest.skip("there is no mpirun")
    command = ["timeout", "-k", "10", "90", "mpirun", "-n", str(RANKS), sys.executable, SCRIPT, "mpi"]
    done = subprocess.run(command, env={**os.environ, **OPEN_MPI}, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr[-3000:]
    assert_golden(done.stdout)
