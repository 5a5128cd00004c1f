"""Models, data and training for the bodies of torch tests, and what runs the bodies."""

import json
import os
import sys
import traceback
import zlib

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def rank():
    return int(os.environ["RANK"])


def network(width=24, seed=3):
    torch.manual_seed(seed)
    layers = [torch.nn.Linear(10, width), torch.nn.ReLU(), torch.nn.Linear(width, width), torch.nn.ReLU()]
    layers += [torch.nn.Linear(width, 4)]
    return torch.nn.Sequential(*layers)


class ToFloat(torch.nn.Module):
    def forward(self, x):
        return x.float()


class TwoTypes(torch.nn.Module):
    """A layer in bfloat16 between two in float32: buckets of two types."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.first = torch.nn.Linear(10, 16)
        self.middle = torch.nn.Linear(16, 16).to(torch.bfloat16)
        self.last = torch.nn.Linear(16, 4)

    def forward(self, x):
        x = torch.relu(self.first(x)).to(torch.bfloat16)
        return self.last(torch.relu(self.middle(x)).float())


class Constant(torch.nn.Module):
    """Weights whose gradients are what it is given."""

    def __init__(self, size, dtype=torch.float32):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(size, dtype=dtype))

    def forward(self, gradient):
        return (self.weight.float() * gradient).sum()


class Branches(torch.nn.Module):
    """Uses one of two branches; the other one has no gradient in that step, on any rank."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(6)
        self.trunk = torch.nn.Linear(10, 12)
        self.left = torch.nn.Linear(12, 4)
        self.right = torch.nn.Linear(12, 4)
        self.use = "left"

    def forward(self, x):
        return getattr(self, self.use)(torch.relu(self.trunk(x)))


def batch(step, of=None):
    generator = torch.Generator().manual_seed(1000 * step + (rank() if of is None else of))
    return torch.randn(8, 10, generator=generator), torch.randn(8, 4, generator=generator)


def loss_of(model, step):
    x, y = batch(step)
    return torch.nn.functional.mse_loss(model(x), y)


def train(model, steps, first=0, lr=0.05, optimizer=None, between=None):
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=lr)
    for step in range(first, first + steps):
        optimizer.zero_grad()
        loss_of(model, step).backward()
        optimizer.step()
        if between is not None:
            between(step)
    return optimizer


def digest(model):
    whole = b"".join(p.detach().float().numpy().tobytes() for p in model.parameters())
    return zlib.crc32(whole)


def weights(model):
    return torch.cat([p.detach().double().flatten() for p in model.parameters()])


def small_buckets(net, **options):
    return DDP(net, bucket_cap_mb=0.001, **options)


def said_by(calls, kinds=(ValueError, RuntimeError, TypeError)):
    """What each call raises, in words; `ranks.assert_said` looks at it."""
    said = {}
    for name, call in calls.items():
        try:
            call()
            said[name] = "no error"
        except kinds as error:
            said[name] = f"{type(error).__name__}: {error}"
    return said


def become_ranks():
    """Forks a process for each rank, and returns in each: importing torch once takes longer than most tests. RANK_FILES are
    their standard inputs and outputs. The first process only prints how each of them ended."""
    files = json.loads(os.environ["RANK_FILES"])
    ranks = {}
    for rank, (reading, writing) in enumerate(files):
        process = os.fork()
        if process == 0:
            os.environ["RANK"] = str(rank)
            os.environ["LOCAL_RANK"] = "0"  # all share one GPU, and init_device_mesh() takes the one of this number
            for here, there in ((reading, 0), (writing, 1), (writing, 2)):
                os.dup2(here, there)
        else:
            ranks[process] = rank
        if process == 0 or rank + 1 == len(files):  # who held these of another rank would not see it end
            for file in sum(files, []):
                os.close(file)
        if process == 0:
            return
    while ranks:
        process, status = os.wait()
        print(ranks.pop(process), os.waitstatus_to_exitcode(status), flush=True)
    sys.exit()


def obey(bodies):
    """Runs the bodies that standard input names, one line each; `ranks.py` writes them."""
    become_ranks()
    torch.set_num_threads(1)
    dist.init_process_group(os.environ.get("SPARSEWIRE_TEST_BACKEND", "gloo"))
    for line in sys.stdin:
        body, arguments = json.loads(line)
        try:
            answer = ["result", bodies[body](**arguments)]
        except Exception:
            answer = ["error", traceback.format_exc()]
        print("ANSWER " + json.dumps(answer), flush=True)
