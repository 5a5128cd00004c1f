"""What the processes of fsdp_test.py do: two replicas of two shards each, unless a body says something else."""

import copy

import torch
import torch.distributed as dist
from models import loss_of, network, obey, said_by
from ranks import LIMIT
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

import sparsewire.torch as sw


def make_mesh():
    return init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))


def sharded(net, mesh, **options):
    for layer in net.children():
        if isinstance(layer, torch.nn.Linear) and layer.out_features != 4:  # the last one belongs to the root
            fully_shard(layer, mesh=mesh, **options)
    return fully_shard(net, mesh=mesh, **options)


def register(model, mesh, sparsifier="topk:ratio=0.1", **options):
    return sw.register(model, sparsifier, replicate_group=mesh["replicate"].get_group(), **options)


def train(model, steps, first=0, optimizer=None):
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(first, first + steps):
        optimizer.zero_grad()
        loss_of(model, step).backward()
        optimizer.step()
    return optimizer


def whole(model):
    """The weights, in full on every rank."""
    return torch.cat([p.detach().full_tensor().flatten() for p in model.parameters()])


def local(model):
    """The shards of this rank, as numbers that can be compared exactly."""
    return torch.cat([p.detach().to_local().flatten() for p in model.parameters()])


def shards_of_replicas(model, mesh):
    """Whether the other replica has the same bits."""
    mine = local(model)
    both = [torch.empty_like(mine) for _ in range(2)]
    dist.all_gather(both, mine, group=mesh["replicate"].get_group())
    return bool(torch.equal(both[0], both[1]))


# --- bodies ---


def dense(steps):
    """`dense` through the hook against DDP without one, on the same data."""
    mesh = make_mesh()
    plain = DistributedDataParallel(network())
    train(plain, steps)
    model = sharded(network(), mesh["shard"])
    state = register(model, mesh, "dense", exchange="dense")
    train(model, steps)
    expected = torch.cat([p.detach().flatten() for p in plain.parameters()])
    moved = (expected - torch.cat([p.detach().flatten() for p in network().parameters()])).abs().max().item()
    difference = (whole(model) - expected).abs().max().item()
    return [difference, expected.abs().max().item(), moved, state.stats()["steps"]]


def replicas(steps, options, reduce_dtype=None):
    mesh = make_mesh()
    policy = {} if reduce_dtype is None else {"mp_policy": MixedPrecisionPolicy(reduce_dtype=getattr(torch, reduce_dtype))}
    model = sharded(network(), mesh["shard"], **policy)
    before = whole(model)
    state = register(model, mesh, **options)
    train(model, steps)
    stats = state.stats()
    moved = (whole(model) - before).abs().max().item()
    return [shards_of_replicas(model, mesh), moved > 0, stats["steps"], stats["last"]["density"]]


