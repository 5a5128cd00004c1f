"""Seconds of a step and of an exchange of the large model, for each way to do them: before a GPU is used for long.

    python3 bench/gpt/probe.py corpus/ --out probe.jsonl

"one worker" is what a machine of its own would compute: one model, its rows only. The others do the work of all workers in turn.
"""

import argparse
import gc
import json
import sys
import time
import traceback

import plan
import torch
import train

import sparsewire

ONE = "--method dense --workers 1 --rows 8"
CASES = {
    "one worker": ONE,
    "dense": "--method dense",
    "powersgd-4": plan.METHODS["powersgd-4"][0],
    "topk-1%": plan.METHODS["topk-1%"][0],
    "local-30": plan.METHODS["local-30"][0],
    "local-30-both": plan.METHODS["local-30-both"][0],
    "local-30-threshold": plan.METHODS["local-30-threshold"][0],
    "local-30-of-32": plan.METHODS["local-30"][0] + " " + plan.THIRTY_TWO,
    "one worker, compiled": ONE + " --compile",
    "local-30, compiled": plan.METHODS["local-30"][0] + " --compile",
}


def measure(options, flags):
    began = time.time()
    words = f"{plan.COMMON} {plan.SIZES['64M']} {plan.EIGHT} {flags} {options.also}".split()
    training = train.Training(train.parse([options.corpus, *words]))
    try:
        for step in range(3):
            training.inner_step(step)
        ready = training.now()
        found = {"seconds_to_begin": round(time.time() - began, 2)}
        training.seconds["exchange"], training.exchanges = 0.0, 0
        for step in range(options.steps):
            training.inner_step(step)
        seconds = training.now() - ready - training.seconds["exchange"]
        found["seconds_per_step"] = round(seconds / options.steps, 5)
        if training.options.method == "local":
            training.outer_step(options.steps)  # what is made once
            training.seconds["exchange"], training.exchanges = 0.0, 0
            training.inner_step(options.steps)
            training.outer_step(options.steps)
        if training.exchanges:
            found["seconds_per_exchange"] = round(training.seconds["exchange"] / training.exchanges, 5)
        if training.exchange:
            stats = training.exchange.workers[-1].stats()
            found["milliseconds"] = {name[3:]: round(stats[name] / 1e6, 1) for name in stats if name.startswith("ns_")}
            found["sent"] = round(training.sent)
        if training.device.type == "cuda":
            found["gigabytes"] = round(torch.cuda.max_memory_allocated() / 1e9, 1)
            torch.cuda.reset_peak_memory_stats()
        began = training.now()
        training.validation_loss()
        return found | {"seconds_per_judgement": round(training.now() - began, 3)}
    finally:
        training.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus")
    parser.add_argument("--out", default="probe.jsonl")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--only", default=";".join(CASES), help="cases, with semicolons between them")
    parser.add_argument("--commit", default=plan.commit())
    parser.add_argument("--also", default="", help="flags behind those of each case")
    options = parser.parse_args()
    about = {"machine": plan.machine(), "torch": torch.__version__, "cuda_build": sparsewire.has_cuda()}
    about |= {"commit": options.commit, "date": time.strftime("%Y-%m-%d")}
    failed = 0
    for name in options.only.split(";"):
        try:
            found = {"probe": name, **measure(options, CASES[name]), **about}
            print(json.dumps(found), flush=True)
            with open(options.out, "a", encoding="utf-8") as file:
                file.write(json.dumps(found) + "\n")
        except Exception:
            traceback.print_exc()
            failed += 1
        gc.collect()
        torch.cuda.empty_cache()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
