#!/usr/bin/env python3
"""Seconds per training step with DistributedDataParallel on gloo, for several ways to exchange the gradients.

    tools/netlab -n 4 --rate 100mbit --plain python3 bench/ddp/ddp_bench.py
    torchrun --nproc-per-node 4 bench/ddp/ddp_bench.py --methods ddp bf16 powersgd1

The model is three layers Linear(2048, 2048) with ReLU between them, 12.6 million parameters, on a batch of 1: its own compute
is small, `local` shows how small. A step is forward, backward with the exchange, and SGD. Its time is that of the slowest
rank; the table has the median over the steps. The ranks start each step together. Before it is timed, every method makes
--warmup steps (and those that it makes densely first); then the weights of all ranks must be the same bits. PowerSGD has
one bucket for the whole model, because with more it does not run on gloo (methods.py).

Methods: local (no exchange), ddp, bf16, powersgdN (rank N), and sparsifiers of sparsewire such as topk:ratio=0.001, which are
used in both directions.
"""

import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

sys.dont_write_bytecode = True  # the source tree stays as it is
from methods import Method, check, replicas_agree  # noqa: E402

METHODS = ["local", "ddp", "bf16", "powersgd1", "powersgd2", "powersgd4", "topk:ratio=0.001", "topk:ratio=0.01"]
LEAST_STEPS = 3


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=METHODS, metavar="NAME", help="default: %(default)s")
    parser.add_argument("--layers", type=int, default=3, help="default %(default)s")
    parser.add_argument("--width", type=int, default=2048, help="of each layer; default %(default)s")
    parser.add_argument("--batch", type=int, default=1, help="rows for each rank; default %(default)s")
    parser.add_argument("--steps", type=int, default=20, help="timed steps, at most; default %(default)s")
    parser.add_argument("--warmup", type=int, default=2, help="steps before, at least 1; default %(default)s")
    parser.add_argument("--seconds", type=float, default=8,
                        help=f"for the timed steps of a method; it makes at least {LEAST_STEPS}; default %(default)s")
    parser.add_argument("--exchange", default="sharded", help="of sparsewire; default %(default)s")
    parser.add_argument("--codec", default="auto:values=bf16", help="of sparsewire; default %(default)s")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--md", action="store_true", help="a Markdown table: the default")
    form.add_argument("--json", action="store_true", help="JSON instead")
    arguments = parser.parse_args()
    if arguments.steps < LEAST_STEPS:
        parser.error(f"--steps {arguments.steps} is less than {LEAST_STEPS}")
    if arguments.warmup < 1:
        parser.error(f"--warmup {arguments.warmup}: DDP regroups its buckets after the first step, so at least 1")
    if "RANK" not in os.environ:
        parser.error("start it with tools/netlab --plain or with torchrun")
    return arguments


def make_module(arguments):
    torch.manual_seed(1)  # the same weights on all ranks
    parts = []
    for _ in range(arguments.layers):
        parts += [torch.nn.Linear(arguments.width, arguments.width), torch.nn.ReLU()]
    return torch.nn.Sequential(*parts[:-1])


def together(number):
    """The largest `number` of all ranks, when all have called this."""
    largest = torch.tensor([number], dtype=torch.float64)
    dist.all_reduce(largest, op=dist.ReduceOp.MAX)
    return largest.item()


def bytes_sent():
    """Of this host, headers included; None where several ranks share a host."""
    if os.environ.get("LOCAL_WORLD_SIZE") != "1" or "GLOO_SOCKET_IFNAME" not in os.environ:
        return None
    counter = Path("/sys/class/net", os.environ["GLOO_SOCKET_IFNAME"], "statistics/tx_bytes")
    return int(counter.read_text())


def time_method(name, arguments):
    module = make_module(arguments)
    method = Method(name, module, dense_start=0, exchange=arguments.exchange, downlink=name, codec=arguments.codec)
    optimiser = torch.optim.SGD(module.parameters(), lr=1e-3)
    torch.manual_seed(100 + dist.get_rank())
    data, target = torch.randn(2, arguments.batch, arguments.width)

    def step():
        optimiser.zero_grad()
        with method.exchanging():
            torch.nn.functional.mse_loss(method.model(data), target).backward()
        optimiser.step()

    for _ in range(method.dense_start + arguments.warmup):
        step()
    if name != "local" and not replicas_agree(module):
        sys.exit(f"ddp_bench.py: {name}: the weights of the ranks differ")
    times, sent = [], 0
    while len(times) < arguments.steps and (len(times) < LEAST_STEPS or sum(times) < arguments.seconds):
        together(0)
        before = bytes_sent()
        start = time.perf_counter()
        step()
        seconds = time.perf_counter() - start
        if before is not None:
            sent += bytes_sent() - before
        times.append(together(seconds))
    result = {"method": name, "seconds": statistics.median(times), "fastest": min(times), "slowest": max(times),
              "steps": len(times), "megabytes_sent": together(sent / len(times)) / 1e6 if bytes_sent() is not None else None}
    method.close()
    return result


def print_table(header, results):
    dense = next((result["seconds"] for result in results if result["method"] == "ddp"), None)
    print(f"{header['ranks']} ranks; {header['model']}, {header['parameters']} parameters, batch {header['batch']}; "
          f"torch {header['torch']}\n")
    print("| method | seconds a step | times faster than ddp | MB sent by a rank | fastest, slowest | steps |")
    print("|---|---:|---:|---:|---:|---:|")
    for result in results:
        faster = f"{dense / result['seconds']:.2f}" if dense else ""
        sent = "" if result["megabytes_sent"] is None else f"{result['megabytes_sent']:.3f}"
        print(f"| {result['method']} | {result['seconds']:.4f} | {faster} | {sent} "
              f"| {result['fastest']:.4f}, {result['slowest']:.4f} | {result['steps']} |")


def main():
    arguments = parse_arguments()
    check(arguments.methods)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    first = dist.get_rank() == 0
    results = []
    for name in arguments.methods:
        if first:
            print(f"timing {name} ...", file=sys.stderr, flush=True)
        results.append(time_method(name, arguments))
    if first:
        width = arguments.width
        header = {"ranks": dist.get_world_size(), "model": f"{arguments.layers} x Linear({width}, {width})",
                  "parameters": sum(parameter.numel() for parameter in make_module(arguments).parameters()),
                  "batch": arguments.batch, "torch": torch.__version__}
        if arguments.json:
            print(json.dumps({**header, "results": results}, indent=1))
        else:
            print_table(header, results)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
