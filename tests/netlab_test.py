#!/usr/bin/env python3
"""tools/netlab: runs across hosts, limits the rate, returns the exit code, and leaves nothing behind.

    netlab_test.py NETLAB MPI_PROGRAM    exit code 77 (skipped) where it lacks the rights or a tool
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

SKIPPED = 77


def processes_of(lab):
    """The processes that a lab started: all have its name in their environment."""
    found = []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"NETLAB={lab}".encode() in environment.read_bytes().split(b"\0"):
                found.append(environment.parent.joinpath("cmdline").read_bytes().replace(b"\0", b" "))
        except OSError:  # it has ended, or is not ours
            pass
    return found


def namespaces_of(lab):
    listed = subprocess.run(["ip", "netns", "list"], stdout=subprocess.PIPE, text=True, check=True).stdout
    return [line for line in listed.splitlines() if line.startswith(lab + "-")]


def links():
    """The network devices outside of all labs."""
    return set(os.listdir("/sys/class/net"))


def until(condition):
    """Looks until the condition holds; ctest's timeout ends it otherwise."""
    while not condition():
        time.sleep(0.05)


class Lab:
    def __init__(self, *arguments):
        self.links = links()
        self.process = subprocess.Popen([NETLAB, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
        self.name = f"netlab-{self.process.pid}"

    def end(self):
        """Its exit code and output, and that nothing is left."""
        output, errors = self.process.communicate()
        sys.stderr.write(errors)
        assert not namespaces_of(self.name), namespaces_of(self.name)
        assert not processes_of(self.name), processes_of(self.name)
        assert not links() - self.links, links() - self.links
        return self.process.returncode, output


def runs_one_rank_on_each_host():
    status, output = Lab("-n", "3", "--rate", "none", "--", "hostname").end()
    assert status == 0
    assert sorted(output.split()) == ["netlab-h1", "netlab-h2", "netlab-h3"], output


def returns_the_exit_code():
    status, _ = Lab("-n", "2", PROGRAM, "refuse").end()
    assert status == 4, status


def says_what_is_wrong():
    for arguments in [[], ["-n", "0", "true"], ["-n", "many", "true"], ["--speed", "1"], ["--rate", "fast", "true"], ["-n"]]:
        status, _ = Lab(*arguments).end()
        assert status == 2, (arguments, status)
    status, output = Lab("--help").end()
    assert status == 0 and "--rate" in output


def limits_the_rate():
    # The only time that a test may ask for: no machine is so fast that 2.5 MB pass through 20 Mbit/s in less than a second.
    # The bucket lets some more through at first.
    status, output = Lab("-n", "2", "--rate", "20mbit", PROGRAM, "time", "2500000").end()
    assert status == 0
    assert int(output) >= 850, output


def cleans_up_when_interrupted():
    for number, status in [(signal.SIGINT, 130), (signal.SIGTERM, 143)]:
        lab = Lab("-n", "2", "sleep", "1000")
        until(lambda: processes_of(lab.name).count(b"sleep 1000 ") == 2)
        lab.process.send_signal(number)
        assert lab.end()[0] == status


def two_at_a_time():
    labs = [Lab("-n", "2", PROGRAM, "time", "1000") for _ in range(2)]
    for lab in labs:
        # The other one may still be at work; what is checked is what this one leaves.
        assert lab.end()[0] == 0


NETLAB, PROGRAM = sys.argv[1:]
if subprocess.run([NETLAB, "-n", "1", "true"], stdin=subprocess.DEVNULL).returncode == SKIPPED:
    sys.exit(SKIPPED)
for test in [runs_one_rank_on_each_host, returns_the_exit_code, says_what_is_wrong, limits_the_rate, cleans_up_when_interrupted,
             two_at_a_time]:
    print("==", test.__name__, flush=True)
    test()
