"""Computes a study again from its runs, and compares that with summary.json and runs.csv.

    check_study.py FOLDER...

Reads plan.json and runs/*/{config.json,result.json,metrics.jsonl}. Written from docs/guides/study.md; it shares nothing with the
C++ code, and has its own t distribution, by integration.
"""

import copy
import csv
import functools
import glob
import json
import math
import os
import sys

TRAILING = 5
MOST_OF_ASKED = 2
METRICS_NAMES = {"train_loss": "train_loss", "val_loss": "validation_loss", "test_loss": "test_loss"}


# --- statistics ---


def integral_of_power_of_sine(power, end):
    """The integral of sin(x)^power from 0 to end, by Simpson's rule, substituted x = end*u^2: so that power 0 is smooth
    too."""
    intervals = 1000 + 100 * power
    h = 1 / intervals

    def value(i):
        u = i * h
        return math.sin(end * u * u) ** power * 2 * end * u

    odd = math.fsum(value(i) for i in range(1, intervals, 2))
    even = math.fsum(value(i) for i in range(2, intervals, 2))
    return h / 3 * (value(0) + 4 * odd + 2 * even + value(intervals))


def two_sided_p(t, degrees):
    """P(|T| > t). With T = sqrt(degrees)/tan(x) the density is that of sin(x)^(degrees-1)."""
    whole = integral_of_power_of_sine(degrees - 1, math.pi / 2)
    return min(1, integral_of_power_of_sine(degrees - 1, math.atan2(math.sqrt(degrees), abs(t))) / whole)


@functools.lru_cache(maxsize=None)
def t_975(degrees):
    low, high = 1.9, 13.0
    for _ in range(60):
        middle = (low + high) / 2
        if two_sided_p(middle, degrees) > 0.05:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def mean(numbers):
    return math.fsum(numbers) / len(numbers) if len(set(numbers)) > 1 else numbers[0]


def sd(numbers):
    if len(numbers) < 2:
        return None
    m = mean(numbers)
    return math.sqrt(math.fsum((x - m) ** 2 for x in numbers) / (len(numbers) - 1))


def interval(numbers):
    if len(numbers) < 2:
        return None
    half = t_975(len(numbers) - 1) * sd(numbers) / math.sqrt(len(numbers))
    return [mean(numbers) - half, mean(numbers) + half]


def p_value(differences):
    if len(differences) < 2:
        return None
    if sd(differences) == 0:
        return 1.0 if mean(differences) == 0 else 0.0
    t = mean(differences) / (sd(differences) / math.sqrt(len(differences)))
    return two_sided_p(t, len(differences) - 1)


