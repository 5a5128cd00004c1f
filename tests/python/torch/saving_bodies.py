"""Saving and loading."""

import copy
import json
import re

import torch
from models import TwoTypes, digest, network, rank, said_by, small_buckets, train

import sparsewire.torch as sw


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
    assert state.stats()["steps"] == steps, "at once, not after the next pass"
    try:
        state.memory()
        raise AssertionError("a memory that is not there yet")
    except RuntimeError as error:
        assert "after the next backward pass" in str(error), error
    train(model, steps, first=steps, optimizer=optimizer)
    assert state.memory()
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


def misfits():
    """States that cannot be loaded are refused by load_state_dict(), and change nothing."""
    size = torch.distributed.get_world_size()
    model = small_buckets(network())
    options = {"exclude": ["0.bias"], "downlink": "topk:ratio=0.1"}
    state = sw.register(model, "topk:ratio=0.1", **options)
    train(model, 4)
    good, whole, weights = state.state_dict(), state.consolidated_state_dict(), copy.deepcopy(model.state_dict())
    train(model, 2, first=4)
    expected = digest(model)
    state.close()
    own = f"rank{rank()}"

    def changed(**fields):
        return {own: {**good[own], **fields}}

    def without(name):
        return {own: {key: value for key, value in good[own].items() if key != name}}

    def resized():
        return changed(groups=good[own]["groups"].replace('"2.bias", 24', '"2.bias", 25'))

    def flipped():
        """One bit of the first memory."""
        bytes_of = good[own]["group0"].clone()
        bytes_of[len(bytes_of) // 2] ^= 1
        return changed(group0=bytes_of)

    def other_memory():
        return changed(group0=good[own]["group1"])

    last = whole[f"rank{size - 1}"]
    states = {
        "a list": [good],
        "nothing": {},
        "a whole checkpoint": {"model": {}, "sparsewire": good},
        "another rank": {f"rank{(rank() + 1) % size}": whole[f"rank{(rank() + 1) % size}"]},
        "another world": changed(world_size=7),
        "no dict": {own: [1]},
        "a later format": changed(format=99),
        "no format": without("format"),
        "no groups": without("groups"),
        "no step": without("step"),
        "no totals": without("totals"),
        "a step in words": changed(step="four"),
        "a negative step": changed(step=-1),
        "groups that are no JSON": changed(groups="[["),
        "groups of another form": changed(groups="[[1]]"),
        "a name twice": changed(groups=re.sub('"2.weight"', '"4.weight"', good[own]["groups"])),
        "totals of another form": changed(totals=json.dumps({"bytes_up": "many"})),
        "a memory that is a number": changed(group0=3),
        "a memory of floats": changed(group0=torch.ones(100)),
        "a memory that is cut": changed(group0=good[own]["group0"][:-9]),
        "a memory that is flipped": flipped(),
        "a memory of another group": other_memory(),
        "a memory too many": changed(group9=good[own]["group0"]),
        "another model": changed(groups=good[own]["groups"].replace("2.bias", "nosuch")),
        "another size": resized(),
        "not one training": {**whole, f"rank{size - 1}": {**last, "step": last["step"] + 1}},
    }
    model = small_buckets(network(seed=99))
    state = sw.register(model, "topk:ratio=0.1", **options)
    said = said_by({name: (lambda one=one: state.load_state_dict(one)) for name, one in states.items()})
    others = {
        "another spec": ("topk:ratio=0.2", options),
        "another feedback": ("topk:ratio=0.1", {**options, "feedback": "none", "downlink": None}),
        "another exchange": ("topk:ratio=0.1", {**options, "exchange": "server"}),
        "other exclusions": ("topk:ratio=0.1", {**options, "exclude": ["2.bias"]}),
    }
    for name, (sparsifier, given) in others.items():
        other = sw.register(small_buckets(network()), sparsifier, **given)
        said.update(said_by({name: lambda: other.load_state_dict(good)}))
        other.close()
    wrapped = sw.DistributedCheckpoint(state)
    said.update(said_by({"no part": lambda: wrapped.load_state_dict({"rank7": "x"})}))
    said.update(said_by({"no base64": lambda: wrapped.load_state_dict({own: "x" * 99})}))
    # An exchange can change with the states of all ranks.
    other = sw.register(small_buckets(network()), "topk:ratio=0.1", **{**options, "exchange": "server"})
    other.load_state_dict(whole)
    other.close()
    model.load_state_dict(weights)
    state.load_state_dict(good)
    train(model, 2, first=4)
    return [said, digest(model) == expected]


def before_the_first_pass():
    """A state that was saved before any backward pass can be loaded."""
    first = sw.register(small_buckets(network()), "topk:ratio=0.1")
    saved = first.state_dict()
    model = small_buckets(network())
    state = sw.register(model, "topk:ratio=0.1")
    state.load_state_dict(saved)
    train(model, 2)
    return state.stats()["steps"]
