"""Summaries of studies that never were, in the form of docs/guides/study.md, and reports around them."""

import math
import random
import sys
from pathlib import Path

import page_files

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import check_study  # noqa: E402  the statistics, written from docs/guides/study.md


def numbers(values):
    there = [value for value in values if value is not None]
    if len(there) < len(values) or not there:
        median = check_study.median([math.inf if value is None else value for value in values]) if values else None
        return {"mean": None, "sd": None, "ci95": None, "median": median, "by_seed": values}
    ci95 = check_study.interval(there) if len(there) > 1 else None
    return {"mean": check_study.mean(there), "sd": check_study.sd(there) if len(there) > 1 else None, "ci95": ci95 and list(ci95),
            "median": check_study.median(there), "by_seed": values}


class Method:
    """A method by what its runs did on each seed: `values` of the primary measure (None: diverged), bytes in all and to the target."""

    def __init__(self, name, values, bytes, to_target=None, ratio=None, at_edge=None, chosen=True, pilot=None):
        self.name, self.values, self.bytes, self.ratio = name, values, bytes, ratio
        self.to_target, self.at_edge, self.chosen, self.pilot = to_target, at_edge or {}, chosen, pilot

    def entry(self):
        n = len(self.values) if self.chosen else 0
        reached = [one for one in self.to_target or [] if one is not None]
        median = check_study.median([math.inf if one is None else one for one in self.to_target]) if self.to_target else None
        target = {"reached": len(reached), "median_bytes": median, "median_steps": None,
                  "censored_at": min((total for total, one in zip(self.bytes, self.to_target) if one is None), default=None),
                  "bytes_by_seed": self.to_target, "steps_by_seed": None, "log_ratio": None} if self.to_target and self.chosen else None
        return {"spec": self.name, "name": self.name, "ratio": self.ratio, "at_edge": self.at_edge, "cells_tried": 3,
                "chosen": {"lr": 0.3, "own": {}, "k": 10} if self.chosen else None, "n": n,
                "diverged": sum(value is None for value in self.values) if self.chosen else 0,
                "measures": {"test_loss": numbers(self.values), "metric": numbers(self.values), "bytes": numbers(self.bytes)} if self.chosen else {},
                "vs_baseline": None, "to_target": target, "equal_bytes": None, "pilot": self.pilot}


def compare(method, baseline, ratio):
    pairs = list(zip(method.values, baseline.values)) if method.chosen and baseline.chosen else []
    differences = [mine - other for mine, other in pairs if mine is not None and other is not None]
    versus = {"baseline": baseline.name, "ratio": ratio, "diff": None, "ci95": None, "p": None, "p_holm": None, "wins": 0, "losses": 0}
    if pairs and len(differences) == len(pairs):
        versus["diff"] = check_study.mean(differences)
        if len(differences) > 1:
            versus.update(ci95=list(check_study.interval(differences)), p=check_study.p_value(differences))
            versus["p_holm"] = min(1.0, 3 * versus["p"])
    return versus


def summary(methods, baseline="dense", target=0.5, primary="test_loss", metric="accuracy", seeds=None):
    count = seeds if seeds is not None else len(methods[0].values)
    bases = [one for one in methods if one.name == baseline]
    entries = []
    for one in methods:
        entry = one.entry()
        if one.name != baseline:
            base = next((other for other in bases if other.ratio == one.ratio), bases[0])
            entry["vs_baseline"] = compare(one, base, base.ratio)
            if entry["to_target"] and base.to_target and None not in one.to_target + base.to_target:
                logs = numbers([math.log(mine / other) for mine, other in zip(one.to_target, base.to_target)])
                entry["to_target"]["log_ratio"] = {"mean": logs["mean"], "ci95": logs["ci95"], "ratio": math.exp(logs["mean"]),
                                                   "ratio_ci95": logs["ci95"] and [math.exp(end) for end in logs["ci95"]]}
        entries.append(entry)
    plan = {"baseline": baseline, "primary": primary, "metric": metric, "tuned_by": "val_loss", "seeds": list(range(count)),
            "tune_seeds": [1000, 1001], "methods": [], "config": {}}
    grid = [{"spec": one.name, "ratio": one.ratio, "lr": lr, "own": {}, "k": 10, "grown": 0, "n": 2, "diverged": int(lr == 3),
             "mean": None if lr == 3 else 0.4 + abs(lr - 0.3), "by_seed": [], "chosen": one.chosen and lr == 0.3}
            for one in methods for lr in (0.1, 0.3, 3)]
    return {"schema": 1, "plan": plan, "intervals": "95 % intervals of the t distribution.", "notes": [], "grid": grid, "methods": entries,
            "target": {"measure": "val_loss", "value": target, "set_by": "given"} if target else None, "equal_bytes": None}


def anything(draw):
    """A study drawn at random: diverged runs, ties, several ratios, one seed, no target, nothing reached."""
    seeds = draw.choice([1, 2, 3, 5])
    ratios = draw.choice([[None], [0.01], [0.01, 0.1]])
    has_target = draw.random() < 0.7

    def method(name, ratio):
        base, spread = draw.choice([0.3, 0.3, 0.31, 0.5]), draw.choice([0, 0.001, 0.05])
        values = [None if draw.random() < 0.04 else base + spread * draw.gauss(0, 1) for _ in range(seeds)]
        total = draw.choice([100, 1000, 1000, 5000])
        totals = [total + draw.choice([0, 1, 50]) for _ in range(seeds)]
        goal = [None if draw.random() < 0.08 else total * draw.choice([0.1, 0.1, 0.2, 0.3]) for _ in range(seeds)]
        pilot = {"bytes": draw.choice([0, 1, 50, 300])} if name == "threshold" else None
        return Method(name, values, totals, goal if has_target else None, ratio, chosen=draw.random() > 0.03, pilot=pilot)

    methods = [method("dense", ratio) for ratio in (ratios if draw.random() < 0.2 else [None])]
    for name in draw.sample(["topk", "rtopk", "threshold", "regtopk"], draw.choice([0, 1, 2, 3, 4])):
        methods += [method(name, ratio) for ratio in ratios]
    primary = draw.choice(["test_loss", "test_loss", "metric"])
    return summary(methods, target=0.5 if has_target else None, primary=primary, metric=draw.choice(["accuracy", "distance"]), seeds=seeds)


def report(made, **more):
    """A report with that summary, and a run of each method and seed."""
    draw, methods, runs = random.Random(1), [], []
    for index, one in enumerate(made["methods"]):
        label = one["name"] if one["ratio"] is None else f"{one['name']}, ratio {one['ratio']}"
        methods.append({"name": one["name"], "ratio": one["ratio"], "label": label, "spec": one["name"]})
        for seed in made["plan"]["seeds"]:
            steps = list(range(10, 210, 10))
            curve = [0.3 + 0.01 * index + math.exp(-step / 60) + draw.gauss(0, 0.003) for step in steps]
            runs.append(page_files.run(index, seed, step=steps, test_loss=curve, loss=curve, density=[0.01 * (index + 1)] * 20,
                                       total_bytes_up=[step * 1000 / (index + 1) for step in steps],
                                       total_bytes_down=[step * 3000 / (index + 1) for step in steps], memory_norm2=curve,
                                       ns_sift=[1000.0] * 20, ns_exchange=[5000.0 * (index + 1)] * 20))
    return page_files.empty("study", summary=made, methods=methods, runs=runs, problem="made up: 10 weights, 4 workers", **more)
