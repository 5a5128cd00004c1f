"""What the processes of local_steps_test.py do."""

import copy
import json
import os
import zlib

import torch
import torch.distributed as dist
from local_reference import ByHand
from models import digest, loss_of, network, obey, rank, said_by

import sparsewire
import sparsewire.torch as sw


def digest_of(tensors):
    return zlib.crc32(b"".join(one.detach().float().numpy().tobytes() for one in tensors))


def starts(outer):
    """The bits of the weights that all ranks have in common."""
    return digest_of([fragment.start for fragment in outer._fragments])


def inner_step(model, optimizer, step, of=None):
    optimizer.zero_grad()
    x, y = batch_in(model, step, of)
    torch.nn.functional.mse_loss(model(x).float(), y).backward()
    optimizer.step()


def batch_in(model, step, of=None):
    from models import batch

    x, y = batch(step, of)
    return x.to(next(model.parameters()).dtype), y


def adamw(model):
    return torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.01)


def by_hand(options, reference, steps, dtype="float32", frozen=()):
    """LocalSteps, and all ranks by hand in this process: whether weights, start and memory have the same bits."""
    size = dist.get_world_size()

    def make():
        model = network().to(getattr(torch, dtype))
        for name, p in model.named_parameters():
            p.requires_grad_(name not in frozen)
        return model

    models = [make() for _ in range(size)]
    hand = ByHand(models, [adamw(m) for m in models], is_dense=lambda name, p: p.ndim < 2, **reference)
    model = make()
    optimizer = adamw(model)
    every = options.pop("every", 5)
    outer = sw.LocalSteps(model, optimizer, every=every, min_compress_size=0, **options)
    differing = []
    for step in range(steps):
        inner_step(model, optimizer, step)
        for r in range(size):
            inner_step(models[r], hand.optimizers[r], step, of=r)
        if (step + 1) % every == 0:
            hand.exchange()
        if digest(model) != digest(models[rank()]):
            worst = max((p - q).abs().max().item() for p, q in zip(model.parameters(), models[rank()].parameters()))
            differing.append([step, worst])
    start = outer._fragments[0].by_name(outer._fragments[0].start)
    same_start = all(bool((start[name].numpy() == values).all()) for name, values in hand.start.items())
    memory = torch.cat([outer.memory()[name] for name in hand.sparse]).numpy()
    worst = float(abs(memory - hand.memory[rank()]).max())
    result = {"differing": differing, "start": same_start, "memory": worst, "exchanges": outer.stats()["steps"]}
    outer.close()
    return result


SMALL = {"every": 4, "min_compress_size": 50, "sparsifier": "topk:k=9,chunk=100"}


def made(net=None, optimizer=None, **options):
    """A model in training: (model, optimizer, LocalSteps)."""
    model = network() if net is None else net
    optimizer = adamw(model) if optimizer is None else optimizer
    return model, optimizer, sw.LocalSteps(model, optimizer, **{**SMALL, **options})


def go(model, optimizer, steps, first=0):
    for step in range(first, first + steps):
        inner_step(model, optimizer, step)


def every_way(cases, exchanges):
    """The bits of the start after many exchanges, in every way in which they can be made."""
    found = {}
    for case in cases:
        model, optimizer, outer = made(seed=4, check_every=5, **case)
        interval = outer._interval
        for step in range(exchanges * interval):
            inner_step(model, optimizer, step % 50)
        outer.sync()
        found[str(case)] = [starts(outer), digest(model), outer.stats()["steps"]]
        outer.close()
    return found


def saved_in_mid_round(folder, steps, until, options, stop):
    """Trains until a step, saves, and is killed, or goes on."""
    model, optimizer, outer = made(**options)
    go(model, optimizer, until)
    path = f"{folder}/run-{rank()}.pt"
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "outer": outer.state_dict()}
    torch.save(state, path)
    if stop:
        dist.barrier()  # all have saved
        os.kill(os.getpid(), 9)
    go(model, optimizer, steps - until, first=until)
    found = [starts(outer), digest(model), outer.steps]
    outer.close()
    return [*found, digest(model)]


