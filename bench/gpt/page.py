"""The tables and the picture of docs/evidence/gpt.md, from the rows of plan.py and probe.py.

    python3 bench/gpt/page.py results/0.8.0/gpt.jsonl results/0.8.0/gpt_probe.jsonl --picture docs/evidence/gpt.svg

Hours are computed: inner steps times the seconds that one worker's step took, exchanges times the seconds that an exchange took
(of all workers, on one GPU), and the bytes of the busiest worker's link divided by its speed.
"""

import argparse
import json
import math
import os
import statistics
import sys

import plan

WORDS = {
    "dense": "dense, every step (DDP)",
    "powersgd-4": "PowerSGD of rank 4, every step",
    "topk-1%": "Top-k 1 %, every step",
    "diloco": "DiLoCo: dense, H = 30",
    "local-15": "LocalSteps, H = 15",
    "local-30": "**LocalSteps, H = 30**",
    "local-100": "LocalSteps, H = 100",
    "local-30-both": "H = 30, both ways, 192 of 4,096 down",
    "local-30-both-512": "**H = 30, both ways, 512 of 4,096 down**",
    "local-30-0.2%": "H = 30, 8 of 4,096 (0.2 %)",
    "local-30-threshold": "H = 30, hard threshold",
    "local-30-rtopk": "H = 30, rTop-k",
    "local-30-regtopk": "H = 30, RegTop-k",
    "local-30-of-32": "32 workers: LocalSteps, H = 30",
    "local-30-both-of-32": "32 workers: the same both ways",
}
TARGETS = [0.05, 0.02]
LASTS = ["local-15", "local-30"]
LINKS = [("100 Mbit/s", 100e6 / 8), ("1 Gbit/s", 1e9 / 8)]
COLOURS = {
    "dense": "#444444",
    "powersgd-4": "#9467bd",
    "topk-1%": "#d62728",
    "diloco": "#e8850c",
    "local-15": "#17becf",
    "local-30": "#1f77b4",
}


def targets(rows):
    """Validation losses: dense's after its last step, plus a part of what it fell by. Means over its seeds."""
    first, last = (statistics.mean(row["judged"][i]["validation_loss"] for row in rows["dense"]) for i in (0, -1))
    return [last + part * (first - last) for part in TARGETS]


def reached(row, target, of):
    """The first step with at most this loss, and what `of` says there; in a straight line between two judgements."""
    judged = row["judged"]
    for before, after in zip(judged, judged[1:]):
        if after["validation_loss"] <= target:
            part = (before["validation_loss"] - target) / (before["validation_loss"] - after["validation_loss"])
            return of(before) + part * (of(after) - of(before))
    return None


def every(row):
    found = row["command"].split()
    return int(found[len(found) - 1 - found[::-1].index("--every") + 1]) if "--method local" in row["command"] else 1


def hours_at(row, probes, speed):
    """A function of a judgement: hours until then."""
    name = row["name"]
    step = probes["one worker"]["seconds_per_step"]
    if name == "powersgd-4":  # its products are in its step
        step += max(0.0, probes[name]["seconds_per_step"] - probes["topk-1%"]["seconds_per_step"])
    exchange = row.get("seconds_per_exchange", probes.get(name, {}).get("seconds_per_exchange", 0.0))

    def hours(judgement):
        exchanges = math.ceil(judgement["step"] / every(row))
        return (judgement["step"] * step + exchanges * exchange + judgement["moved"] / speed) / 3600

    return hours


def mean(numbers):
    numbers = list(numbers)
    return statistics.mean(numbers) if numbers and None not in numbers else None


def spread(numbers):
    text = f"{statistics.mean(numbers):.4f}"
    return text + (f" ({min(numbers):.4f} to {max(numbers):.4f})" if len(numbers) > 1 else "")


def size_of(number):
    if number is None:
        return "not reached"
    for unit, power in (("TB", 12), ("GB", 9), ("MB", 6)):
        if number >= 10**power:
            return f"{number / 10**power:.3g} {unit}"
    return f"{number / 1000:.3g} kB"


def number(value, form):
    return "not reached" if value is None else format(value, form)


def table(head, lines):
    print("|", " | ".join(head), "|\n|" + "---|" * len(head))
    for line in lines:
        print("|", " | ".join(line), "|")
    print()


def losses_table(rows):
    lines = []
    goals = targets(rows)
    for name, found in rows.items():
        line = [WORDS[name], f"`{found[0]['cell']}`", str(len(found)), spread([row["test_loss"] for row in found])]
        for goal in goals:
            line.append(number(mean(reached(row, goal, lambda one: one["step"]) for row in found), ",.0f"))
            line.append(size_of(mean(reached(row, goal, lambda one: one["sent"]) for row in found)))
        share = found[0].get("share_sent")
        lines.append([*line, "all" if share is None else f"{100 * share:.2f} %"])
    head = ["method", "cell", "seeds", "test loss"]
    for part, goal in zip(TARGETS, goals):
        head += [f"steps to {goal:.3f} ({100 * part:.0f} %)", "sent by one worker until then"]
    table([*head, "entries sent"], lines)