def accumulation():
    """Backward passes without synchronisation, then one with it, are one step."""
    mesh = make_mesh()
    model = sharded(network(), mesh["shard"])
    state = register(model, mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(4):
        optimizer.zero_grad()
        for part in range(3):
            model.set_requires_gradient_sync(part == 2)
            loss_of(model, 3 * step + part).backward()
        optimizer.step()
    return [shards_of_replicas(model, mesh), state.stats()["steps"]]


def resume(steps, options):
    """Saves in the middle; another model loads it and goes on: the bits of one that never stopped."""
    mesh = make_mesh()
    model = sharded(network(), mesh["shard"])
    state = register(model, mesh, **options)
    optimizer = train(model, steps)
    saved = {"model": [p.detach().to_local().clone() for p in model.parameters()], "sparsewire": state.state_dict()}
    saved = copy.deepcopy(saved)
    train(model, steps, first=steps, optimizer=optimizer)

    other = sharded(network(seed=99), mesh["shard"])
    again = register(other, mesh, **options)
    with torch.no_grad():
        for parameter, value in zip(other.parameters(), saved["model"]):
            parameter.to_local().copy_(value)
    again.load_state_dict(saved["sparsewire"])
    train(other, steps, first=steps)
    forgetful = sharded(network(seed=99), mesh["shard"])
    register(forgetful, mesh, **options)
    with torch.no_grad():
        for parameter, value in zip(forgetful.parameters(), saved["model"]):
            parameter.to_local().copy_(value)
    train(forgetful, steps, first=steps)
    return [bool(torch.equal(local(model), local(other))), bool(torch.equal(local(model), local(forgetful)))]


def refusals():
    mesh = make_mesh()
    twice = sharded(network(), mesh["shard"])
    state = register(twice, mesh)
    train(twice, 1)
    saved = state.state_dict()
    other = register(sharded(Skipping(), mesh["shard"]), mesh)  # its modules have other names

    def shards(**options):
        return lambda: sw.register(sharded(network(), mesh["shard"]), "topk:ratio=0.1", **options)

    return said_by(
        {
            "two dimensions": lambda: register(sharded(network(), mesh), mesh),
            "no group": shards(),
            "exclude": shards(replicate_group=mesh["replicate"].get_group(), exclude=["0.bias"]),
            "wrong group": shards(replicate_group=mesh["shard"].get_group()),
            "twice": lambda: register(twice, mesh),
            "another model": lambda: other.load_state_dict(saved),
        }
    )


def half_registered():
    """One rank cannot register: the other one of its replicate group learns it long before the deadline."""
    mesh = make_mesh()
    model = sharded(network(), mesh["shard"])
    spec = "topk:ratio=7" if dist.get_rank() == 1 else "topk:ratio=0.1"
    return said_by({"register": lambda: register(model, mesh, spec, deadline=10 * LIMIT)})["register"]


class Skipping(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.first, self.second, self.last = torch.nn.Linear(10, 10), torch.nn.Linear(10, 10), torch.nn.Linear(10, 4)
        self.skips = False

    def forward(self, x):
        x = torch.relu(self.first(x))
        return self.last(x if self.skips else torch.relu(self.second(x)))


def missing(what):
    """From the third backward pass on a gradient is missing, on all ranks."""
    mesh = make_mesh()
    model = Skipping()
    for layer in (model.first, model.second):
        fully_shard(layer, mesh=mesh["shard"])
    fully_shard(model, mesh=mesh["shard"])
    state = register(model, mesh, deadline=10 * LIMIT)
    train(model, 2)
    if what == "module":
        model.skips = True
    else:
        model.second.bias.requires_grad_(False)
    try:
        train(model, 2, first=2)
    except RuntimeError as error:
        return [str(error), type(state.error).__name__]
    return ["no error", ""]


class Given(torch.nn.Module):
    """Parameters whose gradients are what it is given."""

    def __init__(self):
        super().__init__()
        self.first, self.second = (torch.nn.Parameter(torch.zeros(size)) for size in (700, 4000))

    def forward(self, one, other):
        return (self.first * one).sum() + (self.second * other).sum()


def on_gpu(devices, options, steps):
    """One shard in each replica, on two devices: where gradients and memories differ, and what the statistics say."""
    found, said = [], []
    for device in devices:
        mesh = init_device_mesh(device, (dist.get_world_size(), 1), mesh_dim_names=("replicate", "shard"))
        model = fully_shard(Given().to(device), mesh=mesh["shard"])
        state = register(model, mesh, **options)
        bits = []
        for step in range(steps):
            model.zero_grad()
            generator = torch.Generator().manual_seed(10 * step + dist.get_rank())
            model(*(torch.randn(size, generator=generator).to(device) for size in (700, 4000))).backward()
            bits += [p.grad.to_local().cpu() for p in model.parameters()]
        found.append(bits + list(state.memory().values()))
        said.append(state.stats()["device"])
        state.close()
    return [[i for i, (a, b) in enumerate(zip(*found)) if not torch.equal(a, b)], len(found[0]), said]


if __name__ == "__main__":
    obey(globals())