def go_on(folder, steps, until, options):
    torch.manual_seed(99)
    model, optimizer, outer = made(net=network(seed=98), **options)
    saved = torch.load(f"{folder}/run-{rank()}.pt")
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    outer.load_state_dict(saved["outer"])
    go(model, optimizer, steps - until, first=until)
    found = [starts(outer), digest(model), outer.steps]
    outer.close()
    return [*found, digest(model)]


def save_for_any_number(folder):
    model, optimizer, outer = made()
    go(model, optimizer, 6)
    outer.sync()
    whole = outer.consolidated_state_dict()
    if rank() == 0:
        torch.save(whole, f"{folder}/whole.pt")
    owed = {name: memory.double() for name, memory in outer.memory().items()}
    for memory in owed.values():
        dist.all_reduce(memory)
    found = [starts(outer), digest(model), sum(memory.sum().item() for memory in owed.values()) / dist.get_world_size()]
    outer.close()
    dist.barrier()
    return found


def load_for_another_number(folder):
    model, optimizer, outer = made(net=network(seed=99))
    outer.load_state_dict(torch.load(f"{folder}/whole.pt"))
    found = [starts(outer), digest(model), sum(memory.double().sum().item() for memory in outer.memory().values())]
    go(model, optimizer, 9, first=6)
    outer.close()
    return [*found, outer.steps, digest(model)]


def drifts():
    """Weights in bfloat16 that move by less than they round to in a round: none of it is lost."""
    net = torch.nn.Linear(64, 64, bias=False).bfloat16()
    with torch.no_grad():
        net.weight.fill_(1.0)
    outer = sw.LocalSteps(net, None, every=1, sparsifier="topk:ratio=0.01", codec="auto:values=f32", feedback="ef")
    memory = []
    for _ in range(8):
        with torch.no_grad():
            net.weight.sub_(2.0**-8)  # half a unit above 1, a whole one below
        outer.step()
        memory.append(outer.memory()["weight"].double().sum().item())
    moved = (1 - outer._fragments[0].start.double()).sum().item()
    owed = memory[-1]
    entries = net.weight.numel()
    outer.close()
    return [moved + owed, entries * 8 * 2.0**-8]


class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(8)
        self.first = torch.nn.Linear(10, 10)
        self.second = torch.nn.Linear(10, 10)
        self.second.weight = self.first.weight
        self.last = torch.nn.Linear(10, 4)
        self.norm = torch.nn.BatchNorm1d(10)
        self.last.weight.requires_grad_(False)

    def forward(self, x):
        return self.last(torch.relu(self.second(torch.relu(self.norm(self.first(x))))))


def tied_and_frozen():
    """Tied weights are exchanged once, frozen ones never; both and the buffers are those of rank 0 at the start."""
    net = Tied()
    with torch.no_grad():
        for tensor in [*net.parameters(), net.norm.running_mean]:
            tensor.add_(rank())
    model, optimizer, outer = made(net=net)
    began = digest_of([*net.parameters(), net.norm.running_mean])
    frozen = net.last.weight.clone()
    go(model, optimizer, 8)
    found = {
        "began": began,
        "names": sorted(outer.memory()),
        "weights": digest_of(net.parameters()),
        "mean": digest_of([net.norm.running_mean]),
        "tied": net.first.weight is net.second.weight,
        "frozen": bool(torch.equal(frozen, net.last.weight)),
    }
    net.last.weight.requires_grad_(True)
    found["unfrozen"] = said_by({"": lambda: go(model, optimizer, 4, first=8)})[""]
    outer.close()
    return found


def scaled(explicit):
    """Each rank has infinite gradients in other steps: the scaler leaves them out, and they count."""
    model = network()
    optimizer = adamw(model)
    skipped = [0]
    optimizer.register_step_post_hook(lambda *_: skipped.__setitem__(0, skipped[0] - 1))
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=1000)
    if explicit:
        outer = sw.LocalSteps(model, None, **SMALL)
    else:
        outer = sw.LocalSteps(model, optimizer, scaler=scaler, **SMALL)
    exchanges = []
    for step in range(16):
        optimizer.zero_grad()
        scaler.scale(loss_of(model, step)).backward()
        if step % 5 == rank():
            model[0].weight.grad.fill_(float("inf"))
        scaler.step(optimizer)
        scaler.update()
        skipped[0] += 1
        if explicit:
            outer.step()
        exchanges.append(outer._exchanges)
    found = [exchanges, starts(outer), digest(model)]
    outer.close()
    assert "update" not in scaler.__dict__
    return [*found, skipped[0]]


