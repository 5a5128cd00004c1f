#!/usr/bin/env python3
"""Measures the tables of docs/start/choosing.md and prints them.

    bench/choosing.py PROGRAM [--data a9a] [--only mlp,logreg,exchange,codec]

PROGRAM is build/release/apps/sparsewire/sparsewire. About ten minutes of processor time. The results do not depend on the
machine: the same seed gives the same weights and the same bytes everywhere.
"""
import argparse
import functools
import json
import statistics
import subprocess
import sys

RATES = [0.03, 0.1, 0.3]
RATIOS = [0.001, 0.01, 0.1]
BASELINE_RATE = 0.1
SEEDS = [0, 1, 2]
DENSE = ["--sparsifier", "dense", "--exchange", "dense"]


@functools.cache
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


def spread(numbers, digits, sign=""):
    """Mean, and the lowest and highest."""
    shown = [f"{number:{sign}.{digits}f}" for number in (statistics.mean(numbers), min(numbers), max(numbers))]
    return f"{shown[0]} ({shown[1]} to {shown[2]})"


def loss_of(report):
    """On test data; on the training data with the l2 term where none are held back."""
    return report["test_loss"] if "test_loss" in report else report["train_objective"]


def accuracy_of(report):
    return report["test_accuracy"] if "test_accuracy" in report else report["train_accuracy"]


def compare(reports, baseline):
    """Losses; and accuracies minus those of the baseline. A seed has data of its own, so seeds are compared one by
    one."""
    if None in reports:
        return "diverged", "diverged"
    losses = [loss_of(report) for report in reports]
    gains = [accuracy_of(report) - accuracy_of(base) for report, base in zip(reports, baseline)]
    return f"{statistics.mean(losses):.3f}", spread(gains, 3, "+")


def methods(ratios):
    """Name and options of each method."""
    yield "dense", DENSE
    for ratio in ratios:
        yield f"topk, {ratio}", ["--sparsifier", f"topk:{ratio}", "--exchange", "sharded"]
        yield f"topk both ways, {ratio}", ["--sparsifier", f"topk:{ratio}", "--exchange", "sharded", "--downlink",
                                           f"topk:{ratio}"]


def sweep(program, problem, ratios, rates):
    header("method", *[f"loss, lr {rate}" for rate in rates], *[f"accuracy, lr {rate}" for rate in rates])
    baseline = [train(program, *problem, *DENSE, "--lr", BASELINE_RATE, "--seed", seed) for seed in SEEDS]
    for name, options in methods(ratios):
        cells = []
        for rate in rates:
            cells.append(compare([train(program, *problem, *options, "--lr", rate, "--seed", seed) for seed in SEEDS],
                                 baseline))
        row(name, *[loss for loss, _ in cells], *[gain for _, gain in cells])
    print("\naccuracy of the baseline, by seed:", [accuracy_of(base) for base in baseline], flush=True)


def exchanges(program):
    """Thousands of bytes of one worker and one step, mean over all workers and 50 steps; and all that the busiest rank
    sends and receives, in its role as a server too."""
    steps, counts = 50, [4, 8, 16]
    topk = ["--sparsifier", "topk:ratio=0.01"]
    both = topk + ["--downlink", "topk:ratio=0.01"]
    header("kB in a step", *[f"a worker, P = {workers}" for workers in counts],
           *[f"busiest rank, P = {workers}" for workers in counts])
    for name, options in [("dense", DENSE),
                          ("dense, bf16", DENSE + ["--codec", "auto:values=bf16"]),
                          ("topk, allgather", topk + ["--exchange", "allgather"]),
                          ("topk, server", topk + ["--exchange", "server"]),
                          ("topk, sharded", topk + ["--exchange", "sharded"]),
                          ("topk both ways, server", both + ["--exchange", "server"]),
                          ("topk both ways, sharded", both + ["--exchange", "sharded"])]:
        mean, busiest = [], []
        for workers in counts:
            report = train(program, *options, "--workers", workers, "--steps", steps)
            moved = report["bytes_up"] + report["bytes_down"]
            mean.append(moved / workers)
            if name.startswith("dense"):  # an all-reduce: every rank sums a part, which is not counted as served
                trailers = 2 * (workers - 1) * 52 * steps
                busiest.append(2 * moved / workers - trailers)
            elif "server" in name:  # rank 0 serves all, and has no traffic of its own
                busiest.append(report["bytes_served"])
            else:  # all ranks have about the same
                busiest.append((moved + report["bytes_served"]) / workers)
        row(name, *[f"{number / steps / 1000:.1f}" for number in mean + busiest])


def codecs(program):
    header("values", "bytes, of f32", "test loss", "accuracy minus that of f32")
    first = None
    for values in ["f32", "f16", "bf16", "int8", "int4", "int2"]:
        reports = [train(program, "--sparsifier", "topk:ratio=0.01", "--downlink", "topk:ratio=0.01", "--codec",
                         f"auto:values={values}", "--seed", seed) for seed in SEEDS]
        first = first or reports
        moved, moved_first = [sum(report["bytes_up"] + report["bytes_down"] for report in some)
                              for some in (reports, first)]
        row(values, f"{moved / moved_first:.2f}", *compare(reports, first))


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
        sweep(arguments.program, ["--problem", "mlp"], [f"ratio={ratio}" for ratio in RATIOS], RATES)
    if "logreg" in only and arguments.data:
        print("\n## logreg on a9a\n")
        sweep(arguments.program, ["--problem", "logreg:batch=32", "--data", arguments.data],
              ["k=1", "k=12"], RATES + [1])


main()
