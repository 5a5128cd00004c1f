#!/usr/bin/env python3
"""Seconds per step of training where computing takes a fixed time: DDP and its hooks beside methods with local steps.

    tools/netlab -n 4 --rate 100mbit --plain python3 bench/ddp/local_bench.py

The model is ten layers Linear(1024, 1024), 10.5 million parameters. Computing is a sleep: a third of it in the forward pass,
two thirds in the backward pass, between the layers, so that DDP sends the gradients of the last layers while the first are
"computed". What a rank really computes is part of this time, because hosts of tools/netlab share the processors of one
machine. A line of JSON for each: the time of its timed steps, divided by their number, and by --every for methods
with local steps. Steps that are not timed come first; then the weights of all ranks must be the same bits.

Methods: ddp, bf16, powersgdN, sparsifiers such as topk:ratio=0.01 in both directions (methods.py), and, exchanging every 30 steps:

    local        LocalSteps: 41 of 4096 entries, two bits a value
    local_both   the same with a downlink, 123 of 4096
    diloco       torchft's DiLoCo: needs `pip install torchft-nightly`
    streaming    the same in 3 fragments, each under way for 9 steps (Streaming DiLoCo)
"""

import argparse
import contextlib
import datetime
import json
import os
import socket
import sys
import time

import torch
import torch.distributed as dist

sys.dont_write_bytecode = True  # the source tree stays as it is
from ddp_bench import bytes_sent, together  # noqa: E402
from methods import Method, check, replicas_agree  # noqa: E402

LAYERS, WIDTH = 10, 1024
LOCAL = ["local", "local_both", "diloco", "streaming"]
METHODS = ["ddp", "bf16", "powersgd4", "topk:ratio=0.01", *LOCAL]
LEAST_STEPS = 3
SPARSE = {"sparsifier": "topk:k=41,chunk=4096"}
BOTH = {**SPARSE, "exchange": "server", "downlink": "topk:k=123,chunk=4096"}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=METHODS, metavar="NAME", help="default: %(default)s")
    parser.add_argument("--computing", nargs="+", type=float, default=[0.5, 0.1], metavar="SECONDS",
                        help="of a step; default %(default)s")
    parser.add_argument("--every", type=int, default=30, help="steps between two exchanges; default %(default)s")
    parser.add_argument("--rounds", type=int, default=2, help="of --every steps, that are timed; default %(default)s")
    parser.add_argument("--seconds", type=float, default=15,
                        help=f"for the timed steps of the others; they make at least {LEAST_STEPS}; default %(default)s")
    parser.add_argument("--note", default="", help="part of each line, such as the link")
    arguments = parser.parse_args()
    if "RANK" not in os.environ:
        parser.error("start it with tools/netlab --plain or with torchrun")
    if arguments.every % 3:
        parser.error(f"--every {arguments.every} is no multiple of 3, the fragments of `streaming`")
    return arguments


class Computing:
    """Passes whose layers end at fixed times after the step began."""

    def __init__(self, seconds):
        self.seconds = seconds
        self.began = 0.0

    def begin(self):
        self.began = time.perf_counter()

    def wait(self, share):
        left = self.began + share * self.seconds - time.perf_counter()
        if left > 0:
            time.sleep(left)


class Layer(torch.nn.Module):
    def __init__(self, computing, number):
        super().__init__()
        self.linear = torch.nn.Linear(WIDTH, WIDTH)
        self.forward_ends = (number + 1) / LAYERS / 3
        self.backward_ends = 1 / 3 + (LAYERS - number) / LAYERS * 2 / 3
        self.computing = computing

    def forward(self, x):
        return Pause.apply(torch.relu(self.linear(x)), self)


class Pause(torch.autograd.Function):
    """After a layer's forward pass, and before its gradients are there."""

    @staticmethod
    def forward(context, x, layer):
        context.layer = layer
        layer.computing.wait(layer.forward_ends)
        return x.view_as(x)

    @staticmethod
    def backward(context, gradient):
        context.layer.computing.wait(context.layer.backward_ends)
        return gradient, None


def my_address():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((os.environ["MASTER_ADDR"], 9))
        return probe.getsockname()[0]


class Ours:
    def __init__(self, module, optimizer, name, every):
        import sparsewire.torch as sw

        self.outer = sw.LocalSteps(module, optimizer, every, **(SPARSE if name == "local" else BOTH))

    def settle(self):
        """All ranks have the same weights."""
        self.outer.sync()

    def close(self):
        self.outer.close()