def loops():
    """Inner steps that were counted: with accumulation, a schedule, two optimizers, a wrapper, and by hand."""
    counted = {}
    model = network()
    first = torch.optim.SGD(list(model[0].parameters()), lr=0.1)
    last = torch.optim.SGD(list(model[2:].parameters()), lr=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(last, lambda step: 0.9**step)
    with sw.LocalSteps(model, [first, last], **SMALL) as outer:
        for step in range(12):
            loss_of(model, step).backward()
            first.step()
            if step % 2:
                last.step()
                schedule.step()
                model.zero_grad()
        counted["two, accumulated"] = [outer.steps, outer._exchanges, round(schedule.get_last_lr()[0], 6)]
    go(model, last, 3)
    counted["closed"] = outer.steps

    class Wrapper:
        def __init__(self, optimizer):
            self.optimizer = optimizer

    model = network()
    optimizer = adamw(model)
    outer = sw.LocalSteps(model, Wrapper(optimizer), **SMALL)
    go(model, optimizer, 5)
    counted["wrapped"] = outer.steps
    counted["twice"] = said_by({"": outer.step})[""]
    outer.close()
    return counted


def unequal(steps, options):
    """Ranks that end after different numbers of steps: who has closed takes part until all have."""
    model, optimizer, outer = made(**options)
    before = None
    for step in range(steps[rank()]):
        before = digest(model)
        inner_step(model, optimizer, step)
    del before
    outer.close()
    again = said_by({"step": outer._count, "close": outer.close})
    return {"weights": digest(model), "start": starts(outer), "exchanges": outer.stats()["steps"], "again": again}


def a_say_in_the_average(steps):
    """What a rank without steps has sent counts for nothing: the weights are those of the ranks that trained."""
    net = torch.nn.Linear(8, 8)
    with torch.no_grad():
        net.weight.zero_()
        net.bias.zero_()
    outer = sw.LocalSteps(net, None, every=4, sparsifier="topk:ratio=1", min_compress_size=0, codec="auto:values=f32", feedback="ef")
    for _ in range(steps[rank()]):
        with torch.no_grad():
            net.weight.sub_(1.0)
            net.bias.sub_(1.0)
        outer.step()
    outer.close()
    return [sorted(set(net.weight.flatten().tolist())), sorted(set(net.bias.tolist()))]


def movements(options, steps):
    """Each rank moves by the same amount in every step: the start after each step, the weights of this rank, and its memory."""
    net = torch.nn.Linear(8, 8, bias=False)
    with torch.no_grad():
        net.weight.zero_()
    everything = {"sparsifier": "topk:ratio=1", "min_compress_size": 0, "codec": "auto:values=f32", "feedback": "ef"}
    outer = sw.LocalSteps(net, None, **everything, **options)
    found = []
    for _ in range(steps):
        with torch.no_grad():
            net.weight.sub_(1.0 + 2 * rank())
        outer.step()
        found.append([set(outer._fragments[0].start.tolist()).pop(), net.weight[0, 0].item()])
    found.append(outer.memory()["weight"].abs().max().item())
    outer.close()
    return [*found, net.weight[0, 0].item()]


def goes_on_meanwhile(folder, deadline):
    """Rank 1 begins when rank 0 has made all steps that do not need it, and has written lines of its own."""
    model, optimizer, outer = made(every=8, fragments=2, delay=3, deadline=deadline, metrics=f"{folder}/{{rank}}.jsonl")
    if rank() == 1:
        dist.barrier()
    for step in range(6):
        inner_step(model, optimizer, step)
        outer.record(loss=step)
    under_way = outer._under_way is not None
    if rank() == 0:
        dist.barrier()
    go(model, optimizer, 4, first=6)
    outer.close()
    with open(f"{folder}/{rank()}.jsonl") as file:
        lines = [json.loads(line) for line in file]
    return [under_way, digest(model), [line["step"] for line in lines if "loss" in line]]


def fails(where):
    """Rank 1 raises between two exchanges. The others learn it in their next one; none has begun because of it."""
    model, optimizer, outer = made(deadline=60)
    exchanges = []

    def train():
        with outer:
            go(model, optimizer, 6)
            if rank() == 1:
                exchanges.append(outer._exchanges)
                raise KeyError("no more data")
            go(model, optimizer, 6, first=6)

    said = said_by({"train": train}, (Exception,))["train"]
    if not exchanges:
        exchanges.append(outer._exchanges - 1)
    hooks = len(optimizer._optimizer_step_post_hooks)
    return [said, exchanges, hooks, said_by({"again": outer.sync}, (Exception,))["again"]]


def bad_weights():
    """A weight that is not finite on one rank: all ranks say which."""
    model = network()
    outer = sw.LocalSteps(model, None, **SMALL)

    def three_steps():
        for _ in range(3):
            outer.step()

    three_steps()
    if rank() == 1:
        with torch.no_grad():
            model[2].weight[5, 4] = float("nan")
    said = said_by({"next": outer.step, "then": three_steps, "sync": outer.sync, "close": outer.close})
    return [said, type(outer.error).__name__]


def outer_optimizers():
    """torch.optim.SGD over the start, by a function or of the model's parameters, is our momentum; others work."""
    found = {}
    ways = {
        "own": {"outer_lr": 0.5, "outer_momentum": 0.9},
        "function": {"outer_optimizer": lambda start: torch.optim.SGD(start, lr=0.5, momentum=0.9, nesterov=True)},
        "instance": {},
        "adam": {"outer_optimizer": lambda start: torch.optim.Adam(start, lr=0.01)},
    }
    for name, options in ways.items():
        net = network()
        if name == "instance":
            options = {"outer_optimizer": torch.optim.SGD(net.parameters(), lr=0.5, momentum=0.9, nesterov=True)}
        model, optimizer, outer = made(net=net, fragments=2, **options)
        if name == "instance":
            schedule = torch.optim.lr_scheduler.LambdaLR(outer.outer_optimizer, lambda _: 1.0)
        go(model, optimizer, 10)
        if name == "instance":
            schedule.step()
        state = outer.state_dict()
        go(model, optimizer, 6, first=10)
        outer.sync()
        found[name] = [torch.cat([f.start for f in outer._fragments]).tolist(), starts(outer), len(state["outer_optimizers"])]
        outer.close()
    return found


def shows_the_start():
    """start_weights() shows what all ranks have in common, and brings the own weights back, also after an exception."""
    model, optimizer, outer = made(net=network().bfloat16())
    go(model, optimizer, 7)
    own, shown = digest(model), []
    with outer.start_weights():
        shown.append(digest(model))
        said = said_by({"step": lambda: go(model, optimizer, 1), "save": outer.state_dict, "close": outer.close})
    back = [digest(model) == own]
    try:
        with outer.start_weights():
            raise KeyError("in an evaluation")
    except KeyError:
        back.append(digest(model) == own)
    outer.close()
    return [shown, back, said]


def numbers(folder):
    """Statistics, metrics, lines of one's own, and other options in mid-training."""
    path = f"{folder}/run-{{rank}}.jsonl"
    model, optimizer, outer = made(metrics=path)
    silent = made()
    go(*silent[:2], 8)
    for step in range(8):
        inner_step(model, optimizer, step)
        if step % 3 == 0:
            outer.record(loss=0.5)
    before = outer.stats()["last"]
    outer.retune("topk:k=30,chunk=100", codec="auto:values=f32")
    go(model, optimizer, 4, first=8)
    after = outer.stats()["last"]
    refused = said_by({"exchange": lambda: outer.retune(average="all")})
    outer.close()
    silent[2].close()
    with open(path.replace("{rank}", str(rank()))) as file:
        lines = [json.loads(line) for line in file]
    return {
        "lines": [[line["step"], "loss" in line] for line in lines],
        "sent": [before["entries_sent"], after["entries_sent"]],
        "up": outer.stats()["bytes_up"],
        "seconds": [outer.stats()["seconds"], silent[2].stats()["seconds"]],
        "factor": outer.stats()["factor_against_dense"],
        "refused": refused["exchange"],
    }


def mesh_of(names):
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh("cpu", (2, 2), mesh_dim_names=names)


def several(way, **options):
    """Two replicas of two processes each, which hold shards, or copies: (model, optimizer, LocalSteps)."""
    mesh = mesh_of(("replicate", "inside"))
    net = network(seed=3 + rank())
    if way == "fsdp":
        from torch.distributed.fsdp import fully_shard

        torch.manual_seed(3 + mesh.get_local_rank("replicate"))
        net = network(seed=3 + mesh.get_local_rank("replicate"))
        for layer in (net[0], net[2]):
            fully_shard(layer, mesh=mesh["inside"])
        model = fully_shard(net, mesh=mesh["inside"])
    else:
        model = torch.nn.parallel.DistributedDataParallel(net, process_group=mesh["inside"].get_group())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    outer = sw.LocalSteps(model, optimizer, group=mesh["replicate"].get_group(), **{**SMALL, **options})
    return model, optimizer, outer


def full(model):
    """All weights, on all ranks."""
    whole = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in model.parameters()]
    return torch.cat([one.detach().flatten() for one in whole])


