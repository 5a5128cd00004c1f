"""Trains by every method: each cell of its grid on one seed, then the best of each method on others. Runs some side by side,
begins none after --limit seconds, and leaves out what the file of rows has already, so that it can be called again.

    python3 bench/gpt/grid.py input.txt rows.jsonl --jobs 3 --limit 500
"""

import argparse
import json
import os
import subprocess
import sys
import time

RATES = ["0.00025", "0.0005", "0.001", "0.002", "0.004"]
EVERY_STEP = "--method sparse --average all --codec auto --feedback ef --sparsifier"
LOCAL = "--method local"
BOTH = f"{LOCAL} --exchange server --downlink topk:k=123,chunk=4096"
METHODS = {
    "dense": "--method dense",
    "powersgd-4": "--method powersgd",
    "topk-10%": f"{EVERY_STEP} topk:ratio=0.1",
    "topk-1%": f"{EVERY_STEP} topk:ratio=0.01",
    "topk-0.1%": f"{EVERY_STEP} topk:ratio=0.001",
    "diloco": f"{LOCAL} --sparsifier dense --outer-lr 0.7 --outer-momentum 0.9",
    "local": LOCAL,
    "local-both": BOTH,
}
# Beside the learning rates alone.
MORE_CELLS = {
    "dense": ["--lr 0.0005 --steps 750", "--lr 0.001 --steps 750", "--lr 0.0005 --steps 1000", "--lr 0.001 --steps 1000"],
    "local": [
        "--lr 0.0007",
        "--lr 0.001 --outer-lr 0.8",
        "--lr 0.001 --steps 1650",
        "--lr 0.0007 --steps 1650",
        "--lr 0.0015 --outer-lr 0.7",
    ],
    "local-both": [
        "--lr 0.001 --steps 1650",
        "--lr 0.001 --steps 1650 --downlink-codec auto:values=int4",
        "--lr 0.001 --steps 1650 --outer-lr 0.8",
        "--lr 0.0014 --steps 1650 --outer-lr 0.8",
    ],
}
TUNING_SEED = 100
SEEDS = [0, 1, 2]


def cells_of(name, rates):
    if rates:
        return [f"--lr {rate}" for rate in rates.split(",")]
    return [f"--lr {rate}" for rate in RATES] + MORE_CELLS.get(name, [])


def read(path):
    if not os.path.exists(path):
        return []
    lines = [json.loads(line) for line in open(path, encoding="utf-8") if line.strip()]
    return [line for line in lines if "config" in line]


def best_cell(rows, name):
    found = [row for row in rows if row["name"] == name and row["seed"] == TUNING_SEED and row["best"]]
    return min(found, key=lambda row: row["best"]["validation_loss"])["cell"] if found else None


def plan(rows, names, rates):
    """What is left, tuning first."""
    done = {(row["name"], row["seed"], row["cell"]) for row in rows}
    left = [(name, TUNING_SEED, cell) for name in names for cell in cells_of(name, rates)]
    left = [run for run in left if run not in done]
    if left:
        return left
    left = [(name, seed, best_cell(rows, name)) for seed in SEEDS for name in names]
    return [run for run in left if run[2] and run not in done]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text")
    parser.add_argument("rows")
    parser.add_argument("--jobs", type=int, default=3)
    parser.add_argument("--limit", type=float, default=500)
    parser.add_argument("--only", default=",".join(METHODS))
    parser.add_argument("--rates", help="learning rates with commas between them, instead of the cells of this file")
    options, others = parser.parse_known_args()
    names = options.only.split(",")
    began = time.time()
    running = {}
    failed = set()
    train = os.path.join(os.path.dirname(os.path.abspath(__file__)), "train.py")
    while True:
        for run, process in list(running.items()):
            if process.poll() is not None:
                del running[run]
                if process.returncode:
                    failed.add(run)
        left = [run for run in plan(read(options.rows), names, options.rates) if run not in running and run not in failed]
        tuning = any(seed == TUNING_SEED for _, seed, _ in running)
        can_begin = left and time.time() - began < options.limit and not (tuning and left[0][1] != TUNING_SEED)
        if not running and not can_begin:
            return 1 if failed else 0
        if can_begin and len(running) < options.jobs:
            name, seed, cell = left[0]
            command = [sys.executable, train, options.text, "--name", name, "--seed", str(seed), "--cell", cell, *others]
            command += [*METHODS[name].split(), *cell.split(), "--out", options.rows]
            running[left[0]] = subprocess.Popen(command, stdout=subprocess.DEVNULL)
            continue
        time.sleep(0.5)


if __name__ == "__main__":
    sys.exit(main())
