"""The experiment of docs/evidence/gpt.md: tunes every method with a small model, then trains the large one with what was best.
Leaves out what the files of rows have, so that it can be called again, and begins no run that would end too late.

    python3 bench/gpt/plan.py corpus/ --known results/0.8.0/gpt.jsonl --out new.jsonl --seconds 540
    python3 bench/gpt/plan.py corpus/ --known results/0.8.0/gpt.jsonl --list

Rules, written before the results:
- The small model tunes, on seed 100. A method begins with an inner rate of 0.002 and the outer rate of METHODS. It goes to the half
  and the double of the best inner rate until the best one has lower and higher neighbours; then likewise with the outer rate, by a
  factor of 1.41. A method without an outer rate goes to inner rates between instead. That makes five cells for each method,
  and more only where the best one would be at an edge. The lowest validation loss after the last step decides.
- The large model takes the best cell, with the inner rate divided by how much wider the model is (Yang et al., 2021).
"""

import argparse
import functools
import gc
import itertools
import json
import math
import os
import subprocess
import sys
import time
import traceback

import torch
import train

COMMON = "--context 512 --beta2 0.95 --eval-windows 256"
SIZES = {
    "12M": "--width 384 --layers 5 --heads 6 --steps 1000 --warm-up 100 --eval-every 200",
    "64M": "--width 640 --layers 12 --heads 10 --steps 2000 --warm-up 200 --eval-every 60",
}
WIDER = 640 / 384
EIGHT, THIRTY_TWO = "--workers 8 --rows 8", "--workers 32 --rows 2"
EVERY_STEP = "--method sparse --average all --codec auto --feedback ef --sparsifier"
LOCAL = "--method local --every 30 --sparsifier"
RATIO = "ratio=0.015625,dense_below=4096"
TOPK = "topk:k=64,chunk=4096,dense_below=4096"
BOTH = f"{LOCAL} {TOPK} --exchange sharded --downlink topk:k=192,chunk=4096"
# Flags, and the outer rate to begin with.
METHODS = {
    "dense": ("--method dense", None),
    "powersgd-4": ("--method powersgd --rank 4", None),
    "topk-1%": (f"{EVERY_STEP} topk:ratio=0.01", None),
    "diloco": (f"{LOCAL} dense --outer-momentum 0.9", 0.7),
    "local-30": (f"{LOCAL} {TOPK}", 1.0),
    "local-30-both": (BOTH, 1.0),
    "local-15": (f"{LOCAL} {TOPK} --every 15", 1.0),
    "local-100": (f"{LOCAL} {TOPK} --every 100", 1.0),
    "local-30-0.2%": (f"{LOCAL} topk:k=8,chunk=4096,dense_below=4096", 1.0),
    "local-30-threshold": (f"{LOCAL} threshold:{RATIO},calibrate=20 --feedback ef:decay=0.95,scale=lr", 1.0),
    "local-30-rtopk": (f"{LOCAL} rtopk:{RATIO}", 1.0),
    "local-30-regtopk": (f"{LOCAL} regtopk:{RATIO}", 1.0),
}
# Not tuned: name, whose cell, other flags, and how much wider the model counts.
MORE = {
    "local-30-of-32": ("local-30", THIRTY_TWO, WIDER),
    "local-30-both-of-32": ("local-30-both", THIRTY_TWO, WIDER),
    "dense-rate-as-tuned": ("dense", "", 1.0),
    "local-30-rate-as-tuned": ("local-30", "", 1.0),
}
MAIN = ["dense", "local-30", "diloco", "local-30-both"]
ORDER = [
    (MAIN, [0]),
    (["topk-1%", "powersgd-4", "local-15", "local-100"], [0]),
    (["local-30-0.2%", "local-30-threshold", "local-30-rtopk", "local-30-regtopk"], [0]),
    (["local-30-of-32", "local-30-both-of-32"], [0]),
    (MAIN, [1, 2]),
    (["dense-rate-as-tuned", "local-30-rate-as-tuned"], [0]),
]
TUNING_SEED = 100
CELLS = 5
FIRST_RATE = 0.002
# Seconds of a run that was never made; a first guess.
SECONDS = {("12M", "topk-1%"): 60, ("64M", "topk-1%"): 400, "12M": 25, "64M": 170}


def rates(name, inner, outer):
    """Of a cell: inner and outer are numbers of factors of 1.41 from where the method begins."""
    first_outer = METHODS[name][1]
    return FIRST_RATE * 2 ** (inner / 2), first_outer and first_outer * 2 ** (outer / 2)


def cell_of(name, place, wider=1.0):
    inner, outer = rates(name, *place)
    return f"--lr {inner / wider:.3g}" + (f" --outer-lr {outer:.3g}" if outer else "")


def next_place(losses, has_outer):
    """The next cell of a tuning, or None. losses: by place."""
    if not losses:
        return (0, 0)
    best = min(losses, key=lambda place: (losses[place], place))
    inner, outer = best
    edges = [((inner - 2, outer), 0, -1), ((inner + 2, outer), 0, 1)]
    if has_outer:
        edges += [((inner, outer - 1), 1, -1), ((inner, outer + 1), 1, 1)]
    for place, axis, sign in edges:
        if all((other[axis] - best[axis]) * sign <= 0 for other in losses):
            return place
    between = [place for place in ((inner - 1, outer), (inner + 1, outer)) if place not in losses]
    return between[0] if between and len(losses) < CELLS else None