def everyones(numbers):
    gathered = [torch.empty_like(numbers) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, numbers)
    return gathered


def of_several_processes(way, options):
    """Whether replicas differ between exchanges and agree after them; and how far from the mean by hand."""
    model, optimizer, outer = several(way, every=100, **options)
    began = everyones(full(model))
    go(model, optimizer, 5)
    before = everyones(full(model))
    outer.sync()
    after = everyones(full(model))
    go(model, optimizer, 3, first=5)
    own = full(model)
    shown = []
    for _ in range(2):  # also where the model has gathered its weights before
        with outer.start_weights():
            shown.append(full(model))
            evaluated = [loss_of(model, 0).item()]
        evaluated.append(loss_of(model, 0).item())
    back = torch.equal(full(model), own)
    go(model, optimizer, 2, first=8)
    moved = full(model)
    outer.close()
    last = everyones(full(model))
    return {
        "began": all(torch.equal(one, began[0]) for one in began),
        "apart": [torch.equal(before[0], before[i]) for i in (1, 2, 3)],
        "together": all(torch.equal(one, after[0]) for one in after),
        "mean": ((before[0] + before[2]) / 2 - after[0]).abs().max().item(),
        "shown": all(torch.equal(one, after[0]) for one in shown),
        "back": back,
        "evaluated": evaluated[0] != evaluated[1],
        "last": all(torch.equal(one, last[0]) for one in last) and not torch.equal(moved, last[0]),
        "entries": sum(len(fragment.start) for fragment in outer._fragments),
    }


