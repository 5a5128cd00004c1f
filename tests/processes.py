"""Child processes of the tests: each in a session of its own, and with a time limit, after which all of it is killed.

A session, not a process group: mpirun gives every rank a group of its own, but the session stays the same.
"""

import fcntl
import os
import signal
import struct
import subprocess
import termios
import threading
from pathlib import Path

LIMIT = 240  # seconds: far more than any child needs, and less than ctest waits for a test


def in_session(session):
    """The processes of a session that still run."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended meanwhile
        if int(fields[3]) == session and fields[0] not in "ZX":
            found.append(int(entry.name))
    return found


def open_mpi_folder(folder):
    """The variables that make Open MPI keep session folders and shared memory there: ranks that are killed leave both."""
    names = ["OMPI_MCA_orte_tmpdir_base", "PRTE_MCA_prte_tmpdir_base", "OMPI_MCA_btl_vader_backing_directory",
             "OMPI_MCA_btl_sm_backing_directory"]
    return dict.fromkeys(names, str(folder))


def with_variable(name, value):
    """The /proc folders of all processes that have this variable in their environment."""
    found = []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"{name}={value}".encode() in environment.read_bytes().split(b"\0"):
                found.append(environment.parent)
        except OSError:  # the process has ended, or belongs to somebody else
            pass
    return found


def command_lines_with(name, value):
    """The command lines of all processes that have this variable in their environment."""
    found = []
    for folder in with_variable(name, value):
        try:
            found.append(folder.joinpath("cmdline").read_bytes().replace(b"\0", b" "))
        except OSError:  # it has ended meanwhile
            pass
    return found


def kill_session(session):
    for pid in in_session(session):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def start(test, command, limit=LIMIT, **more):
    """A Popen that is killed, with everything it started, when the test ends or the limit has passed."""
    process = subprocess.Popen(command, start_new_session=True, **more)
    timer = threading.Timer(limit, kill_session, [process.pid])
    timer.daemon = True
    timer.start()

    def end():
        timer.cancel()
        kill_session(process.pid)
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream:
                stream.close()

    test.addCleanup(end)
    return process


def run(command, limit=LIMIT, stdin=None, **more):
    """subprocess.run() with a limit. `stdin`: bytes or text to read; without it there is nothing to read."""
    source = {"stdin": subprocess.DEVNULL} if stdin is None else {"stdin": subprocess.PIPE}
    process = subprocess.Popen(command, start_new_session=True, **source, **more)
    try:
        out, err = process.communicate(stdin, timeout=limit)
    except BaseException:  # the time is up, or Ctrl-C
        kill_session(process.pid)
        process.communicate()
        raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def on_terminal(test, command, columns=80, until=None, **more):
    """What appears on a terminal, with its controls. `until`: Ctrl-C when it has appeared, and then the exit code must be 1."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = start(test, command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, **more)
    os.close(theirs)
    shown = b""
    is_stopped = False
    try:
        while piece := os.read(ours, 10000):
            shown += piece
            if until and until in shown and not is_stopped:
                process.send_signal(signal.SIGINT)
                is_stopped = True
    except OSError:  # Linux's end of a terminal
        pass
    os.close(ours)
    test.assertEqual(process.wait(), 1 if until else 0, shown)
    return shown.decode()
