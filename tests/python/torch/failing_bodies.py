"""What goes wrong."""

import gc
import os
import signal
import subprocess
import sys
import threading

import torch
import torch.distributed as dist
from models import Constant, ToFloat, digest, loss_of, network, rank, said_by, small_buckets, train
from ranks import LIMIT
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel as DDP

import sparsewire
import sparsewire.torch as sw


def bad_gradient(options):
    """Without a scaler: backward raises on all ranks and names rank and parameter, and so does the next one."""
    inner = network()
    model = small_buckets(inner)
    state = sw.register(model, "topk:ratio=0.1", **options)
    train(model, 3)
    if rank() == 1:
        inner[2].weight.register_hook(lambda g: g.index_fill(0, torch.tensor([5]), float("nan")))
    messages = []
    for _ in range(2):
        try:
            loss_of(model, 9).backward()
        except RuntimeError as error:
            messages.append(str(error))
    return [messages, type(state.error).__name__, getattr(state.error, "rank", None), state.error.step]


class Raises(sparsewire.Sparsifier):
    def choose(self, accumulated):
        if self.step == 1 and rank() == 1:
            raise LookupError("not there")
        return [0]


def raises():
    """A sparsifier written in Python raises on one rank, in the fourth step: two of them were dense."""
    with sparsewire.register_sparsifier("raises", Raises):
        model = small_buckets(network())
        sw.register(model, "raises", start_step=2)
        return said_by({"train": lambda: train(model, 5)})["train"]


def lost(how, bucket, steps, deadline):
    """Rank 1 is killed or stopped when it submits a bucket; the others report what they see."""
    model = small_buckets(network())
    state = sw.register(model, "topk:ratio=0.1", deadline=deadline)
    train(model, 3)
    if rank() == 1:
        submit, count = state.submit, [0]

        def then_end(got):
            count[0] += 1
            if count[0] == bucket:
                os.kill(os.getpid(), signal.Signals[how])
            return submit(got)

        state.submit = then_end
    try:
        train(model, steps, first=3)
    except RuntimeError as error:
        return [str(error), type(state.error).__name__, getattr(state.error, "rank", None)]
    return "no error"


def refusals():
    """What cannot work is refused at once, and says what to do."""
    twice, doubles, joined = DDP(network()), DDP(network().double()), DDP(network())
    sparse = DDP(torch.nn.Sequential(torch.nn.Embedding(10, 4, sparse=True)))
    late = network()
    late[0] = late[0].double()  # its bucket comes last, and with a scaler the earlier ones wait for it
    late = small_buckets(torch.nn.Sequential(late[0], ToFloat(), *late[1:]))
    waiting = sw.register(late, "topk:ratio=0.1", scaler=torch.amp.GradScaler("cpu"))
    late.module[0].weight.register_hook(lambda _: waiting._call(lambda: None))  # the thread has done the earlier ones
    for model in (twice, doubles, joined, sparse):
        sw.register(model, "topk:ratio=0.1")

    def join():
        with joined.join():
            joined(torch.randn(2, 10)).sum().backward()

    def register(spec="topk:ratio=0.1", **options):
        return lambda: sw.register(DDP(network()), spec, **options)

    x = torch.randn(2, 10, dtype=torch.float64)
    return said_by(
        {
            "spec": register("topk:ratio=7"),
            "plain module": lambda: sw.register(network()),
            "twice": lambda: sw.register(twice, "topk:ratio=0.1"),
            "exclude": register(exclude=["nowhere"]),
            "one name": register(exclude="0.weight"),
            "scaler": register(scaler=True),
            "misspelt": register(start_steps=4),
            "compiled": lambda: sw.register(torch.compile(DDP(network()), backend="eager")),
            "scale=lr": register(feedback="ef:scale=lr"),
            "deadline": register(deadline=0),
            "float64": lambda: doubles(x).sum().backward(),
            "late float64": lambda: late(x).sum().backward(),
            "sparse": lambda: sparse(torch.tensor([1, 2])).sum().backward(),
            "join": join,
        }
    )


def half_registered(what, failing):
    """register() fails on one rank before it connects: the others learn it long before the deadline, and can try again."""
    options = {}
    if rank() == failing:
        options = {
            "spec": {"sparsifier": "topk:ratio=7"},
            "exclude": {"exclude": ["nowhere"]},
            "option": {"codec": 3},
            "metrics": {"metrics": "/nowhere/at all/run.jsonl"},
        }.get(what, {})
        if what == "interface":
            os.environ["SPARSEWIRE_SOCKET_IFNAME"] = "nosuch0"
    model = small_buckets(network())
    if what == "twice" and rank() == failing:
        model.register_comm_hook(None, default_hooks.allreduce_hook)
    try:
        said = said_by(
            {"register": lambda: sw.register(model, deadline=10 * LIMIT, **{"sparsifier": "topk:ratio=0.1", **options})},
            (ValueError, RuntimeError, TypeError, OSError),
        )
    finally:
        os.environ.pop("SPARSEWIRE_SOCKET_IFNAME", None)
    model = small_buckets(network())
    state = sw.register(model, "topk:ratio=0.1")
    train(model, 2)
    state.close()
    return [said["register"], digest(model)]


