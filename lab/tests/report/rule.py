"""Which method to use, by the rule that docs/guides/report.md gives: written from that page, and without a look at the page's own code.

Of the methods that are not worse than the baseline (no judging run diverged, and the 95 % interval of the difference does not lie
entirely on the worse side of 0), the one with the fewest bytes to the target, which all its runs must have reached; without a
target, or where no such method got there, the one with the fewest bytes in all. The bytes of a pilot count both times.
"""


def answer(summary, baseline):
    """(label or None, why) for one entry of the baseline in summary["methods"]."""
    plan = summary["plan"]
    seeds = len(plan["seeds"])
    sign = -1 if plan["primary"] == "metric" and plan["metric"] != "distance" else 1
    entries = [one for one in summary["methods"] if one["vs_baseline"] is None and one["name"] == plan["baseline"]]

    compared = [one for one in summary["methods"] if one["vs_baseline"] is not None]
    if len(entries) > 1:
        compared = [one for one in compared if one["vs_baseline"]["ratio"] == baseline["ratio"]]

    def went_wrong(one):
        return one["chosen"] is None or one["diverged"] > 0

    if all(went_wrong(one) for one in [baseline, *compared]):
        return None, "all_diverged"
    if seeds == 1:
        return None, "one_seed"
    if went_wrong(baseline):
        return None, "baseline_diverged"
    if not compared:
        return None, "nothing_to_compare"

    good = [baseline]
    for one in compared:
        versus = one["vs_baseline"]
        if not went_wrong(one) and versus["ci95"] is not None and min(sign * end for end in versus["ci95"]) <= 0:
            good.append(one)
    there = [one for one in good if summary["target"] and one["to_target"]["reached"] == seeds]

    def in_all(one):
        return one["measures"]["bytes"]["median"] + pilot(one)

    if there:
        order = sorted(there, key=lambda one: (one["to_target"]["median_bytes"] + pilot(one), in_all(one)))
    else:
        order = sorted(good, key=in_all)
    return label(order[0]), "to_target" if there else "bytes"


def pilot(method):
    return method["pilot"]["bytes"] if method["pilot"] else 0


def label(method):
    return method["name"] if method["ratio"] is None else f"{method['name']} (ratio {method['ratio']:g})"


def answers(summary):
    plan = summary["plan"]
    return [answer(summary, one) for one in summary["methods"] if one["vs_baseline"] is None and one["name"] == plan["baseline"]]