def several_go_on(way, options):
    """Saved in mid-round and loaded: the same bits as without."""
    model, optimizer, outer = several(way, **options)
    go(model, optimizer, 6)
    state = copy.deepcopy({"outer": outer.state_dict(), "optimizer": optimizer.state_dict()})
    own = [p.detach().clone() for p in model.parameters()]
    go(model, optimizer, 5, first=6)
    outer.close()
    expected = full(model)
    model, optimizer, outer = several(way, **options)
    with torch.no_grad():
        for p, saved in zip(model.parameters(), own):
            p.copy_(saved)
    optimizer.load_state_dict(state["optimizer"])
    outer.load_state_dict(state["outer"])
    go(model, optimizer, 5, first=6)
    outer.close()
    return torch.equal(full(model), expected)


def several_refused():
    mesh = mesh_of(("replicate", "shard"))
    from torch.distributed.fsdp import fully_shard

    inside, between = mesh["shard"].get_group(), mesh["replicate"].get_group()

    def local_steps(model, group=None):
        return lambda: sw.LocalSteps(model, None, group=group, **SMALL)

    ddp = torch.nn.parallel.DistributedDataParallel(network(), process_group=inside)
    tiny = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64, bias=False), process_group=inside)
    sharded = fully_shard(network(), mesh=mesh["shard"])
    return said_by(
        {
            "ddp": local_steps(ddp),
            "copies": local_steps(ddp, inside),
            "fsdp": local_steps(sharded),
            "shards": local_steps(sharded, inside),
            "hsdp": local_steps(fully_shard(network(), mesh=mesh), between),
            "too few": local_steps(tiny, between),
        }
    )


