"""Child processes of the tests: each in a session of its own, and with a time limit, after which all of it is killed.

A session, not a process group: mpirun gives every rank a group of its own, but the session stays the same.
"""

import fcntl
import os
import queue
import signal
import struct
import subprocess
import termios
import threading
import time
from pathlib import Path

from patience import patient

LIMIT = patient(240)  # seconds: far more than any child needs, and less than ctest waits for a test


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
    """A Popen that is killed, with everything it started, when the test ends or the limit has passed. So whatever waits for
    it waits no longer than that, and the test fails."""
    process = subprocess.Popen(command, start_new_session=True, **more)
    late = []

    def stop():
        late.append(process.pid)
        kill_session(process.pid)

    timer = threading.Timer(limit, stop)
    timer.daemon = True
    timer.start()

    def end():
        timer.cancel()
        kill_session(process.pid)
        process.wait(LIMIT)
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream:
                stream.close()
        test.assertFalse(late, f"{command} was killed after {limit} s")

    test.addCleanup(end)
    return process


def narrow_pipe(room):
    """Both ends of a pipe that takes so many bytes before somebody reads: who writes more is held there."""
    reader, writer = os.pipe()
    size = fcntl.fcntl(writer, 1031, 4096)  # F_SETPIPE_SZ, which Python knows since 3.10
    os.write(writer, bytes(size - room))
    return reader, writer


def run(command, limit=LIMIT, stdin=None, **more):
    """subprocess.run() with a limit. `stdin`: bytes or text to read; without it there is nothing to read."""
    source = {"stdin": subprocess.DEVNULL} if stdin is None else {"stdin": subprocess.PIPE}
    process = subprocess.Popen(command, start_new_session=True, **source, **more)
    try:
        out, err = process.communicate(stdin, timeout=limit)
    except BaseException:  # the time is up, or Ctrl-C
        kill_session(process.pid)
        process.communicate(timeout=LIMIT)
        raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def end_all(started):
    for process in started:
        kill_session(process.pid)


def finish(started, limit=LIMIT):
    """What these Popens with a session each print, which work together. The first one that fails, or the limit, ends all."""
    said, ended = {}, queue.Queue()

    def follow(process):
        ended.put((process, process.communicate()[0]))

    for process in started:
        threading.Thread(target=follow, args=[process], daemon=True).start()
    until = time.monotonic() + limit
    try:
        while len(said) < len(started):
            process, text = ended.get(timeout=max(0, until - time.monotonic()))
            said[process] = text
            if process.returncode != 0:
                raise AssertionError(f"{process.args} ended with {process.returncode}; all were ended:\n{text[-4000:]}")
    except queue.Empty:
        late = [process.args for process in started if process not in said]
        raise AssertionError(f"not ended in {limit} s: {late}") from None
    finally:
        end_all(started)
    return [said[process] for process in started]


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
    test.assertEqual(process.wait(LIMIT), 1 if until else 0, shown)
    return shown.decode()