def links_table(rows):
    """What crosses the busiest worker's link in an exchange, with 8 and with 32 workers."""
    lines = []
    for name in ("dense", "diloco", "local-30", "local-30-both", "local-30-both-512"):
        cells = []
        for found in (rows.get(name), rows.get(f"{name}-of-32")):
            if found:
                row = found[0]
                last = row["judged"][-1]
                cells.append(size_of(last["moved"] / math.ceil(last["step"] / every(row))))
            elif name in ("dense", "diloco"):
                cells.append(size_of(2 * 31 / 32 * 4 * rows["dense"][0]["weights"]))
            else:
                cells.append("")
        lines.append([WORDS[name], *cells])
    table(["a worker moves in one exchange", "8 workers", "32 workers"], lines)


def hours_table(rows, probes):
    """Until the validation losses at which local steps end."""
    goals = {f"H = {name[6:]}": mean(row["judged"][-1]["validation_loss"] for row in rows[name]) for name in LASTS if name in rows}
    lines, best = [], {}
    for name, found in rows.items():
        if "of-32" in name:
            continue
        line = [WORDS[name]]
        for link, speed in LINKS:
            for goal in goals.values():
                hours = mean(reached(row, goal, hours_at(row, probes, speed)) for row in found)
                best.setdefault((link, goal), hours)  # dense comes first
                faster = best[link, goal] / hours if hours and best[link, goal] else None
                in_words = f" ({faster:,.0f})" if faster and faster >= 10 else f" ({faster:.2g})" if faster else ""
                line.append(number(hours, ".3g") + in_words)
        lines.append(line)
    heads = [f"{link}, to {goal:.3f}, the last of {words}" for link, _ in LINKS for words, goal in goals.items()]
    table(["hours (times faster than dense)", *heads], lines)


def cut_off_table(rows):
    """Validation losses after the last step that every run has, where some were cut off."""
    step = min(row["judged"][-1]["step"] for found in rows.values() for row in found)
    lines = []
    for name, found in rows.items():
        at = [one for row in found for one in row["judged"] if one["step"] == step]
        if at:
            lines.append([WORDS[name], spread([one["validation_loss"] for one in at]), size_of(at[0]["sent"])])
    table(["method", f"validation loss after {step:,} steps", "sent by one worker until then"], lines)


def reasons_table(rows):
    """The short runs of the small model that were not tuned, beside the best of those that were."""
    lines = []
    for name in ("dense", "diloco", "local-15", "local-30", "local-30-both", *plan.REASONS, *plan.MORE_STEPS):
        found = [row for row in rows if row["size"] == "12M" and row["name"] == name]
        if found:
            row = min(found, key=plan.final_loss)
            last = row["judged"][-1]
            a_round = last["moved"] / math.ceil(last["step"] / every(row))
            lines.append([WORDS.get(name, name), f"{plan.final_loss(row):.3f}", size_of(a_round)])
    table(["12M, seed 100", "last validation loss", "moved in one exchange"], lines)


def tuning_table(rows):
    lines = []
    for name in plan.METHODS:
        losses = plan.tuning(rows, name)
        if losses:
            ordered = sorted(losses, key=losses.get)
            cells = [f"`{plan.cell_of(name, place)}` {losses[place]:.4f}" for place in ordered[:3]]
            open_still = plan.next_place(losses, plan.METHODS[name][1]) is not None
            lines.append([WORDS[name], f"{len(losses)}{', not finished' if open_still else ''}", *cells, *[""] * (3 - len(cells))])
    table(["method", "cells", "best", "second", "third"], lines)


def verdicts(rows):
    """The bars of the experiment."""
    loss = {name: statistics.mean(row["test_loss"] for row in found) for name, found in rows.items()}
    for name in ("local-15", "local-30", "local-30-both", "local-30-both-512"):
        for other in ("diloco", "dense"):
            if name in loss and other in loss:
                print(f"- {WORDS[name]} against {WORDS[other]}: {100 * (loss[name] / loss[other] - 1):+.2f} % test loss")
    print()


