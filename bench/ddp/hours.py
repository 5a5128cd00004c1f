#!/usr/bin/env python3
"""Hours until each method's best loss: its steps, from rows of bench/gpt/grid.py, times its seconds a step on each link, from
rows of local_bench.py. Prints Markdown.

    python3 bench/ddp/hours.py results/0.8.0/gpt_simulation.jsonl results/0.8.0/step_times.jsonl
"""

import collections
import json
import statistics
import sys

# In local_bench.py, in grid.py, and in the table.
METHODS = [
    ("ddp", "dense", "DDP"),
    ("powersgd4", "powersgd-4", "PowerSGD of rank 4, every step"),
    ("topk:ratio=0.01", "topk-1%", "Top-k 1 %, every step"),
    ("diloco", "diloco", "torchft's DiLoCo"),
    ("streaming", "diloco", "torchft's DiLoCo, streaming"),
    ("local", "local", "**LocalSteps**"),
    ("local_both", "local-both", "LocalSteps both ways"),
]
TUNING_SEED = 100


def read(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]


def loss_of(found):
    return statistics.mean(row["best"]["validation_loss"] for row in found)


def runs_of(rows, name):
    """Those of the cell with most judging seeds, or of the best cell where there are none."""
    cells = collections.defaultdict(list)
    for row in rows:
        if row["name"] == name and row.get("best"):
            cells[row["cell"]].append(row)

    def judging(cell):
        return [row for row in cells[cell] if row["seed"] != TUNING_SEED]

    cell = min(cells, key=lambda one: (-len(judging(one)), loss_of(cells[one])))
    return judging(cell) or cells[cell]


def best_of(rows, name):
    """Mean of best loss and of its step."""
    found = runs_of(rows, name)
    return loss_of(found), statistics.mean(row["best"]["step"] for row in found)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__.strip())
    rows, times = read(sys.argv[1]), read(sys.argv[2])
    seconds = {(row["method"], row["note"], row["computing"]): row["seconds_per_step"] for row in times}
    columns = [(link, computing) for computing in (0.5, 0.1) for link in ("10mbit", "100mbit", "1gbit")]
    print("| | best loss | steps until then |", *[f"{link}, {computing} s |" for link, computing in columns])
    print("|---|---|---|" + "---|" * len(columns))
    dense_steps = best_of(rows, "dense")[1]
    for timed, simulated, words in METHODS:
        loss, steps = best_of(rows, simulated)
        cells = []
        for column in columns:
            if (timed, *column) not in seconds:
                cells.append(" |")
                continue
            hours = steps * seconds[timed, *column] / 3600
            times_faster = dense_steps * seconds["ddp", *column] / 3600 / hours
            cells.append(f"{hours:.3g} h ({times_faster:.3g}) |")
        print(f"| {words} | {loss:.3f} | {steps:.0f} |", *cells)


if __name__ == "__main__":
    main()