def refusals():
    """What cannot work is refused at once, on all ranks alike, and says what to do."""
    net = network()

    def make(model=None, optimizer="own", **options):
        def call():
            one = network() if model is None else model
            given = adamw(one) if optimizer == "own" else optimizer
            sw.LocalSteps(one, given, **{**SMALL, **options}).close()

        return call

    class ScheduleFree(torch.optim.SGD):
        def train(self):
            pass

        eval = train

    frozen = network()
    for p in frozen.parameters():
        p.requires_grad_(False)
    stepped = network()
    used = torch.optim.SGD(stepped.parameters(), lr=0.1, momentum=0.9)
    fresh = torch.optim.SGD(stepped.parameters(), lr=0.1)
    nothing = torch.nn.Module()
    nothing.weight = torch.nn.Parameter(torch.zeros(0, 4))
    loss_of(stepped, 0).backward()
    used.step()
    return said_by(
        {
            "misspelt": make(downlnk="topk:ratio=0.1"),
            "a number": make(codec=3),
            "spec": make(sparsifier="topk:ratio=7"),
            "average": make(average="median"),
            "the inner one": make(stepped, fresh, outer_optimizer=fresh),
            "only empty": make(Empty(), fragments=[nothing]),
            "dense exchange": make(exchange="dense", codec="auto"),
            "every": make(every=0),
            "every 2.5": make(every=2.5),
            "fragments": make(fragments=3),
            "no fragments": make(fragments=0),
            "too many": make(fragments=100, every=100),
            "a module twice": make(net, fragments=[net, net[0]]),
            "a module left out": make(net, fragments=[net[0], net[2]]),
            "delay": make(delay=5),
            "mix": make(mix=1),
            "memory": make(memory="disk"),
            "deadline": make(deadline=0),
            "exclude": make(exclude=["nowhere"]),
            "outer_lr": make(outer_lr=0),
            "outer_momentum": make(outer_momentum=1.0),
            "two outers": make(outer_lr=0.5, outer_optimizer=lambda start: torch.optim.SGD(start, lr=1)),
            "no optimizer": make(outer_optimizer=lambda start: 3),
            "another's": make(net, outer_optimizer=torch.optim.SGD(network().parameters(), lr=1)),
            "used": make(stepped, outer_optimizer=used),
            "ddp": make(torch.nn.parallel.DistributedDataParallel(network())),
            "no module": make([1], optimizer=None),
            "no torch optimizer": make(optimizer=3),
            "empty list": make(optimizer=[]),
            "another model's": make(optimizer=adamw(net)),
            "schedule-free": make(net, ScheduleFree(net.parameters(), lr=0.1)),
            "float64": make(network().double()),
            "frozen": make(frozen, optimizer=None),
            "scaler": make(scaler=True),
        }
    )


def unequal_options(what):
    """Ranks with other options: both say so, soon."""
    options = {"deadline": 100}
    net = network()
    if rank() == 1:
        options.update({"every": {"every": 8}, "spec": {"sparsifier": "topk:ratio=0.2"}, "momentum": {"outer_momentum": 0.9}}.get(what, {}))
        if what == "model":
            net = network(width=20)
        if what == "wrong":
            options["codec"] = "nosuch"
    return said_by({"make": lambda: made(net=net, **options)}, (Exception,))["make"]