class Panel:
    """One chart of the picture: hours on a logarithmic axis, loss on a linear one."""

    def __init__(self, left, hours, losses, width=370, top=80, height=270):
        self.left, self.top, self.width, self.height = left, top, width, height
        self.hours, self.losses = hours, losses

    def x(self, hours):
        low, high = (math.log(one) for one in self.hours)
        return self.left + self.width * (math.log(hours) - low) / (high - low)

    def y(self, loss):
        low, high = self.losses
        return self.top + self.height * (high - loss) / (high - low)

    def axes(self, title, clip):
        right, bottom = self.left + self.width, self.top + self.height
        yield f'<clipPath id="{clip}"><rect x="{self.left}" y="{self.top}" width="{self.width}" height="{self.height}"/></clipPath>'
        yield f'<rect x="{self.left}" y="{self.top}" width="{self.width}" height="{self.height}" fill="none" stroke="#999"/>'
        yield f'<text x="{self.left + self.width / 2}" y="{self.top - 10}" text-anchor="middle" font-weight="bold">{title}</text>'
        power = math.floor(math.log10(self.hours[0]))
        while 10**power <= self.hours[1]:
            if 10**power >= self.hours[0]:
                x = self.x(10**power)
                yield f'<line x1="{x:.1f}" y1="{self.top}" x2="{x:.1f}" y2="{bottom}" stroke="#ddd"/>'
                yield f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{10**power:g}</text>'
            power += 1
        step = 0.25 if self.losses[1] - self.losses[0] <= 1.5 else 0.5
        for i in range(math.ceil(self.losses[0] / step), math.floor(self.losses[1] / step) + 1):
            y = self.y(i * step)
            yield f'<line x1="{self.left}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" stroke="#ddd"/>'
            yield f'<text x="{self.left - 6}" y="{y + 5:.1f}" text-anchor="end">{i * step:g}</text>'
        yield f'<text x="{self.left + self.width / 2}" y="{bottom + 38}" text-anchor="middle">hours (computed)</text>'


def picture(rows, probes):
    """rows: also of runs that were cut off."""
    names = [name for name in COLOURS if name in rows]
    goal = targets(rows)[0]
    low = min(one["validation_loss"] for name in names for one in rows[name][0]["judged"])
    parts = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 860 400" font-family="sans-serif" font-size="14">']
    parts.append('<rect width="860" height="400" fill="white"/>')
    for i, name in enumerate(names):
        x, y = 50 + 270 * (i % 3), 18 + 20 * (i // 3)
        words = WORDS[name].replace("*", "")
        parts.append(f'<line x1="{x}" y1="{y}" x2="{x + 24}" y2="{y}" stroke="{COLOURS[name]}" stroke-width="4"/>')
        parts.append(f'<text x="{x + 30}" y="{y + 5}">{words}</text>')
    for i, (link, speed) in enumerate(LINKS):
        lines = {}
        for name in names:
            hours = hours_at(rows[name][0], probes, speed)
            lines[name] = [(hours(one), one["validation_loss"]) for one in rows[name][0]["judged"][1:]]
        reach = [hours for line in lines.values() for hours, _ in line]
        panel = Panel(50 + 430 * i, (min(reach), max(reach) * 1.1), (low - 0.05, goal + 1.6))
        parts += panel.axes(f"{link}: validation loss", f"clip{i}")
        y = panel.y(goal)
        ends = f'x1="{panel.left}" y1="{y:.1f}" x2="{panel.left + panel.width}" y2="{y:.1f}"'
        parts.append(f'<line {ends} stroke="#999" stroke-dasharray="5 4"/>')
        for name, line in lines.items():
            points = " ".join(f"{panel.x(hours):.1f},{panel.y(loss):.1f}" for hours, loss in line if math.isfinite(loss))
            parts.append(
                f'<polyline points="{points}" fill="none" stroke="{COLOURS[name]}" stroke-width="2.5" clip-path="url(#clip{i})"/>'
            )
    return "\n".join([*parts, "</svg>\n"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="+")
    parser.add_argument("--picture", help="an SVG to write")
    options = parser.parse_args()
    everything = plan.read(options.rows)
    probes = {}
    for path in options.rows:
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                found = [json.loads(line) for line in file if '"probe"' in line]
            probes |= {one["probe"]: one for one in found}
    rows = {}
    for name in WORDS:
        found = [row for row in everything if row["size"] == "64M" and row["name"] == name and "test_loss" in row]
        if found:
            rows[name] = found
    # A run that was cut off has no last loss, and counts where equal steps are compared only.
    more = {name: [row] for row in plan.read(options.rows, "judged_until_then") for name in [row["name"]] if name not in rows}
    all_rows = {name: found for name in WORDS for found in [rows.get(name, more.get(name))] if found}
    if "dense" in rows:
        verdicts(rows)
        losses_table(rows)
        cut_off_table(all_rows)
        links_table(rows)
        if "one worker" in probes:
            hours_table(rows, probes)
            if options.picture:
                with open(options.picture, "w", encoding="utf-8") as file:
                    file.write(picture(all_rows, probes))
    tuning_table(everything)
    reasons_table(everything)


if __name__ == "__main__":
    sys.exit(main())
