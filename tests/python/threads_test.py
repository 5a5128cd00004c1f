"""Ranks as threads, the GIL, and signals."""

import math
import os
import subprocess
import sys
import threading

import numpy
import pytest

import sparsewire
from patience import DEADLINE_THAT_PASSES
from processes import LIMIT


def test_every_collective_moves_bytes():
    def body(transport):
        rank, size = transport.rank, transport.size
        transport.barrier()
        assert transport.all_gather(bytes([rank])) == [bytes([r]) for r in range(size)]
        assert transport.gather(bytes([rank]), root=1) == ([bytes([r]) for r in range(size)] if rank == 1 else [])
        assert transport.broadcast(b"from 2" if rank == 2 else None, root=2) == b"from 2"
        assert transport.all_to_all([bytes([rank, r]) for r in range(size)]) == [bytes([r, rank]) for r in range(size)]
        last, following = (rank - 1) % size, (rank + 1) % size
        assert transport.send_receive([(following, bytes([rank]))], [last]) == {last: bytes([last])}
        numbers = numpy.full(5, rank, numpy.float32)
        transport.all_reduce_sum(numbers)
        assert numbers.tolist() == [3] * 5
        with pytest.raises(ValueError):
            transport.all_to_all([b""])
        return rank

    assert sparsewire.run_on_threads(3, body, deadline=LIMIT) == [0, 1, 2]


def test_what_a_body_raises_first_is_raised_and_the_others_do_not_wait():
    others = []

    def body(transport):
        if transport.rank == 1:
            raise LookupError("not here")
        try:
            transport.barrier()
        except sparsewire.TransportError as error:
            others.append((error.rank, "LookupError: not here" in str(error)))
            raise

    with pytest.raises(LookupError, match="not here"):
        sparsewire.run_on_threads(3, body, deadline=LIMIT)
    assert others == [(1, True)] * 2


def test_fail_reaches_the_other_ranks_and_is_a_connection_error():
    def body(transport):
        if transport.rank == 0:
            transport.fail("out of coffee")
            return
        with pytest.raises(ConnectionError, match="out of coffee"):
            transport.barrier()

    sparsewire.run_on_threads(2, body, deadline=LIMIT)


def test_a_silent_rank_is_named_after_the_deadline():
    group = sparsewire.ThreadGroup(2, deadline=DEADLINE_THAT_PASSES)
    with pytest.raises(sparsewire.TransportError) as caught:
        group.at(0).barrier()
    assert caught.value.rank == 1
    for wrong in (0, -1, float("nan"), 1e9):
        with pytest.raises(ValueError):
            sparsewire.ThreadGroup(2, deadline=wrong)
    with pytest.raises(ValueError):
        sparsewire.ThreadGroup(0)


def test_a_transport_keeps_its_group_alive():
    transport = sparsewire.ThreadGroup(1).at(0)
    transport.barrier()
    worker = sparsewire.Worker(3, transport=transport)
    del transport
    worker.step(numpy.ones(3, numpy.float32))


def test_the_gil_is_released_while_a_worker_waits():
    """A rank that waits in a step must let the thread of the other rank run Python."""
    group = sparsewire.ThreadGroup(2, deadline=LIMIT)
    order = []

    def first():
        group.at(0).barrier()
        order.append("after")

    thread = threading.Thread(target=first)
    thread.start()
    for _ in range(1000):  # Python runs here while the other thread waits in C++
        pass
    order.append("before")
    group.at(1).barrier()
    thread.join(LIMIT)
    assert order == ["before", "after"]


def test_the_gil_is_released_during_a_sift():
    """No thread gives the GIL up by itself here, so the other one can run during the call of C++ only."""
    gradient = numpy.random.default_rng(0).standard_normal(2_000_000).astype(numpy.float32)
    sifter = sparsewire.Sifter("topk:ratio=0.3", gradient.size)
    door, ran = threading.Lock(), []

    def other():
        with door:
            ran.append(True)

    thread = threading.Thread(target=other)
    old = sys.getswitchinterval()
    try:
        with door:
            thread.start()
            sys.setswitchinterval(1000)
        assert not ran
        for _ in range(200):  # a loaded machine may not wake the other thread at once
            sifter.sift(gradient)
            if ran:
                break
        assert ran
    finally:
        sys.setswitchinterval(old)
        thread.join(LIMIT)


INTERRUPTED = """
import os, signal, sys, threading
import sparsewire
group = sparsewire.ThreadGroup(2, deadline=3600)
transport = group.at(0)
door = threading.Lock()
def interrupt():
    with door:  # when it is open, this thread goes on where the main thread waits in C++: nowhere else is it interrupted
        os.kill(os.getpid(), signal.SIGINT)
door.acquire()
threading.Thread(target=interrupt).start()
sys.setswitchinterval(1000)
try:
    door.release()
    transport.barrier() if sys.argv[1] == "barrier" else sparsewire.Worker(4, transport=transport)
except KeyboardInterrupt:
    try:
        transport.barrier()
    except sparsewire.TransportError as error:
        assert "interrupted" in str(error), error
        print("interrupted")
"""


@pytest.mark.parametrize("call", ["barrier", "worker"])
def test_ctrl_c_ends_a_call_that_waits(call):
    done = subprocess.run([sys.executable, "-c", INTERRUPTED, call], timeout=LIMIT, capture_output=True, text=True)
    assert (done.stdout, done.stderr, done.returncode) == ("interrupted\n", "", 0)


def test_ctrl_c_ends_run_on_threads():
    code = """
import os, signal, sys, threading, sparsewire
door, was_told = threading.Lock(), threading.Event()
def body(transport):
    if transport.rank == 1:
        with door:  # as above: rank 0 runs on the main thread
            os.kill(os.getpid(), signal.SIGINT)
        was_told.wait()  # it never comes to the barrier
        return
    sys.setswitchinterval(1000)
    door.release()
    try:
        transport.barrier()
    finally:
        was_told.set()
door.acquire()
try:
    sparsewire.run_on_threads(2, body, deadline=3600)
except KeyboardInterrupt:
    print("interrupted")
"""
    done = subprocess.run([sys.executable, "-c", code], timeout=LIMIT, capture_output=True, text=True)
    assert (done.stdout, done.stderr, done.returncode) == ("interrupted\n", "", 0)


AFTER_A_FORK = """
import os, signal, sys, numpy, sparsewire
gradient = numpy.ones(4, numpy.float32)
alone, shared = sparsewire.Sifter("topk:k=1", 4), sparsewire.Sifter("topk:k=1", 4, threads=2)
worker = sparsewire.Worker(4, sparsifier="topk:k=1", threads=2)
child = os.fork()
if child == 0:
    signal.alarm(int(sys.argv[1]))
    alone.sift(gradient)
    calls = [lambda: shared.sift(gradient), shared.memory, lambda: worker.step(gradient), worker.memory]
    calls += [lambda: worker.retune(threads=1), worker.save]
    refused = 0
    for call in calls:
        try:
            call()
        except sparsewire.UsageError as error:
            refused += "after a fork" in str(error)
    del alone, shared, worker, calls, call
    os._exit(0 if refused == 6 else 1)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
shared.sift(gradient)
worker.step(gradient)
sys.exit(status)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_after_a_fork_what_has_threads_is_refused_and_can_be_freed():
    limit = str(math.ceil(LIMIT / 2))  # of the child
    assert subprocess.run([sys.executable, "-c", AFTER_A_FORK, limit], timeout=LIMIT).returncode == 0
