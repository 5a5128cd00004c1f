"""What the processes of torch tests do: each function is called in every rank, and its result is printed as JSON."""

import gc
import json
import os
import sys
import threading
import time
import traceback
import zlib

import numpy
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

import sparsewire
import sparsewire.torch as sw


def rank():
    return int(os.environ["RANK"])


def network(width=24, dtypes=(torch.float32,), seed=3):
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


# --- bodies ---


def every_way(cases, steps):
    """Every sparsifier and exchange, while the main thread uses DDP's group and runs Python: digests of the weights."""
    found = {}
    for sparsifier, exchange, downlink in cases:
        model = small_buckets(network())
        state = sw.register(model, sparsifier, exchange=exchange, downlink=downlink or None, seed=4, check_every=50)

        def between(step):
            number = torch.tensor([float(step + rank())])
            dist.all_reduce(number)
            assert number.item() == sum(step + r for r in range(dist.get_world_size()))

        train(model, steps, between=between)
        found[f"{sparsifier} {exchange} {downlink}"] = digest(model)
        state.close()
    return found


def dense(steps):
    with_hook, without = DDP(network()), DDP(network())
    state = sw.register(with_hook, "dense", exchange="dense")
    train(with_hook, steps)
    train(without, steps)
    difference = (weights(with_hook) - weights(without)).abs().max().item()
    return [difference, weights(without).abs().max().item(), state.stats()["steps"]]


def owed(model_name, steps, options):
    """Sum over ranks of w*memory, plus what was answered, against the sum of all gradients."""
    size = dist.get_world_size()
    makers = {"plain": network, "two_types": TwoTypes, "branches": Branches}
    inner = makers[model_name]()
    ddp_options = options.pop("ddp", {})
    model = small_buckets(inner, **ddp_options)
    names = [name for name, _ in inner.named_parameters()]
    came = {name: torch.zeros(p.numel(), dtype=torch.float64) for name, p in inner.named_parameters()}
    answered = {name: torch.zeros(p.numel(), dtype=torch.float64) for name, p in inner.named_parameters()}
    state = sw.register(model, options.pop("sparsifier"), **options)
    layouts = set()
    for step in range(steps):
        if model_name == "branches":
            inner.use = "left" if step % 3 else "right"
        # The gradients that this rank contributes.
        parameters = dict(inner.named_parameters())
        own = torch.autograd.grad(loss_of(inner, step), list(parameters.values()), allow_unused=True)
        for name, gradient in zip(parameters, own):
            if gradient is not None:
                came[name] += gradient.double().flatten() / size
            parameters[name].grad = None
        loss_of(model, step).backward()
        for name, p in inner.named_parameters():
            if p.grad is not None:
                answered[name] += p.grad.double().flatten()
        layouts.add(len([g for g in state._groups.values() if g.left]))
    memory = state.memory()
    worst = 0.0
    for name in names:
        owed_here = memory[name].double() / size
        together = torch.stack([owed_here, came[name]])
        dist.all_reduce(together)
        scale = max(1.0, together[1].abs().max().item())
        worst = max(worst, (together[0] + answered[name] - together[1]).abs().max().item() / scale)
    unsent = sum(m.abs().sum().item() for m in memory.values())
    return {"worst": worst, "groups": sorted(layouts), "unsent": unsent, "owed_by_servers": 0}


def first_half(folder, steps, options):
    net = TwoTypes() if options.pop("two_types", False) else network()
    model = small_buckets(net, **options.pop("ddp", {}))
    state = sw.register(model, **options)
    optimizer = train(model, steps)
    saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "sparsewire": state.state_dict()}
    torch.save(saved, f"{folder}/{rank()}.pt")
    whole = state.consolidated_state_dict()
    torch.save({"model": model.state_dict(), "sparsewire": whole}, f"{folder}/whole{rank()}.pt")
    train(model, steps, first=steps, optimizer=optimizer)
    return digest(model)


def second_half(folder, steps, options):
    net = TwoTypes() if options.pop("two_types", False) else network(seed=99)
    model = small_buckets(net, **options.pop("ddp", {}))
    state = sw.register(model, **options)
    saved = torch.load(f"{folder}/{rank()}.pt")
    model.load_state_dict(saved["model"])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    optimizer.load_state_dict(saved["optimizer"])
    state.load_state_dict(saved["sparsewire"])
    train(model, steps, first=steps, optimizer=optimizer)
    return digest(model)