def misfits():
    """States that do not fit are refused, and change nothing."""
    model, optimizer, outer = made(fragments=2)
    go(model, optimizer, 5)
    good, own = outer.state_dict(), f"rank{rank()}"
    weights, inner = copy.deepcopy(model.state_dict()), copy.deepcopy(optimizer.state_dict())
    go(model, optimizer, 5, first=5)
    expected = [starts(outer), digest(model)]
    outer.close()
    first = next(iter(good["start"]))
    states = {
        "a list": [1],
        "a whole checkpoint": {"outer": good},
        "a hook's": good["exchange"],
        "a later format": {**good, "format": 99},
        "no start": {**good, "start": {}},
        "another size": {**good, "start": {**good["start"], first: torch.zeros(3)}},
        "another rank": {**good, "exchange": {f"rank{1 - rank()}": good["exchange"][own]}},
        "another model": {**good, "exchange": {own: {**good["exchange"][own], "groups": good["exchange"][own]["groups"].replace("2.bias", "nosuch")}}},
        "other fragments": {**good, "fragments": [sum(good["fragments"], [])], "steps_of": [1]},
        "momentum": {**good, "momentum": good["start"]},
        "a base": {**good, "base": good["start"]},
        "steps": {**good, "steps": "many"},
        "negative": {**good, "since": -1},
        "outer": {**good, "outer_optimizers": [{}]},
        "under way": {**good, "under_way": {}},
        "under way elsewhere": {**good, "under_way": {"fragment": 9, "left": 1, "flags": 1, "update": [], "taken": {}}},
        "an update": {**good, "under_way": {"fragment": 0, "left": 1, "flags": 1, "update": torch.ones(3), "taken": {}}},
        "not finite": {**good, "start": {**good["start"], first: good["start"][first] / 0}},
        **{f"no {kind}": {**good, "exchange": {own: without(good["exchange"][own], kind)}} for kind in ("group0", "dense1")},
    }
    model, optimizer, outer = made(fragments=2)
    said = said_by({name: (lambda one=one: outer.load_state_dict(one)) for name, one in states.items()})
    return [said, loaded_and_gone(model, optimizer, outer, (weights, inner, good), 5, first=5) == expected]


def loaded_and_gone(model, optimizer, outer, saved, steps, first):
    for one, state in zip((model, optimizer, outer), saved):
        one.load_state_dict(state)
    go(model, optimizer, steps, first=first)
    found = [starts(outer), digest(model)]
    outer.close()
    return found


def without(saved, name):
    assert name in saved
    return {key: value for key, value in saved.items() if key != name}


def nesterov(starts):
    return torch.optim.SGD(starts, lr=0.5, momentum=0.9, nesterov=True)


def outer_misfits():
    """The same of outer optimizers. What was saved in memory goes on bit for bit."""
    model, optimizer, outer = made(outer_optimizer=nesterov)
    go(model, optimizer, 9)
    good, weights, inner = outer.state_dict(), copy.deepcopy(model.state_dict()), copy.deepcopy(optimizer.state_dict())

    def changed(change):
        other = copy.deepcopy(good)
        change(other["outer_optimizers"][0])
        return lambda: outer.load_state_dict(other)

    said = said_by(
        {
            "empty": changed(lambda one: one.clear()),
            "no groups": changed(lambda one: one.update(param_groups=[])),
            "a group": changed(lambda one: one["param_groups"].__setitem__(0, 5)),
            "no lr": changed(lambda one: one["param_groups"][0].pop("lr")),
            "lr": changed(lambda one: one["param_groups"][0].update(lr=float("inf"))),
            "momentum": changed(lambda one: one["param_groups"][0].update(momentum=object())),
            "parameters": changed(lambda one: one["param_groups"][0].update(params=[0])),
            "another's": changed(lambda one: one["state"].update({99: {}})),
            "a size": changed(lambda one: one["state"][0].update(momentum_buffer=torch.zeros(3))),
            "a buffer": changed(lambda one: one["state"][0]["momentum_buffer"].fill_(float("nan"))),
            "a thing": changed(lambda one: one["state"][0].update(momentum_buffer=[1])),
        }
    )
    go(model, optimizer, 8, first=9)
    expected = [starts(outer), digest(model)]
    torch.optim.lr_scheduler.StepLR(outer.outer_optimizer, 100)  # adds a setting that the state has not
    return [said, loaded_and_gone(model, optimizer, outer, (weights, inner, good), 8, first=9) == expected]


