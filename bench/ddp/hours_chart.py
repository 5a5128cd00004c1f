#!/usr/bin/env python3
"""Draws loss against hours, one panel for each link: the steps of rows of bench/gpt/grid.py, times the seconds a step that
local_bench.py measured there. A large mark is a method's best loss (mean of its seeds), small ones are seeds. Rows that
bench/gpt/train.py wrote at each evaluation, if the file has any, become a line. Needs matplotlib.

    python3 bench/ddp/hours_chart.py results/0.8.0/gpt_simulation.jsonl results/0.8.0/step_times.jsonl docs/start/hours.svg
"""

import argparse
import collections
import statistics

import hours
import matplotlib
import matplotlib.ticker
from matplotlib import pyplot

# In local_bench.py, in grid.py, and in the picture; colours that differ also for the colour-blind.
METHODS = [
    ("ddp", "dense", "DDP", "#000000", "s"),
    ("powersgd4", "powersgd-4", "PowerSGD of rank 4", "#CC79A7", "^"),
    ("topk:ratio=0.01", "topk-1%", "the hook: Top-k 1 % every step", "#E69F00", "v"),
    ("streaming", "diloco", "torchft's DiLoCo, streaming", "#0072B2", "D"),
    ("local", "local", "LocalSteps", "#009E73", "o"),
]
LINKS = {"10mbit": "10 Mbit/s", "100mbit": "100 Mbit/s", "1gbit": "1 Gbit/s"}


def mean_curve(rows, found):
    """Of the runs in `found`: steps and mean losses, at the steps that all of them have. Empty without evaluations."""
    runs = {(row["name"], row["cell"], row["seed"]) for row in found}
    losses = collections.defaultdict(list)
    for row in rows:
        if "best" not in row and (row["name"], row["cell"], row["seed"]) in runs:
            losses[row["step"]].append(row["validation_loss"])
    steps = sorted(step for step, seeds in losses.items() if len(seeds) == len(runs))
    return steps, [statistics.mean(losses[step]) for step in steps]


def draw(axes, rows, seconds, link, computing):
    ended = [row for row in rows if "best" in row]
    for timed, simulated, words, colour, marker in METHODS:
        if (timed, link, computing) not in seconds or not any(row["name"] == simulated for row in ended):
            continue
        hours_per_step = seconds[timed, link, computing] / 3600
        found = hours.runs_of(ended, simulated)
        steps, losses = mean_curve(rows, found)
        axes.plot([step * hours_per_step for step in steps], losses, color=colour, linewidth=1.5)
        points = [(row["best"]["step"] * hours_per_step, row["best"]["validation_loss"]) for row in found]
        axes.scatter(*zip(*points), color=colour, marker=marker, s=9, linewidths=0)
        x, y = (statistics.mean(axis) for axis in zip(*points))
        is_ours = simulated == "local"
        axes.scatter([x], [y], color=colour, marker=marker, s=110 if is_ours else 70, label=words, zorder=3)
        if steps:
            continue
        side = -1 if timed == "streaming" else 1  # beside LocalSteps
        place = {"xytext": (side * 9, 0), "textcoords": "offset points", "ha": "left" if side > 0 else "right", "va": "center"}
        axes.annotate(f"{x:.3g} h", (x, y), fontsize=9, color=colour, **place)
    axes.set_title(LINKS.get(link, link), fontsize=11)
    axes.set_xscale("log")
    axes.set_xlabel("hours until then")
    axes.xaxis.set_major_formatter(matplotlib.ticker.FormatStrFormatter("%g"))
    axes.xaxis.set_minor_formatter(matplotlib.ticker.NullFormatter())
    axes.yaxis.set_major_locator(matplotlib.ticker.MaxNLocator(6, steps=[1, 2, 5, 10]))
    axes.grid(True, which="both", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", help="of bench/gpt/grid.py")
    parser.add_argument("times", help="rows of local_bench.py")
    parser.add_argument("picture", help="its name decides the format: .svg, .png")
    parser.add_argument("--links", default="100mbit,1gbit", help="(%(default)s)")
    parser.add_argument("--computing", type=float, default=0.5, help="seconds that a step computes (%(default)s)")
    parser.add_argument("--note", default="", help="a line below the picture")
    options = parser.parse_args()
    matplotlib.use("agg")
    pyplot.rcParams.update({"svg.hashsalt": "sparsewire", "font.size": 10})
    rows = hours.read(options.rows)
    seconds = {(row["method"], row["note"], row["computing"]): row["seconds_per_step"] for row in hours.read(options.times)}
    links = options.links.split(",")
    figure, panels = pyplot.subplots(1, len(links), figsize=(9, 3.9), sharex=True, sharey=True, squeeze=False)
    for axes, link in zip(panels[0], links):
        draw(axes, rows, seconds, link, options.computing)
    low, high = panels[0][0].get_xlim()
    panels[0][0].set_xlim(low * 0.7, high * 1.4)
    ticks = [0.001, 0.01, 0.1, 1, 10, 100] if high > 50 * low else [0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50]
    ticks = [tick for tick in ticks if low * 0.7 <= tick <= high * 1.4]
    panels[0][0].set_xticks(ticks)
    panels[0][0].set_ylabel("best validation loss")
    panels[0][0].margins(y=0.12)
    marks, names = panels[0][0].get_legend_handles_labels()
    bottom = 0.06 if options.note else 0
    figure.legend(marks, names, loc="lower center", bbox_to_anchor=(0.5, bottom), ncols=3, frameon=False, fontsize=9)
    figure.text(0.5, 0.02, options.note, ha="center", fontsize=8, color="#555555")
    figure.tight_layout(rect=(0, 0.13 + bottom, 1, 1))
    is_svg = options.picture.endswith(".svg")
    figure.savefig(options.picture, dpi=160, metadata={"Date": None} if is_svg else None)


if __name__ == "__main__":
    main()
