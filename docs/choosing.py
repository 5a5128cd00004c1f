#!/usr/bin/env python3
"""Measures the tables of docs/choosing.md and prints them.

    docs/choosing.py PROGRAM [--data a9a] [--only mlp,logreg,exchange,codec]

PROGRAM is build/release/apps/sparsewire/sparsewire. About ten minutes on two cores. The results do not depend on the
machine: the same seed gives the same weights and the same bytes everywhere.
"""
import argparse
import json
import statistics
import subprocess
import sys

RATES = [0.03, 0.1, 0.3]
RATIOS = [0.001, 0.01, 0.1]
SEEDS = [0, 1, 2]


def train(program, *options):
    """One training; its report, or None if it diverged."""
    command = [program, "train", "--quiet", "--eval-every", "0", "--json", "-", *map(str, options)]
    print(" ".join(command), file=sys.stderr)
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=600, text=True)
    if done.returncode == 0:
        return json.loads(done.stdout)
    if "diverged" in done.stderr:
        return None
    sys.exit(done.stderr)


def row(*cells):
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def header(*cells):
    row(*cells)
    row(*["---"] + ["---:"] * (len(cells) - 1))


def spread(numbers, digits):
    """Mean, and the lowest and highest."""
    if any(number is None for number in numbers):
        return "diverged"
    return f"{statistics.mean(numbers):.{digits}f} ({min(numbers):.{digits}f} to {max(numbers):.{digits}f})"


def methods(ratios):
    """Name and options of each method."""
    yield "dense", ["--sparsifier", "dense", "--exchange", "dense"]
    for ratio in ratios:
        yield f"topk, {ratio}", ["--sparsifier", f"topk:{ratio}", "--exchange", "sharded"]
        yield f"topk both ways, {ratio}", ["--sparsifier", f"topk:{ratio}", "--exchange", "sharded", "--downlink",
                                           f"topk:{ratio}"]


def sweep(program, problem, ratios, rates, metric_digits):
    header("method", *[f"lr {rate}: loss" for rate in rates], *[f"lr {rate}: accuracy" for rate in rates])
    for name, options in methods(ratios):
        losses, accuracies = [], []
        for rate in rates:
            reports = [train(program, *problem, *options, "--lr", rate, "--seed", seed) for seed in SEEDS]
            losses.append(spread([report and report["test_loss"] for report in reports], 3))
            accuracies.append(spread([report and report["accuracy"] for report in reports], metric_digits))
        row(name, *losses, *accuracies)


def exchanges(program):
    """Bytes of one worker and one step, mean over all workers and 50 steps."""
    steps = 50
    header("kB a worker and step", *[f"{workers} workers" for workers in [4, 8, 16]])
    topk = ["--sparsifier", "topk:ratio=0.01"]
    both = topk + ["--downlink", "topk:ratio=0.01"]
    for name, options in [("dense", ["--sparsifier", "dense", "--exchange", "dense"]),
                          ("dense, bf16", ["--sparsifier", "dense", "--exchange", "dense", "--codec",
                                           "auto:values=bf16"]),
                          ("topk, allgather", topk + ["--exchange", "allgather"]),
                          ("topk, server", topk + ["--exchange", "server"]),
                          ("topk, sharded", topk + ["--exchange", "sharded"]),
                          ("topk both ways, server", both + ["--exchange", "server"]),
                          ("topk both ways, sharded", both + ["--exchange", "sharded"])]:
        cells = []
        for workers in [4, 8, 16]:
            report = train(program, *options, "--workers", workers, "--steps", steps)
            moved = report["bytes_up"] + report["bytes_down"]
            cells.append(f"{moved / workers / steps / 1000:.1f}")
        row(name, *cells)


def codecs(program):
    header("values", "bytes up and down, of f32", "test loss", "accuracy")
    first = None
    for values in ["f32", "f16", "bf16", "int8", "int4", "int2"]:
        reports = [train(program, "--sparsifier", "topk:ratio=0.01", "--downlink", "topk:ratio=0.01", "--codec",
                         f"auto:values={values}", "--seed", seed) for seed in SEEDS]
        moved = sum(report["bytes_up"] + report["bytes_down"] for report in reports)
        first = first or moved
        row(values, f"{moved / first:.2f}", spread([report["test_loss"] for report in reports], 3),
            spread([report["accuracy"] for report in reports], 3))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--data", help="a9a, from the LIBSVM collection")
    parser.add_argument("--only", default="exchange,codec,mlp,logreg")
    arguments = parser.parse_args()
    only = arguments.only.split(",")
    if "exchange" in only:
        print("\n## Exchanges\n")
        exchanges(arguments.program)
    if "codec" in only:
        print("\n## Codecs\n")
        codecs(arguments.program)
    if "mlp" in only:
        print("\n## mlp\n")
        sweep(arguments.program, ["--problem", "mlp"], [f"ratio={ratio}" for ratio in RATIOS], RATES, 3)
    if "logreg" in only and arguments.data:
        print("\n## logreg on a9a\n")
        sweep(arguments.program, ["--problem", "logreg:batch=32", "--data", arguments.data],
              ["k=1", "k=12"], RATES + [1], 4)


main()