def median(numbers):
    """None if it is infinite."""
    ordered = sorted(numbers)
    n = len(ordered)
    middle = ordered[n // 2] if n % 2 else (ordered[n // 2 - 1] + ordered[n // 2]) / 2
    return middle if math.isfinite(middle) else None


def holm(p_values):
    """The largest of (m - i) * p_i over all p values that are not larger; those that are missing count as 1."""
    m = len(p_values)
    known = sorted(p for p in p_values if p is not None)
    return [
        None if p is None else min(1, max((m - i) * one for i, one in enumerate(known) if one <= p)) for p in p_values
    ]


# --- runs ---


class Run:
    def __init__(self, folder):
        with open(os.path.join(folder, "result.json"), encoding="utf-8") as file:
            self.result = json.load(file)
        with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
            self.config = json.load(file)
        lines = [self.result["start"]]
        with open(os.path.join(folder, "metrics.jsonl"), encoding="utf-8") as file:
            lines += [line for line in map(json.loads, file) if "total_bytes_up" in line]
        self.id = os.path.basename(folder.rstrip("/"))
        self.phase = self.result["phase"]
        self.seed = self.result["seed"]
        self.bytes = self.result["totals"]["bytes_up"] + self.result["totals"]["bytes_down"]
        self.curve = [
            {
                "step": line["step"],
                "bytes": line.get("total_bytes_up", 0) + line.get("total_bytes_down", 0),
                **{name: line.get(key) for name, key in METRICS_NAMES.items()},
                "metric": line.get(self.result["metric_name"]),
            }
            for line in lines
        ]

    @property
    def diverged(self):
        """By its definition, not by the status that was written."""
        first, last = self.result["initial_train_loss"], self.result["final_train_loss"]
        return self.result["diverged_at"] is not None or last is None or first is None or last > first

    def measure(self, name):
        totals = self.result["totals"]
        if name == "train_loss":
            return self.result["final_train_loss"]
        if name == "bytes":
            return self.bytes
        if name == "paper_bits":
            return totals["paper_bits_up"] + totals["paper_bits_down"]
        return totals[name] if name in totals else self.result[name]

    def sent_of_asked(self):
        vectors = self.result["steps"] * self.config["workers"]
        return self.result["totals"]["entries_up"] / vectors / self.result["k"]

    def cell(self):
        return (self.result["method"], number_or_none(self.result["ratio"]), self.result["lr"], own(self.result["own"]))

    def reached(self, measure, target):
        """The point of the curve where the target is reached."""
        losses = [point[measure] for point in self.curve]
        if self.diverged:
            return None
        for i in range(TRAILING - 1, len(losses)):
            window = losses[i - TRAILING + 1 : i + 1]
            if None not in window and mean(window) <= target * (1 + 1e-15):
                return self.curve[i]
        return None

    def at_bytes(self, measure, count):
        for before, after in zip(reversed([self.curve[0]] + self.curve[:-1]), reversed(self.curve)):
            if after["bytes"] == count:
                return after[measure]
            if before["bytes"] < count < after["bytes"]:
                part = (count - before["bytes"]) / (after["bytes"] - before["bytes"])
                if None in (before[measure], after[measure]):
                    return None
                return (1 - part) * before[measure] + part * after[measure]
        return None


def number_or_none(text):
    return None if text in ("", None) else float(text)


def cell_of(entry):
    """Of the grid."""
    return (entry["spec"], entry["ratio"], entry["lr"], own(entry["own"]))


def own(parameters):
    return tuple(sorted(parameters.items()))


# --- the study ---


class Check:
    def __init__(self, folder):
        self.problems = []
        with open(os.path.join(folder, "plan.json"), encoding="utf-8") as file:
            self.plan = json.load(file)
        with open(os.path.join(folder, "summary.json"), encoding="utf-8") as file:
            self.summary = json.load(file)
        with open(os.path.join(folder, "runs.csv"), encoding="utf-8", newline="") as file:
            self.rows = list(csv.DictReader(file))
        self.runs = [Run(path) for path in sorted(glob.glob(os.path.join(folder, "runs", "*", "")))]
        self.add_shared()
        self.primary = self.plan["primary"]
        self.target_by = "train_loss" if self.plan["tuned_by"] == "train_loss" else "val_loss"
        is_accuracy = self.plan["metric"] == "accuracy"
        self.higher_is_better = {"metric": is_accuracy, "val_metric": is_accuracy}
        spec_of = {method["name"]: method["spec"] for method in self.plan["methods"]}
        self.baseline = spec_of[self.plan["baseline"]]

    def add_shared(self):
        """Two methods may have the same settings and share a run, which is of the first: runs.csv says whose else."""
        by_id = {run.id: run for run in self.runs}
        for row in self.rows:
            run = by_id.get(row["id"])
            cell = {"method": row["method"], "ratio": row["ratio"], "lr": float(row["lr"] or "nan")}
            cell["own"] = dict(word.split("=", 1) for word in row["own"].split())
            if run and {key: run.result[key] for key in cell} != cell:
                shared = copy.copy(run)
                shared.result = {**run.result, **cell}
                self.runs.append(shared)

    def same(self, where, theirs, mine, tolerance=1e-9, scale=0.0):
        """`scale`: of the numbers that a difference was taken of."""
        if isinstance(mine, dict):
            missing = set(mine) ^ set(theirs or {})
            if not isinstance(theirs, dict) or missing:
                self.problems.append(f"{where}: {theirs} has other keys than {mine}")
                return
            for key, value in mine.items():
                self.same(f"{where}.{key}", theirs[key], value, tolerance, scale)
        elif isinstance(mine, (list, tuple)):
            if not isinstance(theirs, list) or len(theirs) != len(mine):
                self.problems.append(f"{where}: {theirs}, should be {mine}")
                return
            for i, value in enumerate(mine):
                self.same(f"{where}[{i}]", theirs[i], value, tolerance, scale)
        elif isinstance(mine, (int, float)) and not isinstance(mine, bool):
            is_number = isinstance(theirs, (int, float)) and not isinstance(theirs, bool)
            if not is_number or not abs(theirs - mine) <= tolerance * abs(mine) + 1e-14 * scale:
                self.problems.append(f"{where}: {theirs}, should be {mine}")
        elif type(theirs) is not type(mine) or theirs != mine:
            self.problems.append(f"{where}: {theirs!r}, should be {mine!r}")

    def of(self, phase, cell, seeds):
        """The runs of a cell, for each seed; None where there is none."""
        found = {run.seed: run for run in self.runs if run.phase == phase and run.cell() == cell}
        return [found.get(seed) for seed in seeds]

    def check(self):
        for run in self.runs:
            self.same(f"runs/{run.id}: id", run.result["id"], run.id)
            if run.phase in ("tune", "judge"):
                self.same(f"runs/{run.id}: status", run.result["status"], "diverged" if run.diverged else "finished")
        self.same("plan", self.summary["plan"], self.plan)
        self.same("environment", self.summary["environment"], self.plan["environment"])
        self.check_grid()
        self.check_target()
        self.check_equal_bytes()
        self.check_methods()
        self.check_rows()
        return self.problems

    def check_grid(self):
        tuned_by = self.plan["tuned_by"]
        seeds = self.plan["tune_seeds"]
        grid = self.summary["grid"]
        cells = [cell_of(one) for one in grid]
        for run in self.runs:
            if run.cell() not in cells:
                self.problems.append(f"grid: no cell {run.cell()}, which runs/{run.id} has")
        if len(set(cells)) != len(cells):
            self.problems.append("grid: a cell is there twice")
        self.cells_of = {}  # of each group: the cells
        self.chosen = {}  # the best of them
        means = {}
        sent = {}  # of thresholds that were measured: entries over those that the ratio asks for
        piloted = {run.cell() for run in self.runs if run.phase == "pilot"}
        for one, cell in zip(grid, cells):
            runs = self.of("tune", cell, seeds)
            there = [run for run in runs if run]
            by_seed = [run.measure(tuned_by) if run and not run.diverged else None for run in runs]
            where = f"grid {cell}"
            self.same(where + " n", one["n"], len(there))
            self.same(where + " diverged", one["diverged"], sum(run.diverged for run in there))
            self.same(where + " by_seed", one["by_seed"], by_seed)
            means[cell] = mean(by_seed) if seeds and None not in by_seed else None
            self.same(where + " mean", one["mean"], means[cell])
            if means[cell] is not None and cell in piloted and not self.plan["budget_bytes"]:
                sent[cell] = mean([run.sent_of_asked() for run in runs])
            self.same(where + " sent_of_asked", one["sent_of_asked"], sent.get(cell))
            for run in there:
                self.same(where + " k", one["k"], run.result["k"])
                self.same(where + " grown", one["grown"], run.result["grown"])
            self.cells_of.setdefault(cell[:2], []).append(cell)
        self.check_learning_rates([cell for one, cell in zip(grid, cells) if one["grown"] == 0])
        for group, members in self.cells_of.items():
            possible = [cell for cell in members if means[cell] is not None]
            modest = [cell for cell in possible if sent.get(cell, 0) <= MOST_OF_ASKED]
            self.chosen[group] = None
            if possible:
                best = lambda cell: self.sign(tuned_by) * means[cell]
                self.chosen[group] = min(modest, key=best) if modest else min(possible, key=sent.get)
            if not seeds:
                self.chosen[group] = members[0]
        for one, cell in zip(grid, cells):
            self.same(f"grid {cell} chosen", one["chosen"], self.chosen[cell[:2]] == cell)

    def check_learning_rates(self, given):
        """Each combination of a method's parameters has all of its learning rates: those of the plan, or a note says so."""
        rates = {}
        for spec, ratio, lr, parameters in given:
            rates.setdefault(spec, {}).setdefault((ratio, parameters), set()).add(lr)
        for spec, combinations in rates.items():
            if len(set(map(frozenset, combinations.values()))) > 1:
                self.problems.append(f"grid: the settings of {spec} have different learning rates")
            if " lr=" not in spec and set(self.plan["lr"]) not in combinations.values():
                self.problems.append(f"grid: {spec} has other learning rates than the plan")
        differ = len({frozenset(lrs) for one in rates.values() for lrs in one.values()}) > 1
        words = "methods had different learning rates to choose from"
        self.same("notes: " + words, any(note.startswith(words) for note in self.summary["notes"]), differ)

    def judging(self, group):
        cell = self.chosen[group]
        return self.of("judge", cell, self.plan["seeds"]) if cell else [None] * len(self.plan["seeds"])

    def baseline_groups(self):
        return [group for group in self.cells_of if group[0] == self.baseline]

    def check_target(self):
        self.target = self.plan["target"]
        set_by = "given"
        if self.target is None:
            set_by = "the baseline on the tuning seeds"
            cell = self.chosen[self.baseline_groups()[0]]
            runs = self.of("tune", cell, self.plan["tune_seeds"]) if cell else []
            if runs and None not in runs:
                last = mean([run.measure(self.target_by) for run in runs])
                first = mean([run.curve[0][self.target_by] for run in runs])
                self.target = last + 0.05 * (first - last)
        mine = None if self.target is None else {"measure": self.target_by, "value": self.target, "set_by": set_by}
        self.same("target", self.summary["target"], mine)

    def check_equal_bytes(self):
        runs = [run for group in self.cells_of for run in self.judging(group) if run and not run.diverged]
        self.equal_bytes = self.plan["budget_bytes"]
        if self.equal_bytes is None and runs:
            if all(run.config["schedule"].split(":")[0] == "constant" for run in runs):
                self.equal_bytes = min(run.bytes for run in runs) or None
        self.same("equal_bytes", self.summary["equal_bytes"], self.equal_bytes)

    def sign(self, name):
        return -1 if self.higher_is_better.get(name) else 1

    def described(self, runs, values, name):
        there = [(run, value) for run, value in zip(runs, values) if run]
        known = [value for _, value in there if value is not None]
        whole = len(known) == len(there) and known
        ranked = [math.inf if value is None else self.sign(name) * value for _, value in there]
        middle = median(ranked) if ranked else None
        return {
            "mean": mean(known) if whole else None,
            "sd": sd(known) if whole else None,
            "ci95": interval(known) if whole else None,
            "median": None if middle is None else self.sign(name) * middle,
            "by_seed": values,
        }

    def compared(self, runs, values, base_runs, base_values):
        pairs = [
            (value, base)
            for run, value, base_run, base in zip(runs, values, base_runs, base_values)
            if run and base_run
        ]
        rank = lambda value: math.inf if value is None else self.sign(self.primary) * value
        differences = [value - base for value, base in pairs if value is not None and base is not None]
        whole = pairs and len(differences) == len(pairs)
        return {
            "diff": mean(differences) if whole else None,
            "ci95": interval(differences) if whole else None,
            "p": p_value(differences) if whole else None,
            "wins": sum(rank(value) < rank(base) for value, base in pairs),
            "losses": sum(rank(value) > rank(base) for value, base in pairs),
        }, max([0.0] + [abs(value) for pair in pairs for value in pair if value is not None])

    def base_of(self, group):
        if group[0] == self.baseline:
            return None
        groups = self.baseline_groups()
        return (self.baseline, group[1]) if (self.baseline, group[1]) in groups else groups[0]

    @staticmethod
    def values(runs, value):
        return [None if run is None or run.diverged else value(run) for run in runs]

    def edges(self, group):
        cell = self.chosen[group]
        if cell is None:
            return {}
        cells = self.cells_of[group]
        edges = {}
        rates = {one[2] for one in cells}
        if cell[2] in (min(rates), max(rates)):
            edges["lr"] = "only" if len(rates) == 1 else "low" if cell[2] == min(rates) else "high"
        for name, value in cell[3]:
            try:
                numbers = {float(dict(one[3])[name]) for one in cells}
            except ValueError:
                continue
            if len(numbers) > 1 and float(value) in (min(numbers), max(numbers)):
                edges[name] = "low" if float(value) == min(numbers) else "high"
        return edges

    def to_target(self, group):
        runs = self.judging(group)
        points = [run and run.reached(self.target_by, self.target) for run in runs]
        there = [(run, point) for run, point in zip(runs, points) if run]
        by_seed = {key: [point and point[key] for point in points] for key in ("bytes", "step")}
        ranked = {
            key: [math.inf if point is None else point[key] for _, point in there] for key in ("bytes", "step")
        }
        log_ratio = None
        base = self.base_of(group)
        if base:
            base_points = [run and run.reached(self.target_by, self.target) for run in self.judging(base)]
            if all(points) and all(base_points) and all(point["bytes"] for point in points + base_points):
                logs = [math.log(a["bytes"]) - math.log(b["bytes"]) for a, b in zip(points, base_points)]
                ends = interval(logs)
                log_ratio = {
                    "mean": mean(logs),
                    "ci95": ends,
                    "ratio": math.exp(mean(logs)),
                    "ratio_ci95": ends and [math.exp(end) for end in ends],
                }
        return {
            "reached": sum(point is not None for _, point in there),
            "median_bytes": median(ranked["bytes"]) if there else None,
            "median_steps": median(ranked["step"]) if there else None,
            "censored_at": min((run.bytes for run, point in there if point is None), default=None),
            "bytes_by_seed": by_seed["bytes"],
            "steps_by_seed": by_seed["step"],
            "log_ratio": log_ratio,
        }

    def check_methods(self):
        order = {method["spec"]: i for i, method in enumerate(self.plan["methods"])}
        names = {method["spec"]: method["name"] for method in self.plan["methods"]}
        methods = self.summary["methods"]
        groups = [(one["spec"], one["ratio"]) for one in methods]
        expected = sorted(self.cells_of, key=lambda group: (order[group[0]], group[1] or 0))
        self.same("methods", [list(group) for group in groups], [list(group) for group in expected])
        if groups != expected:
            return
        family = {}
        for group in groups:
            base = self.base_of(group)
            if base:
                runs, base_runs = self.judging(group), self.judging(base)
                value = lambda run: run.measure(self.primary)
                family[group] = self.compared(
                    runs, self.values(runs, value), base_runs, self.values(base_runs, value)
                )
        adjusted = dict(zip(family, holm([one["p"] for one, _ in family.values()])))
        for one, group in zip(methods, groups):
            self.check_method(one, group, family, adjusted, names)

    def check_method(self, one, group, family, adjusted, names):
        where = f"methods {group} "
        runs = self.judging(group)
        cell = self.chosen[group]
        self.same(where + "name", one["name"], names[group[0]])
        self.same(where + "at_edge", one["at_edge"], self.edges(group))
        self.same(where + "cells_tried", one["cells_tried"], len(self.cells_of[group]))
        self.same(where + "n", one["n"], sum(run is not None for run in runs))
        self.same(where + "diverged", one["diverged"], sum(run.diverged for run in runs if run))
        if cell is None:
            self.same(where + "chosen", one["chosen"], None)
        else:
            k = next(entry["k"] for entry in self.summary["grid"] if cell_of(entry) == cell)
            self.same(where + "chosen", one["chosen"], {"lr": cell[2], "own": dict(cell[3]), "k": k})

        names_of = ["test_loss", "val_loss", "train_loss", "metric", "val_metric", "bytes", "bytes_up", "bytes_down", "paper_bits"]
        names_of += ["total_error", "peak_memory_norm2"]
        measured = [
            name for name in names_of if name == self.primary or any(run and run.measure(name) is not None for run in runs)
        ]
        self.same(where + "measures", list(one["measures"]), measured)
        for name in measured:
            values = self.values(runs, lambda run: run.measure(name))
            self.same(where + name, one["measures"].get(name), self.described(runs, values, name), scale=self.most(values))

        ended = [run for run in runs if run and not run.diverged]
        has_ratio = one["ratio"] is not None and not self.plan["budget_bytes"]
        sent = mean([run.sent_of_asked() for run in ended]) if has_ratio and ended else None
        self.same(where + "sent_of_asked", one["sent_of_asked"], sent)

        base = self.base_of(group)
        if base is None:
            self.same(where + "vs_baseline", one["vs_baseline"], None)
        else:
            mine, scale = family[group]
            self.compare(where + "vs_baseline", one["vs_baseline"], base, {**mine, "p_holm": adjusted[group]}, scale)
        self.same(
            where + "to_target", one["to_target"], None if self.target is None else self.to_target(group), scale=1.0
        )
        self.check_equal(where + "equal_bytes", one["equal_bytes"], runs, base)
        self.check_pilot(where + "pilot", one["pilot"], cell)

    @staticmethod
    def most(values):
        return max([0.0] + [abs(value) for value in values if value is not None])

    def compare(self, where, theirs, base, mine, scale):
        """Differences of numbers that are nearly equal have lost digits, and what is computed from them too."""
        if theirs is None:
            self.problems.append(f"{where}: missing")
            return
        exact = {"baseline": base[0], "ratio": base[1], "wins": mine["wins"], "losses": mine["losses"]}
        self.same(where, {key: theirs.get(key) for key in exact}, exact)
        self.same(where, {key: theirs.get(key) for key in ("diff", "ci95")}, {key: mine[key] for key in ("diff", "ci95")},
                  scale=10 * scale)
        for key in ("p", "p_holm"):
            if key in mine:
                self.same(f"{where}.{key}", theirs.get(key), mine[key], tolerance=1e-7, scale=100 * scale)
        self.same(where + " keys", sorted(theirs), sorted({**exact, **mine}))

    def check_equal(self, where, theirs, runs, base):
        if self.equal_bytes is None:
            self.same(where, theirs, None)
            return
        if self.plan["budget_bytes"] is not None:
            value = lambda run: run.measure(self.primary)
        else:
            value = lambda run: run.at_bytes(self.primary, self.equal_bytes)
        values = self.values(runs, value)
        described = {key: (theirs or {}).get(key) for key in ("mean", "sd", "ci95", "median", "by_seed")}
        self.same(where, described, self.described(runs, values, self.primary), scale=self.most(values))
        versus = (theirs or {}).get("vs_baseline")
        if base is None:
            self.same(where + ".vs_baseline", versus, None)
            return
        base_runs = self.judging(base)
        mine, scale = self.compared(runs, values, base_runs, self.values(base_runs, value))
        self.compare(where + ".vs_baseline", versus, base, mine, scale)

    def check_pilot(self, where, theirs, cell):
        pilots = [run for run in self.runs if run.phase == "pilot" and run.cell() == cell]
        mine = None
        if pilots:
            result = pilots[0].result
            mine = {"steps": result["steps"], "bytes": pilots[0].bytes, "lambda": result.get("lambda"),
                    "downlink_lambda": result.get("downlink_lambda")}
        self.same(where, theirs, mine)

    def check_rows(self):
        by_key = {(run.id, run.result["method"], run.result["ratio"]): run for run in self.runs}
        ids = [row["id"] for row in self.rows]
        self.same("runs.csv: ids", sorted(ids), sorted(run.id for run in self.runs))
        phases = ["pilot", "probe", "tune", "judge"]
        cells = [cell_of(one) for one in self.summary["grid"]]
        place = lambda run: (phases.index(run.phase), cells.index(run.cell()), run.seed)
        ordered = [run.id for run in sorted(self.runs, key=place)]
        self.same("runs.csv: order", ids, ordered)
        for row in self.rows:
            run = by_key.get((row["id"], row["method"], row["ratio"]))
            if run:
                self.check_row(f"runs.csv {row['id']} ", row, run)
            else:
                self.problems.append(f"runs.csv: no run {row['id']} of {row['method']}")

    def check_row(self, where, row, run):
        result, totals = run.result, run.result["totals"]
        point = None
        has_target = self.target is not None and run.phase in ("tune", "judge")
        if has_target:
            point = run.reached(self.target_by, self.target)
        mine = {
            **{key: result[key] for key in ("phase", "method", "ratio", "k", "seed", "status", "diverged_at", "steps")},
            **{key: result[key] for key in ("initial_train_loss", "val_loss", "test_loss", "metric", "val_metric", "weights_crc32c")},
            **{key: totals[key] for key in ("bytes_up", "bytes_down", "bytes_served", "paper_bits_up", "paper_bits_down")},
            "own": " ".join(f"{name}={value}" for name, value in own(result["own"])),
            "train_loss": result["final_train_loss"],
            "server_error": totals["server_error"],
            "worker_error": totals["total_error"] - totals["server_error"],
            "peak_memory_norm2": totals["peak_memory_norm2"],
            "reached": ("true" if point else "false") if has_target else None,
            "bytes_to_target": point and point["bytes"],
            "steps_to_target": point and point["step"],
            "censored_at": run.bytes if has_target and not point else None,
        }
        others = set(row) - set(mine) - {"id"}
        for name in others:  # settings
            if name not in run.config:
                self.problems.append(f"{where}: column {name} is no setting")
            else:
                value = run.config[name]
                mine[name] = str(value).lower() if isinstance(value, bool) else value
        for name, value in mine.items():
            theirs = row.get(name)
            if value is None:
                self.same(where + name, theirs, "")
            elif isinstance(value, (int, float)):
                self.same(where + name, float(theirs or "nan"), value)
            else:
                self.same(where + name, theirs, value)


def check(folder):
    """What is wrong, in words; nothing if all is right."""
    return Check(folder).check()


def main(folders):
    failed = False
    for folder in folders:
        problems = check(folder)
        for problem in problems:
            print(f"{folder}: {problem}")
        failed = failed or bool(problems)
    return 1 if failed or not folders else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
