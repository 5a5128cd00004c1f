#!/usr/bin/env python3
"""tools/netlab: one rank per host, limited links, exit codes and time limit, with and without mpirun; nothing is left behind.

    netlab_test.py NETLAB MPI_PROGRAM    exit code 77 (skipped) without root or without a tool that netlab needs
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True  # the source tree stays as it is
import processes  # noqa: E402
from patience import DEADLINE_THAT_PASSES, patient  # noqa: E402

SKIPPED = 77
# Seconds, only against a hang: on a busy machine a lab may take a minute.
LAB_LIMIT = patient(240)
TOOL_LIMIT = patient(60)
PASSES = f"{DEADLINE_THAT_PASSES:.0f}"  # of a job that does not end


def processes_of(lab):
    """The command lines of all processes that a lab started: they have its name in their environment."""
    return processes.command_lines_with("NETLAB", lab)


def namespaces_of(lab):
    listed = subprocess.run(["ip", "netns", "list"], stdout=subprocess.PIPE, text=True, check=True,
                            timeout=TOOL_LIMIT).stdout
    return [line for line in listed.splitlines() if line.startswith(lab + "-")]


def links():
    """The network devices outside of all labs."""
    return set(os.listdir("/sys/class/net"))


def until(condition, what):
    """Waits for a condition; raises TimeoutError if it does not come true."""
    end = time.monotonic() + LAB_LIMIT
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {LAB_LIMIT} s: {what}")
        time.sleep(0.05)


class Lab:
    """A running netlab with a folder of its own for temporary files."""

    running = []

    def __init__(self, *arguments):
        self.links = links()
        self.folder = tempfile.TemporaryDirectory()
        self.process = subprocess.Popen([NETLAB, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True,
                                        env={**os.environ, "TMPDIR": self.folder.name})
        self.name = f"netlab-{self.process.pid}"
        Lab.running.append(self)

    def end(self):
        """Waits for the end, checks that nothing is left, and returns the exit code and both outputs."""
        output, errors = self.process.communicate(timeout=LAB_LIMIT)
        Lab.running.remove(self)
        sys.stderr.write(errors)
        assert not namespaces_of(self.name), namespaces_of(self.name)
        assert not processes_of(self.name), processes_of(self.name)
        assert not links() - self.links, links() - self.links
        assert not os.listdir(self.folder.name), os.listdir(self.folder.name)
        self.folder.cleanup()
        return self.process.returncode, output, errors

    @classmethod
    def stop_all(cls):
        """After a failure: ends the labs that still run. SIGTERM makes netlab clean up."""
        for lab in cls.running:
            lab.process.terminate()
        for lab in cls.running:
            try:
                lab.process.communicate(timeout=TOOL_LIMIT)
            except subprocess.TimeoutExpired:
                lab.process.kill()


def runs_one_rank_on_each_host():
    lab = Lab("-n", "3", "--rate", "none", "--", "hostname")
    status, output, _ = lab.end()
    assert status == 0
    # The lab's name is part of it: Open MPI names its session folders after the host.
    assert sorted(output.split()) == [f"{lab.name}-h{host}" for host in (1, 2, 3)], output


def keeps_the_session_folders_apart():
    lab = Lab("-n", "2", "--rate", "none", "--", "sh", "-c", "echo $OMPI_MCA_orte_tmpdir_base")
    status, output, _ = lab.end()
    assert status == 0
    for folder in output.split() or [""]:
        assert folder.startswith(lab.folder.name + "/" + lab.name), output


def returns_the_exit_code():
    status, _, _ = Lab("-n", "2", PROGRAM, "refuse").end()
    assert status == 4, status


def says_what_is_wrong():
    for arguments in [[], ["-n", "0", "true"], ["-n", "many", "true"], ["--speed", "1"], ["--rate", "fast", "true"], ["-n"],
                      ["--timeout", "soon", "true"], ["--timeout", "-1", "true"], ["--timeout"]]:
        status, _, errors = Lab(*arguments).end()
        assert status == 2 and "netlab: " in errors, (arguments, status)
    status, output, _ = Lab("--help").end()
    assert status == 0 and "--rate" in output and "--timeout" in output


def limits_the_rate():
    # The only time that a test may check: no machine is so fast that 2.5 MB pass through 20 Mbit/s in less than a second.
    # The token bucket lets a little more through at first.
    status, output, _ = Lab("-n", "2", "--rate", "20mbit", PROGRAM, "time", "2500000").end()
    assert status == 0
    assert int(output) >= 850, output


def cleans_up_when_interrupted():
    for number, expected in [(signal.SIGINT, 130), (signal.SIGTERM, 143)]:
        lab = Lab("-n", "2", "sleep", "1000")
        until(lambda: processes_of(lab.name).count(b"sleep 1000 ") == 2, "two ranks run")
        lab.process.send_signal(number)
        status, _, _ = lab.end()
        assert status == expected, (status, expected)


def removes_what_a_killed_lab_left():
    killed = Lab("-n", "2", "--plain", "sleep", "1000")
    until(lambda: processes_of(killed.name).count(b"sleep 1000 ") == 2, "two ranks run")
    killed.process.kill()
    killed.process.wait(timeout=TOOL_LIMIT)
    assert namespaces_of(killed.name)
    following = subprocess.run([NETLAB, "-n", "1", "--plain", "true"], env={**os.environ, "TMPDIR": killed.folder.name},
                               timeout=LAB_LIMIT, check=False)
    assert following.returncode == 0, following
    killed.end()


def ends_a_job_that_takes_too_long():
    status, _, errors = Lab("-n", "2", "--timeout", PASSES, "sleep", "1000").end()
    assert status == 124, status
    assert f"netlab: the job did not end within {PASSES} s" in errors, errors


def ends_a_job_that_ignores_signals():
    stubborn = "trap '' TERM INT HUP; while :; do sleep 1000; done"
    status, _, _ = Lab("-n", "2", "--timeout", PASSES, "sh", "-c", stubborn).end()
    assert status == 124, status


def runs_two_at_a_time():
    """The first to end must not take anything away from the other."""
    for round_number in range(5):
        labs = [Lab("-n", "2", PROGRAM, "time", size) for size in ("1000", "4000000")]
        for lab in labs:
            # The other one may still be running; what is checked is what this one leaves.
            status, _, _ = lab.end()
            assert status == 0, (round_number, status)


MEET = """
import os, socket
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
assert socket.if_nametoindex(os.environ["GLOO_SOCKET_IFNAME"])
if rank == 0:
    listener = socket.create_server(address)
    # read() returns when that rank has ended: one that succeeds must not end the others.
    ranks = sorted(int(listener.accept()[0].makefile().read()) for _ in range(1, size))
    print("met", *ranks, "of", size)
