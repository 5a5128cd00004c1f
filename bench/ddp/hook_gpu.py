#!/usr/bin/env python3
"""What hooks add to a step of DDP on a GPU: one process, five linear layers of 25M parameters, beside DDP without a hook.

    PYTHONPATH=build/release/python python3 bench/ddp/hook_gpu.py [--sparsifier SPEC] [--rounds N] [--trace]

A step is forward and backward, until the GPU is idle. The methods take turns, ten steps each, in the same run; the table has
medians of the last seven of these, and what a hook adds to DDP's. --trace prints when each bucket of one step was handed over,
sifted, exchanged and answered.
"""

import argparse
import statistics
import threading
import time

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

import sparsewire
import sparsewire.torch as sw
from sparsewire.torch import _device, _job, _passes

STAGES = ("sift", "encode", "exchange", "decode", "merge", "apply")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parameters", type=int, default=25_000_000, help="of all layers, about (%(default)s)")
    parser.add_argument("--layers", type=int, default=5, help="(%(default)s)")
    parser.add_argument("--batch", type=int, default=32, help="rows (%(default)s)")
    parser.add_argument("--sparsifier", default="topk:ratio=0.001", help="in both directions (%(default)s)")
    parser.add_argument("--codec", default="golomb:values=bf16", help="(%(default)s)")
    parser.add_argument("--bucket-cap-mb", type=float, help="DDP's; by default 25")
    parser.add_argument("--warmup", type=int, default=40, help="steps of each method before (%(default)s)")
    parser.add_argument("--rounds", type=int, default=30, help="turns of each method, of ten steps (%(default)s)")
    parser.add_argument("--host", action="store_true", help="also with sparsewire's hook on the host, after a copy")
    parser.add_argument("--trace", action="store_true", help="when each part of one step began and ended")
    return parser.parse_args()


class Method:
    def __init__(self, name, arguments):
        width = round((arguments.parameters / arguments.layers) ** 0.5)
        torch.manual_seed(1)
        net = torch.nn.Sequential(*[torch.nn.Linear(width, width) for _ in range(arguments.layers)]).cuda()
        self.name, self.state, self.seconds = name, None, []
        self.model = DistributedDataParallel(net, device_ids=[0], bucket_cap_mb=arguments.bucket_cap_mb or 25)
        if name == "fp16 hook":
            self.model.register_comm_hook(None, fp16_compress_hook)
        elif name == "PowerSGD rank 1":
            self.model.register_comm_hook(PowerSGDState(None, 1, start_powerSGD_iter=2), powerSGD_hook)
        elif name.startswith("sparsewire"):
            self.state = sw.register(self.model, arguments.sparsifier, exchange="sharded",
                                     downlink=arguments.sparsifier, codec=arguments.codec)
        self.inputs = [torch.randn(arguments.batch, width, device="cuda") for _ in range(8)]
        self.steps = 0

    def step(self):
        x = self.inputs[self.steps % len(self.inputs)]
        self.steps += 1
        _device.can_work_on = _passes.can_work_on = CAN_WORK_ON[self.name == "sparsewire, on the host"]
        torch.cuda.synchronize()
        began = time.perf_counter()
        self.model.zero_grad()
        self.model(x).square().mean().backward()
        returned = time.perf_counter()
        torch.cuda.synchronize()
        ended = time.perf_counter()
        self.seconds.append(ended - began)
        return began, returned, ended


CAN_WORK_ON = {False: _passes.can_work_on, True: lambda device: False}


class Trace:
    """Writes down when functions of the hook begin and end."""

    def __init__(self):
        self.events = []
        self.watch(sw.State, "submit")
        for name in ("take", "begin", "exchange", "answer", "end"):
            self.watch(_passes.Passes, name)
        self.watch(_job.Job, "complete")
        for name in ("begin_step", "finish_step", "write_update", "_step_in_place"):
            self.watch(sparsewire.Worker, name)

    def watch(self, kind, name):
        function = getattr(kind, name)

        def watched(*args, **kwargs):
            began = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.events.append((began, time.perf_counter(), name, threading.current_thread().name))

        setattr(kind, name, watched)


def print_trace(trace, method):
    for _ in range(20):
        trace.events.clear()
        began, returned, ended = method.step()
    print(f"\nOne step with sparsewire, microseconds: backward() returned at {(returned - began) * 1e6:.0f}, the GPU was "
          f"idle at {(ended - began) * 1e6:.0f}")
    for start, end, name, thread in sorted(trace.events):
        print(f"{(start - began) * 1e6:7.0f} {(end - start) * 1e6:6.0f}  {name:14}  {thread}")


def print_stages(method):
    last = method.state.stats()["last"]
    print("\nSparsewire's thread, all buckets of a step, microseconds: "
          + ", ".join(f"{stage} {last['seconds_' + stage] * 1e6:.0f}" for stage in STAGES))
    print(f"{method.state.stats()['device']}; density {last['density']:.5f}, {len(method.state._passes.groups)} buckets")


def main():
    arguments = parse_arguments()
    dist.init_process_group("nccl", store=dist.TCPStore("127.0.0.1", 0, 1, is_master=True), rank=0, world_size=1)
    torch.cuda.set_device(0)
    names = ["DDP", "fp16 hook", "PowerSGD rank 1", "sparsewire"] + ["sparsewire, on the host"] * arguments.host
    methods = [Method(name, arguments) for name in names]
    for _ in range(arguments.warmup):
        for method in methods:
            method.step()
    for method in methods:
        method.seconds.clear()
    for _ in range(arguments.rounds):
        for method in methods:
            for _ in range(3):
                method.step()
            del method.seconds[-3:]
            for _ in range(7):
                method.step()
    device = torch.cuda.get_device_name()
    print(f"{device}, torch {torch.__version__}; {sum(p.numel() for p in methods[0].model.parameters())} parameters in "
          f"{arguments.layers} layers, batch {arguments.batch}; medians of {7 * arguments.rounds}")
    print("\n| | ms a step | beyond DDP's own, ms |\n|---|---:|---:|")
    plain = statistics.median(methods[0].seconds)
    for method in methods:
        median = statistics.median(method.seconds)
        print(f"| {method.name} | {median * 1e3:.2f} | {(median - plain) * 1e3:.2f} |")
    for method in methods:
        if method.state is None:
            continue
        sent = method.state.stats()["last"]["density"]
        ratio = float(arguments.sparsifier.split("ratio=")[1]) if "ratio=" in arguments.sparsifier else sent
        assert 0 < sent <= 1.01 * ratio, sent
        print_stages(method)
    if arguments.trace:
        print_trace(Trace(), methods[3])
    for method in methods:
        if method.state is not None:
            method.state.close()
    dist.destroy_process_group()


main()
