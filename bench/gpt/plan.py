"""The experiment of docs/evidence/gpt.md: tunes every method with a small model, then trains the large one with what was best.
Leaves out what the files of rows have, so that it can be called again, and begins no run that would end too late. Processes
with the same --out and --share share the work.

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
import hashlib
import itertools
import json
import math
import os
import subprocess
import sys
import tempfile
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
# Not tuned: name, whose cell, and other flags.
MORE = {
    "local-30-of-32": ("local-30", THIRTY_TWO),
    "local-30-both-of-32": ("local-30-both", THIRTY_TWO),
    # Added after REASONS had been run.
    "local-30-both-512": ("local-30-both", "--downlink topk:k=512,chunk=4096"),
}
# Not tuned either, with the small model, to find reasons; they decide nothing. Those of MORE_STEPS take long.
REASONS = {
    "both, 512 of 4,096 down": ("local-30-both", "--downlink topk:k=512,chunk=4096"),
    "both, f32 down": ("local-30-both", "--downlink-codec auto"),
    "both, 512 of 4,096 and f32 down": ("local-30-both", "--downlink topk:k=512,chunk=4096 --downlink-codec auto"),
}
MORE_STEPS = {
    "one way, twice the steps": ("local-30", "--steps 2000"),
    "one way, 4 times the rows": ("local-30", "--rows 32"),
}
OTHERS = MORE | REASONS | MORE_STEPS
MAIN = ["dense", "local-30", "diloco", "local-30-both"]
# The slowest first.
ORDER = [
    (MAIN, [0]),
    (["topk-1%", "local-30-both-of-32", "powersgd-4", "local-30-of-32", "local-15", "local-100", "local-30-both-512"], [0]),
    (["local-30-0.2%", "local-30-threshold", "local-30-rtopk", "local-30-regtopk"], [0]),
    (MAIN, [1]),
    (MAIN, [2]),
]
TUNING_SEED = 100
CELLS = 5
FIRST_RATE = 0.002
# Seconds of a GPU with nothing beside it; a guess.
SECONDS = {"12M": 13, "64M": 90}
LONGER = {"topk-1%": 2, "local-30-of-32": 2, "local-30-both-of-32": 2} | dict.fromkeys(MORE_STEPS, 4)


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
    best = {}
    for name in dict.fromkeys(MORE.get(name, (name,))[0] for names, _ in ORDER for name in names):
        losses = tuning(rows, name)
        place = next_place(losses, METHODS[name][1])
        if place is None:
            best[name] = min(losses, key=losses.get)
        else:
            yield "12M", name, TUNING_SEED, cell_of(name, place)
    small = [("12M", name, TUNING_SEED) for name in REASONS]
    large = [("64M", name, seed) for names, seeds in ORDER for seed in seeds for name in names]
    longer = [("12M", name, TUNING_SEED) for name in MORE_STEPS]
    last = len(large) - len(ORDER[-1][0])
    for size, name, seed in [*small, *large[:last], *longer, *large[last:]]:
        source = OTHERS.get(name, (name,))[0]
        if source in best:
            run = (size, name, seed, cell_of(source, best[source], WIDER if size == "64M" else 1.0))
            if run not in done:
                yield run


def flags(size, name, seed, cell):
    source, others = OTHERS.get(name, (name, ""))
    spoken = name.replace(" ", "-").replace(",", "")
    found = f"--name {spoken} {COMMON} {SIZES[size]} {EIGHT} {METHODS[source][0]} {others} --seed {seed} {cell}"
    return " ".join(found.split())


def expected_seconds(run, beside=0):
    """With so many other runs beside it."""
    return SECONDS[run[0]] * LONGER.get(run[1], 1) * (1 + beside)


class Share:
    """The work of several processes: in a folder, an empty file for each run that one of them began, and for each that ended."""

    def __init__(self, folder):
        self.folder = folder

    def path(self, run, what):
        return os.path.join(self.folder, hashlib.sha256(repr(run).encode()).hexdigest()[:16] + what)

    def begin(self, run):
        """False if one of them did before."""
        try:
            os.close(os.open(self.path(run, ".begun"), os.O_CREAT | os.O_EXCL))
            return True
        except FileExistsError:
            return False

    def end(self, run):
        open(self.path(run, ".ended"), "w", encoding="utf-8").close()

    def running(self):
        names = os.listdir(self.folder)
        return sum(name.endswith(".begun") for name in names) - sum(name.endswith(".ended") for name in names)


def machine():
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    return f"{os.cpu_count()} processors, no GPU"


def commit():
    try:
        return subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""


def do(run, options, must_end):
    """Makes one run, and returns its row."""
    size, name, seed, cell = run
    began = time.time()
    chosen = flags(*run) + (f" {options.also}" if options.also else "")
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


def read(paths, judged="judged"):
    rows = []
    for path in paths:
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                rows += [json.loads(line) for line in file if line.strip()]
    return [row | {"judged": row[judged]} for row in rows if judged in row]


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus")
    parser.add_argument("--known", nargs="*", default=[], help="files of rows")
    parser.add_argument("--out", default="gpt.jsonl", help="a file to append rows to")
    parser.add_argument("--seconds", type=float, default=540, help="from the start of this process; no run ends later")
    parser.add_argument("--only", default="", help="methods, with commas between them")
    parser.add_argument("--share", help="an empty folder, for several processes")
    parser.add_argument("--commit", default=commit(), help="for the rows")
    parser.add_argument("--list", action="store_true", help="only say what is left")
    parser.add_argument("--also", default="", help="flags behind those of each run, such as --compile")
    return parser.parse_args()


def main():
    began = time.time()
    options = parse()
    only = set(filter(None, options.only.split(",")))
    must_end = began + options.seconds
    failed = 0
    with tempfile.TemporaryDirectory() as own:
        share = Share(options.share or own)
        while True:
            rows = read([*options.known, options.out])
            todo = [run for run in left(rows) if not only or run[1] in only]
            if options.list:
                print(*(f"{expected_seconds(run):5.0f} s  {' '.join(map(str, run))}" for run in todo), sep="\n")
                return 0
            beside = share.running()
            fitting = (run for run in todo if time.time() + expected_seconds(run, beside) < must_end)
            run = next((run for run in fitting if share.begin(run)), None)
            if run is None:
                if beside and time.time() < must_end:
                    time.sleep(1)  # what runs may say what comes next
                    continue
                print(f"{len(todo)} runs that are known are left, {failed} failed", file=sys.stderr)
                return 1 if failed else 0
            try:
                row = json.dumps(do(run, options, must_end))
                with open(options.out, "a", encoding="utf-8", buffering=1 << 20) as file:
                    file.write(row + "\n")
                print(row[:200], flush=True)
            except train.TooSlow:
                print(f"{run} would not have ended in time", file=sys.stderr)
                failed += 1
            except Exception:
                traceback.print_exc()
                failed += 1
            share.end(run)
            gc.collect()
            torch.cuda.empty_cache()


if __name__ == "__main__":
    sys.exit(main())