def other_rhythm():
    """An exchange under way is not lost by a load with another rhythm."""
    model, optimizer, outer = made(every=10, delay=9)
    go(model, optimizer, 12)
    saved = outer.state_dict()
    outer.close()
    model, optimizer, outer = made(every=4, delay=4)
    said = said_by({"": lambda: outer.load_state_dict(saved)})[""]
    outer.close()
    return [saved["under_way"]["left"], said]


class Empty(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = network()
        self.nothing = torch.nn.Parameter(torch.zeros(0, 4))

    def forward(self, x):
        return self.net(x) + self.nothing.sum()


def empty_parameters():
    """They are left alone, and a state of such a model can be loaded."""
    model = Empty()
    optimizer = adamw(model)
    outer = sw.LocalSteps(model, optimizer, **SMALL)
    go(model, optimizer, 6)
    saved = outer.state_dict()
    go(model, optimizer, 6, first=6)
    outer.load_state_dict(saved)
    outer.close()
    return [digest(model), sorted(name for name in outer_names(outer) if "nothing" in name)]


def outer_names(outer):
    return [name for fragment in outer._fragments for name in fragment.names]


def replaced_parameters():
    """Parameters that became other objects are not trained: an error, and no ranks that go apart."""
    model, optimizer, outer = made()
    model.load_state_dict({name: value.clone() for name, value in model.state_dict().items()}, assign=True)
    said = said_by({"": lambda: go(model, optimizer, 4)})[""]
    outer.close()
    return said


def two_on_a_scaler():
    """Each is removed alone, in any order."""
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0, growth_interval=1000)
    both = [network(seed=seed) for seed in (1, 2)]
    optimizers = [adamw(model) for model in both]
    outers = [sw.LocalSteps(model, one, scaler=scaler, **SMALL) for model, one in zip(both, optimizers)]

    def loop(which, steps):
        for step in range(steps):
            for model, optimizer in which:
                optimizer.zero_grad()
                scaler.scale(loss_of(model, step)).backward()
                scaler.step(optimizer)
            scaler.update()

    loop(list(zip(both, optimizers)), 5)
    outers[0].close()
    loop([(both[1], optimizers[1])], 4)
    steps = [outer.steps for outer in outers]
    outers[1].close()
    return [steps, [digest(model) for model in both]]


def as_torchft():
    """DiLoCo's form: fragments, an optimizer for each; and as LocalSteps with our own momentum."""
    found = []
    for form in ("one", "two", "own"):
        model = network()
        parts = [model[:2], model[2:]]
        inner = adamw(model)
        outers = [torch.optim.SGD(part.parameters(), lr=0.5, momentum=0.9, nesterov=True) for part in parts]
        if form == "one":
            outers = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9, nesterov=True)
        if form == "own":
            own = {"outer_lr": 0.5, "outer_momentum": 0.9, "min_compress_size": 0, "feedback": "none", "codec": "auto"}
            given = sw.LocalSteps(model, inner, 6, fragments=parts, delay=2, sparsifier="dense", exchange="dense", **own)
        else:
            given = sw.DiLoCo(parts, inner, outers, sync_every=6, fragment_sync_delay=2)
        with given:
            go(model, inner, 20)
        found.append(torch.cat([p.detach().flatten() for p in model.parameters()]).tolist())
    return found


def compiled():
    """torch.compile, autocast and clipping need nothing: the weights are those of the plain model."""
    found = []
    for way in ("plain", "compiled", "compiled before"):
        model = network()
        compiled = model if way == "plain" else torch.compile(model, backend="eager")
        optimizer = adamw(model)
        with sw.LocalSteps(compiled if way == "compiled before" else model, optimizer, **SMALL):
            for step in range(9):
                optimizer.zero_grad()
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    loss_of(compiled, step).backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
                optimizer.step()
        found.append(digest(model))
    return found


if __name__ == "__main__":
    obey(globals())
