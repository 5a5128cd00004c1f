"""What golden.cc does, in Python: the same workers, gradients and checksums, on any transport.

    python golden.py mpi          a rank of mpirun
    python golden.py tcp RANK     a rank that prints its address and reads those of all, a line of JSON

Rank 0 prints a line of JSON: for every rank the checksums, one for each line of golden.txt.
"""

import json
import sys
from pathlib import Path

import numpy

import sparsewire

GOLDEN = [line.split() for line in (Path(__file__).parent / "golden.txt").read_text().splitlines()]
DIM = 1009
RANKS = 3
STEPS = 7
DEADLINE = 3600  # a rank that fails is noticed by the test, which ends the others


def gradient(rank, step):
    """The same numbers as in golden.cc."""
    state, numbers = rank * 1000 + step + 1, []
    for _ in range(DIM):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        numbers.append(((state >> 52) - 2048) / 64)
    return numpy.array(numbers, numpy.float32)


GRADIENTS = [[gradient(rank, step) for step in range(STEPS)] for rank in range(RANKS)]


def options_of(exchange, sparsifier, downlink):
    options = {"exchange": exchange, "sparsifier": sparsifier, "codec": "auto:values=bf16", "seed": 11}
    return options if downlink == "-" else {**options, "downlink": downlink}


def run(transport, options):
    """The updates, the weights and the memory of one rank, as bytes."""
    worker = sparsewire.Worker(DIM, transport=transport, **options)
    weights = numpy.zeros(DIM, numpy.float32)
    updates = []
    for one in GRADIENTS[transport.rank]:
        worker.step(one, lr=0.5, loss=1)
        worker.apply_update(weights, 0.125)
        updates.append(worker.update().values.tobytes())
    return b"".join(updates), weights.tobytes(), worker.memory().tobytes()


def digest(parts):
    value = 0xCBF29CE484222325
    for byte in b"".join(parts):
        value = ((value ^ byte) * 0x100000001B3) % 2**64
    return value


def together(digests):
    """Of all ranks, as golden.txt has it."""
    total = 0
    for one in digests:
        total = (total * 31 + one) % 2**64
    return f"{total:016x}"


def connect():
    if sys.argv[1] == "mpi":
        return sparsewire.mpi_transport(DEADLINE)
    listener = sparsewire.TcpListener("127.0.0.1")
    print(listener.address, flush=True)
    return sparsewire.tcp_transport(listener, int(sys.argv[2]), json.loads(sys.stdin.readline()), b"golden", DEADLINE)


if __name__ == "__main__":
    transport = connect()
    digests = [digest(run(transport, options_of(*row[:3]))) for row in GOLDEN]
    # Together, because mpirun mixes what ranks print.
    everyones = transport.gather(json.dumps(digests).encode())
    if transport.rank == 0:
        print(json.dumps([json.loads(one) for one in everyones]), flush=True)
    transport.barrier()