def leaves():
    """Rank 0, which holds torch's store, cannot register, and its process ends."""
    model = small_buckets(network())
    try:
        sw.register(model, "topk:ratio=7" if rank() == 0 else "topk:ratio=0.1", deadline=10 * LIMIT)
    except (ValueError, RuntimeError, ConnectionError) as error:
        if rank() == 0:
            os._exit(1)
        return [type(error).__name__, error.rank]
    return "no error"


class FixedScale:
    """What the hook asks of a GradScaler, which itself refuses float16."""

    def __init__(self, scale):
        self.scale = scale

    def get_scale(self):
        return self.scale


def too_large(dtype, unit, scale):
    """The second entry waits one step, and is then too large for the type of the bucket."""
    model = DDP(Constant(2, getattr(torch, dtype)))
    state = sw.register(model, "topk:k=1", scaler=FixedScale(scale) if scale else None)
    gradient = torch.tensor([61440.0, 49152.0]) * unit
    answers, memories = [], []
    for factor in (1, 1, 1 / 8):
        model.zero_grad()
        try:
            model(gradient * factor).backward()
        except RuntimeError as error:
            return [answers, memories, str(error), type(state.error).__name__, state.error.step]
        answers.append(model.module.weight.grad.tolist())
        memories.append(state.memory()["weight"].tolist())
    return [str(answers), memories, state.stats()["skipped"], state.stats()["steps"]]


def unequal(what):
    net = network()
    if what == "names" and rank() == 1:
        net = torch.nn.Sequential(net)
    sparsifier = f"topk:ratio=0.{1 + rank()}" if what == "spec" else "topk:ratio=0.1"
    exclude = ["0.weight"] if what == "exclude" and rank() == 1 else None
    scaler = torch.amp.GradScaler("cpu") if what == "scaler" and rank() == 1 else None
    try:
        model = small_buckets(net)
        state = sw.register(model, sparsifier, exclude=exclude, scaler=scaler, deadline=10 * LIMIT)
        loss_of(model, 0).backward()
    except (RuntimeError, ValueError) as error:
        return str(error)
    return "no error"


def ends_before_its_threads():
    """A process that ends while the thread of a State that nobody holds is at work waits for it."""
    script = """
import atexit, gc, queue, threading, time
atexit.register(lambda: print([thread.name for thread in threading.enumerate() if thread.name.startswith("sparsewire")]))
ends = threading.Event()
def work():
    ends.wait()
    time.sleep(1)  # so that the end of the process has to wait
import sparsewire.torch as sw
atexit.register(ends.set)
state = sw.State(sparsifier="topk:ratio=0.1")
state._call(lambda: None)  # starts the threads
state._stages._jobs.put((work, queue.SimpleQueue()))
del state
gc.collect()
print(sum(thread.name.startswith("sparsewire") for thread in threading.enumerate()))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=LIMIT)
    return [done.returncode, done.stdout.split("\n"), done.stderr[-300:]]


def freed():
    """A State that nobody holds any more ends its thread."""
    for _ in range(3):
        model = small_buckets(network())
        sw.register(model, "topk:ratio=0.1")
        train(model, 2)
        del model
        gc.collect()
    threads = [thread for thread in threading.enumerate() if thread.name == "sparsewire"]
    for thread in threads:
        thread.join(LIMIT)
    return sum(thread.is_alive() for thread in threads)


def one_fails(how):
    """Rank 1 fails in one way; the others wait for it."""
    if rank() == 1:
        if how == "raises":
            raise LookupError("not here")
        if how == "ends":
            print("it leaves", flush=True)
            os._exit(0)
        threading.Event().wait()
    if how == "ends":  # where the others would notice it, and fail as well
        threading.Event().wait()
    dist.barrier()


class Exits(sparsewire.Sparsifier):
    def choose(self, accumulated):
        if self.step == 2 and rank() == 1:
            sys.exit("no more")
        return [0]


def exits():
    """SystemExit on the hook's thread: no rank waits for ever."""
    with sparsewire.register_sparsifier("exits", Exits):
        model = small_buckets(network())
        sw.register(model, "exits", deadline=10 * LIMIT)
        try:
            train(model, 5)
        except RuntimeError as error:
            return str(error)
    return "no error"
