"""Training with the hook."""

import json
import os
import pickle
import sys
import warnings
from pathlib import Path

import numpy
import torch
import torch.distributed as dist
from models import Branches, Constant, TwoTypes, batch, digest, loss_of, network, rank, small_buckets, train, weights
from ranks import LIMIT
from torch.nn.parallel import DistributedDataParallel as DDP

import sparsewire
import sparsewire.torch as sw

sys.path.append(str(Path(__file__).parents[1]))
import golden  # noqa: E402


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
        layouts.add(len([g for g in state._passes.groups.values() if g.left]))
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


def plain_form():
    """register_comm_hook with a State that was not bound: numbered parameters, and it says so; bound: names."""
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


class Refuses:
    """A Worker that cannot be retuned."""

    def __init__(self, worker):
        self.dim = worker.dim

    def retune(self, **options):
        raise sparsewire.UsageError(f"{options['sparsifier']} is not for this one")


def options_at_work():
    """start_step, min_compress_size, exclude, retune, statistics, metrics and pickling."""
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
    # The other groups have changed when the last one refuses; all are as before afterwards.
    groups = [group for group in state._passes.groups.values() if group.worker is not None]
    last = groups[-1]._sparse.worker
    groups[-1]._sparse.worker = Refuses(last)
    refused = ""
    try:
        state.retune("topk:ratio=0.2")
    except ValueError as error:
        refused = str(error)
    groups[-1]._sparse.worker = last
    specs = {group.worker.config["sparsifier"] for group in groups}
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
        "refused": [len(groups), refused, sorted(specs)],
        "lines": [line["step"] for line in lines],
        "copy": [copy.options.sparsifier, "none" if copy._passes.loaded is None else "loaded"],
        "factor": totals["factor_against_dense"],
        "dense_factor": dense_factor,
        "digest": digest(model),
    }


def own_numbers(folder):
    """Lines of metrics that the script writes itself, and scalars for TensorBoard, where it is installed."""
    model = small_buckets(network())
    state = sw.register(model, "topk:ratio=0.1", metrics=f"{folder}/run-{{rank}}.jsonl")
    try:
        state.record(rank=1)
    except ValueError as error:
        refused = str(error)
    scalars = {}
    try:
        from torch.utils.tensorboard import SummaryWriter

        writer = SummaryWriter(f"{folder}/scalars-{rank()}")
    except ImportError:
        writer = None
    for step in range(3):
        train(model, 1, first=step)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            state.record(loss=torch.tensor(0.5, requires_grad=True), test_accuracy=step)
        if writer is not None:
            state.write_scalars(writer)
    state.record(loss=float("nan"))
    if writer is not None:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        writer.close()
        written = EventAccumulator(f"{folder}/scalars-{rank()}")
        written.Reload()
        scalars = {tag: [(one.step, one.value) for one in written.Scalars(tag)] for tag in written.Tags()["scalars"]}
    with open(f"{folder}/run-{rank()}.jsonl") as file:
        lines = [json.loads(line) for line in file]
    lines[-1]["loss"] = str(lines[-1]["loss"])
    totals = state.stats()
    state.close()
    return {"lines": lines, "scalars": scalars, "totals": totals, "refused": refused}


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


def k_of_small_buckets():
    """Buckets that DDP makes after the first pass, one for each parameter."""
    inner = torch.nn.Sequential(torch.nn.Linear(10, 5), torch.nn.Linear(5, 300), torch.nn.Linear(300, 4))
    model = DDP(inner, bucket_cap_mb=1e-4)
    state = sw.register(model, "topk:k=100", downlink="topk:k=100")
    for step in range(4):
        torch.manual_seed(step + 10 * rank())
        model.zero_grad()
        model(torch.randn(3, 10)).square().mean().backward()
    state.retune("topk:k=120")
    model(torch.randn(3, 10)).square().mean().backward()
    sizes = [sum(size for _, size, _ in group.layout) for group in state._passes.groups.values()]
    return [sizes, {name: int(memory.count_nonzero()) for name, memory in state.memory().items()}]


def plain_form_in_a_subgroup():
    """Every rank is a group of its own, so its gradient comes back as it is."""
    groups = [dist.new_group([one]) for one in range(dist.get_world_size())]
    model = DDP(Constant(1), process_group=groups[rank()])
    model.register_comm_hook(sw.State(sparsifier="topk:ratio=1").bind(model), sw.hook)
    model(torch.tensor([1.0 + rank()])).backward()
    return model.module.weight.grad.tolist()


def ratio_of_the_rest(sparsifier):
    """What goes densely does not count for the ratio: entries that are sent, and the density."""
    inner = network()
    model = DDP(inner)  # one bucket
    state = sw.register(model, sparsifier, exclude=["2.weight"], min_compress_size=30)
    train(model, 2)
    last = state.stats()["last"]
    sizes = {name: p.numel() for name, p in inner.named_parameters()}
    return [sizes, last["entries_sent"], last["density"], last["dense_bytes"]]


def golden_bits():
    """The gradients of golden.cc through the hook, and on threads: how many sets of options were compared, which differ."""
    differing = []
    for exchange, sparsifier, downlink, _ in golden.GOLDEN:
        options = golden.options_of(exchange, sparsifier, downlink)
        ranks = sparsewire.run_on_threads(golden.RANKS, lambda transport: golden.run(transport, options))
        model = DDP(Constant(golden.DIM))
        state = sw.register(model, **options)
        found = numpy.zeros(golden.DIM, numpy.float32)
        for gradient in golden.GRADIENTS[rank()]:
            model.zero_grad()
            model(torch.from_numpy(gradient)).backward()
            found -= numpy.float32(0.125) * model.module.weight.grad.numpy()
        if (found.tobytes(), state.memory()["weight"].numpy().tobytes()) != ranks[rank()][1:]:
            differing.append([exchange, sparsifier])
        state.close()
    return [len(golden.GOLDEN), differing]


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


def sifts_ahead():
    """Rank 1 sifts its first bucket only when rank 0 has sifted its second, which so must not wait for the exchange of the
    first: the number of passes that did."""
    store = dist.distributed_c10d._get_default_store()
    passes = 0

    class Meeting(sparsewire.Sparsifier):
        def choose(self, accumulated):
            if self.step >= 2:  # the groups are there, and have their Workers
                if rank() == 0 and len(accumulated) == TwoBuckets.SECOND:
                    store.set(f"second bucket {passes}", "sifted")
                elif rank() == 1 and len(accumulated) == TwoBuckets.FIRST:
                    store.wait([f"second bucket {passes}"])
            return range(3)

    with sparsewire.register_sparsifier("meeting", Meeting):
        model = small_buckets(TwoBuckets())
        state = sw.register(model, "meeting", deadline=LIMIT)
        for _ in range(5):
            model(torch.ones(1)).backward()
            passes += 1
        state.close()
    return passes


class TwoBuckets(torch.nn.Module):
    """DDP asks for the bucket of FIRST entries first."""

    FIRST, SECOND = 400, 500

    def __init__(self):
        super().__init__()
        self.one = torch.nn.Parameter(torch.ones(self.FIRST))
        self.other = torch.nn.Parameter(torch.ones(self.SECOND))

    def forward(self, x):
        return self.other.sum() * self.one.sum() * x.sum()


def where():
    """What the statistics say of gradients on the host."""
    model = DDP(Constant(10))
    state = sw.register(model, "topk:k=1")
    model(torch.ones(10)).backward()
    found = state.stats()
    state.close()
    return [found["device"], found["host_copies"]]