def other_size(folder, steps, options):
    """Loads what another number of ranks saved: what is owed stays, and training goes on."""
    model = small_buckets(network(seed=99))
    state = sw.register(model, **options)
    try:
        state.load_state_dict(torch.load(f"{folder}/0.pt")["sparsewire"])
        return "not refused"
    except ValueError as error:
        assert "consolidated_state_dict" in str(error), error
    saved = torch.load(f"{folder}/whole0.pt")
    model.load_state_dict(saved["model"])
    state.load_state_dict(saved["sparsewire"])
    train(model, 3, first=steps)
    return digest(model)


def infinite(options):
    """A GradScaler, and an infinity on one rank in the bucket that comes last: the step is skipped on all ranks."""
    inner = network()
    model = small_buckets(inner)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8, growth_interval=1000)
    state = sw.register(model, scaler=scaler, **options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    def step(number, bad):
        optimizer.zero_grad()
        loss = loss_of(model, number)
        handle = None
        if bad and rank() == dist.get_world_size() - 1:
            handle = inner[0].weight.register_hook(lambda g: g * float("inf"))  # the first layer comes last
        scaler.scale(loss).backward()
        if handle is not None:
            handle.remove()
        scaler.step(optimizer)
        scaler.update()

    for number in range(5):
        step(number, False)
    before, weights_before, scale_before = state.memory(), weights(model), scaler.get_scale()
    step(5, True)
    after = state.memory()
    worst = max((before[n] - after[n]).abs().max().item() / (1e-6 + before[n].abs().max().item()) for n in before)
    same_weights = bool(torch.equal(weights_before, weights(model)))
    for number in range(6, 10):
        step(number, False)
    return {
        "worst": worst,
        "same_weights": same_weights,
        "scale": [scale_before, scaler.get_scale()],
        "skipped": state.stats()["skipped"],
        "digest": digest(model),
        "finite": bool(torch.isfinite(weights(model)).all()),
    }


def unscaled():
    """A scaled loss gives the weights of an unscaled one."""
    digests = []
    for scale in (1.0, 2.0**10):
        model = small_buckets(network())
        scaler = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=10**6)
        sw.register(model, "topk:ratio=0.1", scaler=scaler)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for number in range(10):
            optimizer.zero_grad()
            scaler.scale(loss_of(model, number)).backward()
            scaler.step(optimizer)
            scaler.update()
        digests.append(digest(model))
    return digests


def bad_gradient():
    """Without a scaler: backward raises on all ranks and names rank and parameter, and so does the next one."""
    inner = network()
    model = small_buckets(inner)
    state = sw.register(model, "topk:ratio=0.1")
    train(model, 3)
    if rank() == 1:
        inner[2].weight.register_hook(lambda g: g * float("nan"))
    messages = []
    for _ in range(2):
        try:
            loss_of(model, 9).backward()
        except RuntimeError as error:
            messages.append(str(error))
    return [messages, type(state.error).__name__, getattr(state.error, "rank", None)]


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
                if how == "kill":
                    os.kill(os.getpid(), 9)
                os.kill(os.getpid(), 19)
            return submit(got)

        state.submit = then_end
    began = time.monotonic()
    try:
        train(model, steps, first=3)
    except RuntimeError as error:
        waited = time.monotonic() - began
        return [str(error), type(state.error).__name__, getattr(state.error, "rank", None), waited]
    return "no error"