class Torchft:
    """torchft's DiLoCo: its lighthouse with rank 0, a Manager with every rank."""

    def __init__(self, module, optimizer, name, every):
        socket.gethostname = my_address  # torchft tells others its host's name, which nobody in a netlab can look up
        from torchft.coordination import LighthouseServer
        from torchft.local_sgd import DiLoCo
        from torchft.manager import Manager
        from torchft.process_group import ProcessGroupGloo

        ranks, limit = dist.get_world_size(), datetime.timedelta(seconds=600)
        where = [None]
        self.lighthouse = None
        if dist.get_rank() == 0:
            self.lighthouse = LighthouseServer(bind=f"{my_address()}:0", min_replicas=ranks, quorum_tick_ms=100)
            where = [f"http://{my_address()}:{self.lighthouse.address().rsplit(':', 1)[1]}"]
        dist.broadcast_object_list(where)
        store = dist.TCPStore(my_address(), 0, is_master=True, wait_for_workers=False)
        self.store = store
        self.group = ProcessGroupGloo(timeout=limit)
        self.manager = Manager(
            pg=self.group, load_state_dict=lambda state: None, state_dict=lambda: {}, min_replica_size=ranks, use_async_quorum=False,
            timeout=limit, quorum_timeout=limit, rank=0, world_size=1, store_addr=my_address(), store_port=store.port,
            lighthouse_addr=where[0], replica_id=f"rank{dist.get_rank()}", hostname=my_address(), init_sync=False,
        )  # fmt: skip
        parts, delay = [module], 0
        if name == "streaming":
            layers = list(module)
            cuts = [0, len(layers) // 3, 2 * len(layers) // 3, len(layers)]
            parts, delay = [torch.nn.Sequential(*layers[a:b]) for a, b in zip(cuts, cuts[1:])], every // 3 - 1
        outer = [torch.optim.SGD(part.parameters(), lr=0.7, momentum=0.9, nesterov=True) for part in parts]
        self.diloco = DiLoCo(self.manager, parts, optimizer, outer, sync_every=every, use_bucketization=True,
                             fragment_sync_delay=delay, fragment_update_alpha=0.0)
        self.diloco.__enter__()

    def settle(self):
        pass  # the warm-up ends with an exchange

    def close(self):
        self.diloco.__exit__(None, None, None)
        dist.barrier()
        self.manager.shutdown(wait=False)
        self.group.shutdown()
        dist.barrier()
        if self.lighthouse is not None:
            self.lighthouse.shutdown()


def make(name, module, optimizer, every):
    """What steps run in, whether its steps are local, and what ends it."""
    if name in ("local", "local_both"):
        return module, Ours(module, optimizer, name, every), contextlib.nullcontext
    if name in LOCAL:
        return module, Torchft(module, optimizer, name, every), contextlib.nullcontext
    method = Method(name, module, dense_start=0, downlink=name)
    return method.model, method, method.exchanging


def time_method(name, arguments):
    computing = Computing(0)
    torch.manual_seed(1)  # the same weights on all ranks
    module = torch.nn.Sequential(*[Layer(computing, number) for number in range(LAYERS)])
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
    model, method, exchanging = make(name, module, optimizer, arguments.every)
    torch.manual_seed(100 + dist.get_rank())
    data, target = torch.randn(2, 1, WIDTH)

    def step():
        computing.begin()
        optimizer.zero_grad()
        with exchanging():
            torch.nn.functional.mse_loss(model(data), target).backward()
        optimizer.step()

    is_local = name in LOCAL
    for _ in range(arguments.every if is_local else method.dense_start + 2):
        step()
    if is_local:
        method.settle()
    if name != "streaming" and not replicas_agree(module):
        sys.exit(f"local_bench.py: {name}: the weights of the ranks differ")
    for computing.seconds in arguments.computing:
        yield {"method": name, "computing": computing.seconds, "note": arguments.note, "ranks": dist.get_world_size(),
               **time_steps(step, is_local, arguments)}
    method.close()


def time_steps(step, is_local, arguments):
    steps, seconds, sent = 0, 0.0, 0
    while steps < (arguments.rounds * arguments.every if is_local else LEAST_STEPS) or (
        not is_local and seconds < arguments.seconds
    ):
        together(0)
        before, began = bytes_sent(), time.perf_counter()
        made = arguments.every if is_local else 1
        for _ in range(made):
            step()
        seconds += together(time.perf_counter() - began)
        sent += (bytes_sent() - before) if before is not None else 0
        steps += made
    found = {"steps": steps, "seconds_per_step": round(seconds / steps, 5)}
    mean = together(sent / steps)
    return {**found, "bytes_per_step": round(mean) if before is not None else None}


def main():
    arguments = parse_arguments()
    check([name for name in arguments.methods if name not in LOCAL])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=1200))
    for name in arguments.methods:
        for line in time_method(name, arguments):
            if dist.get_rank() == 0:
                print(json.dumps(line), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