else:
    while True:
        try:
            connection = socket.create_connection(address, timeout=60)
            break
        except ConnectionRefusedError:  # rank 0 does not listen yet
            pass
    connection.sendall(b"%d\\n" % rank)
    print("at", os.environ["LOCAL_RANK"], "of", os.environ["LOCAL_WORLD_SIZE"])
"""


def plain_commands_meet():
    status, output, errors = Lab("-n", "3", "--rate", "none", "--plain", sys.executable, "-c", MEET).end()
    assert status == 0, status
    assert output == "met 1 2 of 3\n", output
    assert sorted(errors.splitlines()) == ["[1] at 0 of 1", "[2] at 0 of 1"], errors


def a_plain_command_that_fails_ends_the_others():
    for failure, expected in [("exit 5", 5), ("kill -KILL $$", 128 + signal.SIGKILL)]:
        script = f"if [ $RANK = 1 ]; then {failure}; fi; exec sleep 1000"
        status, _, errors = Lab("-n", "3", "--rate", "none", "--plain", "sh", "-c", script).end()
        assert status == expected, (status, expected)
        assert f"netlab: rank 1 failed with exit code {expected}\n" in errors, errors


def plain_commands_that_hang_are_ended():
    stubborn = "trap '' TERM INT HUP; while :; do sleep 1000; done"
    status, _, errors = Lab("-n", "2", "--rate", "none", "--timeout", PASSES, "--plain", "sh", "-c", stubborn).end()
    assert status == 124, status
    assert f"netlab: the job did not end within {PASSES} s" in errors, errors
    for number, expected in [(signal.SIGINT, 130), (signal.SIGTERM, 143)]:
        lab = Lab("-n", "2", "--rate", "none", "--plain", "sleep", "1000")
        until(lambda: processes_of(lab.name).count(b"sleep 1000 ") == 2, "two ranks run")
        lab.process.send_signal(number)
        status, _, _ = lab.end()
        assert status == expected, (status, expected)


def terminated(number, _):
    raise SystemExit(128 + number)


NETLAB, PROGRAM = sys.argv[1:]
signal.signal(signal.SIGTERM, terminated)
if subprocess.run([NETLAB, "-n", "1", "true"], stdin=subprocess.DEVNULL, timeout=LAB_LIMIT).returncode == SKIPPED:
    sys.exit(SKIPPED)
try:
    for test in [runs_one_rank_on_each_host, keeps_the_session_folders_apart, returns_the_exit_code, says_what_is_wrong,
                 limits_the_rate, cleans_up_when_interrupted, removes_what_a_killed_lab_left,
                 ends_a_job_that_takes_too_long, ends_a_job_that_ignores_signals, runs_two_at_a_time,
                 plain_commands_meet, a_plain_command_that_fails_ends_the_others, plain_commands_that_hang_are_ended]:
        print("==", test.__name__, flush=True)
        test()
finally:
    Lab.stop_all()