def refusals():
    """What cannot work is refused at once, and says what to do."""
    said = {}

    def expect(name, kind, function):
        try:
            function()
            said[name] = "no error"
        except kind as error:
            said[name] = str(error)

    expect("spec", ValueError, lambda: sw.register(DDP(network()), "topk:ratio=7"))
    expect("plain module", TypeError, lambda: sw.register(network()))
    twice = DDP(network())
    sw.register(twice, "topk:ratio=0.1")
    expect("twice", ValueError, lambda: sw.register(twice, "topk:ratio=0.1"))
    expect("exclude", ValueError, lambda: sw.register(DDP(network()), "topk:ratio=0.1", exclude=["nowhere"]))
    expect("scale=lr", ValueError, lambda: sw.register(DDP(network()), "topk:ratio=0.1", feedback="ef:scale=lr"))
    late = network()
    late[0] = late[0].double()  # its bucket comes last, and with a scaler the earlier ones wait for it
    late = small_buckets(torch.nn.Sequential(late[0], ToFloat(), *late[1:]))
    sw.register(late, "topk:ratio=0.1", scaler=torch.amp.GradScaler("cpu"))
    expect("late float64", RuntimeError, lambda: late(torch.randn(2, 10, dtype=torch.float64)).sum().backward())
    doubles = DDP(network().double())
    sw.register(doubles, "topk:ratio=0.1")
    x = torch.randn(2, 10, dtype=torch.float64)
    expect("float64", RuntimeError, lambda: doubles(x).sum().backward())

    class Sparse(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table = torch.nn.Embedding(10, 4, sparse=True)

        def forward(self, x):
            return self.table(x)

    sparse = DDP(Sparse())
    sw.register(sparse, "topk:ratio=0.1")
    expect("sparse", RuntimeError, lambda: sparse(torch.tensor([1, 2])).sum().backward())

    joined = DDP(network())
    sw.register(joined, "topk:ratio=0.1")

    def join():
        with joined.join():
            joined(torch.randn(2, 10)).sum().backward()

    expect("join", RuntimeError, join)
    return said


def unequal(what):
    net = network()
    if what == "names" and rank() == 1:
        net = torch.nn.Sequential(net)
    sparsifier = f"topk:ratio=0.{1 + rank()}" if what == "spec" else "topk:ratio=0.1"
    exclude = ["0.weight"] if what == "exclude" and rank() == 1 else None
    scaler = torch.amp.GradScaler("cpu") if what == "scaler" and rank() == 1 else None
    try:
        model = small_buckets(net)
        state = sw.register(model, sparsifier, exclude=exclude, scaler=scaler, deadline=20)
        loss_of(model, 0).backward()
    except (RuntimeError, ValueError) as error:
        return str(error)
    return "no error"


def freed():
    """A State that nobody holds any more ends its thread."""
    for _ in range(3):
        model = small_buckets(network())
        sw.register(model, "topk:ratio=0.1")
        train(model, 2)
        del model
        gc.collect()
    end = time.monotonic() + 20
    while time.monotonic() < end and any(thread.name == "sparsewire" for thread in threading.enumerate()):
        time.sleep(0.05)
    return sum(thread.name == "sparsewire" for thread in threading.enumerate())


class Exits(sparsewire.Sparsifier):
    def choose(self, accumulated):
        if self.step == 2 and rank() == 1:
            sys.exit("no more")
        return [0]


def exits():
    """SystemExit on the hook's thread: no rank waits for ever."""
    with sparsewire.register_sparsifier("exits", Exits):
        model = small_buckets(network())
        sw.register(model, "exits", deadline=10)
        try:
            train(model, 5)
        except RuntimeError as error:
            return str(error)
    return "no error"


def torn():
    """state_dict() in the middle of a backward pass is refused."""
    inner = network()
    model = small_buckets(inner)
    state = sw.register(model, "topk:ratio=0.1")
    train(model, 3)
    said = []

    def save(gradient):
        try:
            state.state_dict()
            said.append("no error")
        except RuntimeError as error:
            said.append(str(error))

    inner[0].weight.register_hook(save)
    train(model, 1, first=3)
    return said


def plain_form():
    """register_comm_hook with a State that was not bound: numbered parameters, and it says so; bound: names."""
    import warnings

    digests = []
    for bound in (False, True):
        model = small_buckets(network())
        state = sw.State(None, "topk:ratio=0.1")
        if bound:
            state.bind(model)
        model.register_comm_hook(state, sw.hook)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            train(model, 5)
        numbered = any("numbered" in str(w.message) for w in said)
        digests.append([digest(model), numbered, sorted(state.memory())[0]])
    return digests


def options_at_work():
    """start_step, min_compress_size, exclude, retune, statistics, metrics and pickling."""
    import pickle

    inner = network()
    model = small_buckets(inner)
    path = f"/tmp/sparsewire-test-{os.getpid()}-{{rank}}.jsonl"
    state = sw.register(
        model, "topk:ratio=0.1", start_step=3, min_compress_size=50, exclude=["4.weight"], metrics=path
    )
    densities = []
    train(model, 1)
    dense_factor = state.stats()["last"]["factor_against_dense"]
    train(model, 5, first=1, between=lambda _: densities.append(state.stats()["last"]["density"]))
    memory = state.memory()
    small = [memory[name].abs().sum().item() for name in ("0.bias", "4.weight", "4.bias")]
    large = memory["2.weight"].abs().sum().item()
    before = state.stats()["last"]["entries_sent"]
    state.retune("topk:ratio=0.3")
    train(model, 2, first=6)
    after = state.stats()["last"]["entries_sent"]
    path = path.replace("{rank}", str(rank()))
    with open(path) as file:
        lines = [json.loads(line) for line in file]
    os.remove(path)
    copy = pickle.loads(pickle.dumps(state))
    totals = state.stats()
    return {
        "densities": densities,
        "small": small,
        "large": large,
        "entries": [before, after],
        "lines": [line["step"] for line in lines],
        "copy": [copy.options.sparsifier, copy._step if copy._loaded is None else "loaded"],
        "factor": totals["factor_against_dense"],
        "dense_factor": dense_factor,
        "digest": digest(model),
    }


def dtypes():
    """bf16 and f16 gradients, autocast, gradient_as_bucket_view, no_sync, clipping, Adam and momentum."""
    found = {}
    for name, options in {"view": {"gradient_as_bucket_view": True}, "static": {"static_graph": True}}.items():
        model = small_buckets(network(), **options)
        sw.register(model, "topk:ratio=0.1")
        train(model, 6)
        found[name] = digest(model)
    for dtype in (torch.bfloat16, torch.float16):
        model = small_buckets(network().to(dtype))
        sw.register(model, "topk:ratio=0.1")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for step in range(6):
            optimizer.zero_grad()
            x, y = batch(step)
            torch.nn.functional.mse_loss(model(x.to(dtype)).float(), y).backward()
            optimizer.step()
        found[str(dtype)] = digest(model)
        assert torch.isfinite(weights(model)).all()
    model = small_buckets(network())
    state = sw.register(model, "topk:ratio=0.1")
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(6):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            with model.no_sync():
                loss_of(model, 2 * step).backward()
            loss_of(model, 2 * step + 1).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    found["adam, accumulation, clipping"] = digest(model)
    assert state.stats()["steps"] == 6
    model = small_buckets(network())
    sw.register(model, "topk:ratio=0.1", feedback="momentum:m=0.9,clip=1")
    train(model, 6, lr=0.01)
    found["dgc"] = digest(model)
    return found


class EveryThird(sparsewire.Sparsifier):
    """A researcher's idea: every third entry, beginning with the step's number."""

    def choose(self, accumulated):
        return numpy.arange(self.step % 3, len(accumulated), 3)

    def expected_entries(self):
        return self.context.dim / 3 if hasattr(self.context, "dim") else 1


def own_sparsifier():
    with sparsewire.register_sparsifier("every_third", EveryThird):
        model = small_buckets(network())
        state = sw.register(model, "every_third")
        train(model, 6)
        assert state.stats()["last"]["entries_sent"] > 100
        state.close()
        return digest(model)


def distributed_checkpoint(folder):
    import torch.distributed.checkpoint as dcp

    model = small_buckets(network())
    state = sw.register(model, "topk:ratio=0.1")
    train(model, 5)
    dcp.save({"model": model.state_dict(), "sparsewire": sw.DistributedCheckpoint(state)}, checkpoint_id=folder)
    train(model, 3, first=5)
    expected = digest(model)

    other = small_buckets(network(seed=77))
    again = sw.register(other, "topk:ratio=0.1")
    loaded = {"model": other.state_dict(), "sparsewire": sw.DistributedCheckpoint(again)}
    dcp.load(loaded, checkpoint_id=folder)
    other.load_state_dict(loaded["model"])
    train(other, 3, first=5)
    return [expected, digest(other)]


def cuda(steps):
    """The same training on a GPU, all ranks on the first one: digests, with a GradScaler, and what the statistics say."""
    found = {}
    device = torch.device("cuda", 0)
    torch.cuda.set_device(device)
    for name, scaler in (("plain", None), ("scaled", torch.amp.GradScaler("cuda", init_scale=2.0**8))):
        model = small_buckets(network().to(device))
        state = sw.register(model, "topk:ratio=0.1", downlink="topk:ratio=0.1", scaler=scaler)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for step in range(steps):
            optimizer.zero_grad()
            x, y = (part.to(device) for part in batch(step))
            loss = torch.nn.functional.mse_loss(model(x), y)
            if scaler is None:
                loss.backward()
                optimizer.step()
            else:
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
        found[name] = digest(model.cpu())
        found[name + " copies"] = state.stats()["host_copies"] > 0 and "GPU" in state.stats()["device"]
        state.close()
    return found


def obey(bodies):
    """Runs the bodies that standard input names, one line each; `ranks.py` writes them."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for line in sys.stdin:
        body, arguments = json.loads(line)
        try:
            answer = ["result", bodies[body](**arguments)]
        except Exception:
            answer = ["error", traceback.format_exc()]
        print("ANSWER " + json.dumps(answer), flush=True)


if __name__ == "__main__":
    obey(globals())