def final_loss(row):
    loss = row["judged"][-1]["validation_loss"]
    return loss if math.isfinite(loss) else math.inf


@functools.cache
def places(name):
    """The place of every cell that a tuning might reach."""
    outer = range(-10, 11) if METHODS[name][1] else [0]
    return {cell_of(name, place): place for place in itertools.product(range(-20, 21), outer)}


def tuning(rows, name):
    """Losses of the tuning of a method, by place."""
    found = [row for row in rows if row["size"] == "12M" and row["name"] == name]
    return {places(name)[row["cell"]]: final_loss(row) for row in found}


def left(rows):
    """(size, name, seed, cell) of what is to be run, in order; of a method that is being tuned the next cell only."""
    done = {(row["size"], row["name"], row["seed"], row["cell"]) for row in rows}
    for names, seeds in ORDER:
        sources = {name: MORE[name][0] if name in MORE else name for name in names}
        waiting = set()
        for source in dict.fromkeys(sources.values()):
            place = next_place(tuning(rows, source), METHODS[source][1])
            if place is not None:
                waiting.add(source)
                yield "12M", source, TUNING_SEED, cell_of(source, place)
        for seed in seeds:
            for name, source in sources.items():
                if source in waiting:
                    continue
                losses = tuning(rows, source)
                wider = MORE[name][2] if name in MORE else WIDER
                run = ("64M", name, seed, cell_of(source, min(losses, key=losses.get), wider))
                if run not in done:
                    yield run


def flags(size, name, seed, cell):
    source, others, _ = MORE.get(name, (name, "", 1.0))
    found = f"--name {name} {COMMON} {SIZES[size]} {EIGHT} {METHODS[source][0]} {others} --seed {seed} {cell}"
    return " ".join(found.split())


def expected_seconds(rows, run):
    size, name = run[:2]
    alike = [row for row in rows if row["size"] == size]
    found = [row["wall_seconds"] for row in alike if row["name"] == name]
    others = [row["wall_seconds"] for row in alike if row["name"] != "topk-1%"]
    if found:
        return 1.05 * max(found) + 2
    return SECONDS.get((size, name)) or (1.5 * max(others) if others else SECONDS[size])


def machine():
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    return f"{os.cpu_count()} processors, no GPU"


def commit():
    found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return found.stdout.strip()


def do(run, options, must_end):
    """Makes one run, and returns its row."""
    size, name, seed, cell = run
    began = time.time()
    chosen = flags(*run) + (" --compile" if options.compile else "") + (f" {options.also}" if options.also else "")
    training = train.Training(train.parse([options.corpus, *chosen.split()]))
    try:
        found = training.run(lambda line: print(name, cell, json.dumps(line), file=sys.stderr, flush=True), must_end)
    finally:
        training.close()
    row = {"name": name, "size": size, "seed": seed, "cell": cell}
    row["command"] = f"python3 bench/gpt/train.py corpus {chosen}"
    row |= {"commit": options.commit, "machine": machine(), "torch": torch.__version__}
    row |= {"date": time.strftime("%Y-%m-%d"), "wall_seconds": round(time.time() - began, 1)}
    return row | {key: value for key, value in found.items() if key != "config"}


def read(paths):
    rows = []
    for path in paths:
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                rows += [json.loads(line) for line in file if line.strip()]
    return [row for row in rows if "judged" in row]


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus")
    parser.add_argument("--known", nargs="*", default=[], help="files of rows")
    parser.add_argument("--out", default="gpt.jsonl", help="a file to append rows to")
    parser.add_argument("--seconds", type=float, default=540, help="from the start of this process; no run ends later")
    parser.add_argument("--only", default="", help="methods, with commas between them")
    parser.add_argument("--compile", action="store_true", help="with torch.compile")
    parser.add_argument("--commit", default=commit(), help="for the rows")
    parser.add_argument("--list", action="store_true", help="only say what is left")
    parser.add_argument("--also", default="", help="flags behind those of each run, to try the plan at a tiny size")
    return parser.parse_args()


def main():
    began = time.time()
    options = parse()
    only = set(filter(None, options.only.split(",")))
    failed = set()
    while True:
        rows = read([*options.known, options.out])
        todo = [run for run in left(rows) if run not in failed and (not only or run[1] in only)]
        if options.list:
            print(*(f"{expected_seconds(rows, run):5.0f} s  {' '.join(map(str, run))}" for run in todo), sep="\n")
            return 0
        must_end = began + options.seconds
        fitting = [run for run in todo if time.time() + expected_seconds(rows, run) < must_end]
        if not fitting:
            print(f"{len(todo)} runs that are known are left, {len(failed)} failed", file=sys.stderr)
            return 1 if failed else 0
        run = fitting[0]
        try:
            row = json.dumps(do(run, options, must_end))
            with open(options.out, "a", encoding="utf-8") as file:
                file.write(row + "\n")
            print(row[:200], flush=True)
        except train.TooSlow:
            print(f"{run} would not have ended in time", file=sys.stderr)
            failed.add(run)
        except Exception:
            traceback.print_exc()
            failed.add(run)
        gc.collect()
        torch.cuda.empty_cache()


if __name__ == "__main__":
    sys.exit(main())
