#!/usr/bin/env python3
"""What the hook costs without communication: one process, one bucket of 25M gradients, beside `memory += gradient`.

    PYTHONPATH=build/release/python build/venv/bin/python bench/ddp/hook_cost.py [--parameters N] [--sparsifier SPEC] [--rounds N]

Both are timed in turn, on one thread, in the same run; the medians are divided. The gradient is a new one each time, and
comes from memory: it is written before the clock starts, and a larger array is read after it.
"""

import argparse
import statistics
import time

import torch

import sparsewire.torch as sw
from sparsewire.torch._job import Job


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parameters", type=int, default=25_000_000, help="entries of the gradient (%(default)s)")
    sparsifiers = ["topk:ratio=0.001", "threshold:ratio=0.001", "topk:ratio=0.01"]
    parser.add_argument("--sparsifier", nargs="+", default=sparsifiers, help="one row each (%(default)s)")
    parser.add_argument("--rounds", type=int, default=40, help="timed steps, after 30 to warm up (%(default)s)")
    options = parser.parse_args()
    torch.set_num_threads(1)

    gradients = [torch.randn(options.parameters) for _ in range(4)]
    cold = torch.empty(16_000_000)

    def fill(buffer, i):
        buffer.copy_(gradients[i % len(gradients)])
        cold.add_(1)

    print(f"{options.parameters} parameters; medians of {options.rounds} rounds; one thread")
    print("\n| sparsifier | memory += gradient, ms | hook, ms | times |\n|---|---:|---:|---:|")
    for sparsifier in options.sparsifier:
        # A single process is not connected to any other, and needs no process group.
        state = sw.State(sparsifier=sparsifier, check_every=0)
        state._passes._is_connected = True
        buffer, memory = torch.empty(options.parameters), torch.zeros(options.parameters)
        plain, hook = [], []
        warm_up = 30  # until error feedback is in its steady state, about
        for i in range(warm_up + options.rounds):
            fill(buffer, i)
            began = time.perf_counter()
            memory.add_(buffer)
            plain.append(time.perf_counter() - began)
            fill(buffer, i)
            job = Job(buffer, ("all",), (options.parameters,))
            job.first = job.last = True
            began = time.perf_counter()
            state._stages.put(job)
            job.future.wait()
            hook.append(time.perf_counter() - began)
        one, other = (statistics.median(times[warm_up:]) * 1000 for times in (plain, hook))
        print(f"| {sparsifier} | {one:.1f} | {other:.1f} | {other / one:.2f} |", flush=True)
        state.close()


main()
