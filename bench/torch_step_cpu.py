#!/usr/bin/env python3
"""Compares the Top-k step of error feedback in PyTorch with that of sparsewire: one thread, the same data, one session.

    bench/torch_step_cpu.py --bench build/release/bench/sparsewire_bench

The data are an error memory after hundreds of steps and the gradients of the next steps, as `sparsewire_bench --export
DIR` writes them; --data DIR uses an existing export. The PyTorch step is

    memory.add_(gradient); indices = memory.abs().topk(k).indices; values = memory[indices]; memory[indices] = 0

Debian has PyTorch for its own interpreter as python3-torch: run this with /usr/bin/python3.
"""

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TARGETS = {"0.001": 15, "0.01": 20}  # ratio: how many times faster than PyTorch sparsewire must be
LEAST_REPETITIONS = 15


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", required=True, type=Path, metavar="PATH", help="the program sparsewire_bench")
    parser.add_argument("--data", type=Path, metavar="DIR", help="an export of sparsewire_bench; default: a new one, removed afterwards")
    parser.add_argument("--n", type=int, default=25_000_000, help="entries of the gradient; default %(default)s")
    parser.add_argument("--repetitions", type=int, default=LEAST_REPETITIONS, help="timed steps, at least the default; default %(default)s")
    arguments = parser.parse_args()
    if arguments.repetitions < LEAST_REPETITIONS:
        parser.error(f"--repetitions {arguments.repetitions} is less than {LEAST_REPETITIONS}")
    if not arguments.bench.is_file():
        parser.error(f"--bench {arguments.bench}: no such file; build it with: cmake --build --preset release")
    arguments.bench = arguments.bench.resolve()
    return arguments


def import_torch():
    try:
        import numpy
        import torch
    except ImportError as error:
        sys.exit(f"torch_step.py: {error}. On Debian: apt install python3-torch, and run this with /usr/bin/python3.")
    torch.set_num_threads(1)
    return torch, numpy


def run(command, **options):
    result = subprocess.run(command, **options)
    if result.returncode != 0:
        sys.exit(f"torch_step.py: {command[0].name} failed with exit code {result.returncode}")
    return result


def export(bench, n, folder):
    print(f"exporting {n} entries ...", flush=True)
    run([bench, f"--n={n}", "--export", folder])


def load(torch, numpy, file):
    return torch.from_numpy(numpy.load(file))


def torch_step(memory, gradient, k):
    memory.add_(gradient)
    indices = memory.abs().topk(k).indices
    values = memory[indices]
    memory[indices] = 0
    return indices, values


def time_torch(torch, memory, gradients, k, repetitions):
    """Milliseconds of each repetition, after two repetitions that are not timed."""
    check(torch, memory.clone(), gradients[0], k)
    times = []
    for repetition in range(-2, repetitions):
        gradient = gradients[repetition % len(gradients)]
        start = time.perf_counter()
        torch_step(memory, gradient, k)
        if repetition >= 0:
            times.append(1e3 * (time.perf_counter() - start))
    return times


def check(torch, memory, gradient, k):
    sums = memory + gradient
    indices, values = torch_step(memory, gradient, k)
    left = sums.clone()
    left[indices] = 0
    right = len(set(indices.tolist())) == k and torch.equal(values, sums[indices]) and torch.equal(memory, left)
    if not right or values.abs().min() < memory.abs().max():
        sys.exit("torch_step.py: the PyTorch step is not the Top-k of memory + gradient")


def time_sparsewire(bench, n, repetitions):
    """Medians in milliseconds, by the name of the bench without its size."""
    ratios = "|".join(TARGETS)
    wanted = f"^floor/add$|^step/topk/ratio:({ratios})/case:steady/threads:1/"
    flags = [f"--benchmark_filter={wanted}", f"--benchmark_repetitions={repetitions}", "--benchmark_format=json"]
    result = run([bench, f"--n={n}", *flags], stdout=subprocess.PIPE, text=True)
    return {
        bench["run_name"].removesuffix(f"/n:{n}"): bench["real_time"]
        for bench in json.loads(result.stdout)["benchmarks"]
        if bench.get("aggregate_name") == "median"
    }


def torch_medians(arguments, torch, numpy, folder):
    gradients = [load(torch, numpy, file) for file in sorted(folder.glob("gradient-*.npy"))]
    if not gradients or len(gradients[0]) != arguments.n:
        sys.exit(f"torch_step.py: {folder} is not an export of {arguments.n} entries")
    medians = {}
    for ratio in TARGETS:
        print(f"timing PyTorch {torch.__version__} at ratio {ratio} ...", flush=True)
        k = max(1, math.floor(float(ratio) * arguments.n + 0.5))
        memory = load(torch, numpy, folder / f"memory-{ratio}.npy")
        medians[ratio] = statistics.median(time_torch(torch, memory, gradients, k, arguments.repetitions))
    return medians


def main():
    arguments = parse_arguments()
    torch, numpy = import_torch()
    if arguments.data:
        in_torch = torch_medians(arguments, torch, numpy, arguments.data)
    else:
        with tempfile.TemporaryDirectory(prefix="sparsewire-") as folder:
            export(arguments.bench, arguments.n, folder)
            in_torch = torch_medians(arguments, torch, numpy, Path(folder))
    print("timing sparsewire ...", flush=True)
    ours = time_sparsewire(arguments.bench, arguments.n, arguments.repetitions)

    floor = ours["floor/add"]
    print(f"\none thread, {arguments.n} floats, medians of {arguments.repetitions} repetitions; memory += gradient: {floor:.2f} ms\n")
    print("| Top-k step | PyTorch, ms | sparsewire, ms | times faster | at least |        |")
    print("| ---------- | ----------: | -------------: | -----------: | -------: | ------ |")
    for ratio, target in TARGETS.items():
        mine = ours[f"step/topk/ratio:{ratio}/case:steady/threads:1"]
        faster = in_torch[ratio] / mine
        verdict = "held" if faster >= target else "MISSED"
        percent = f"{100 * float(ratio):g} %"
        print(f"| {percent:<10} | {in_torch[ratio]:>11.1f} | {mine:>14.2f} | {faster:>12.1f} | {target:>8} | {verdict:<6} |")


if __name__ == "__main__":
    main()
