"""Saved states that somebody changed, and ranks that send each other what is no answer."""

import base64
import io
import json
import os
import random

import torch
import torch.distributed as dist
from models import digest, loss_of, network, obey, rank, said_by, small_buckets, train
from patience import patient

import sparsewire
import sparsewire.torch as sw
from sparsewire.torch._connect import _Attempt, connect
from sparsewire.torch._passes import Passes
from sparsewire.torch._saved import _is_bytes, to_bytes
from sparsewire.torch._session import _CONSOLIDATED

KINDS = [
    {"sparsifier": "topk:ratio=0.1", "downlink": "topk:ratio=0.1", "exclude": ["0.bias"]},
    {"sparsifier": "regtopk:ratio=0.1", "exchange": "allgather", "min_compress_size": 30},
    {"sparsifier": "threshold:ratio=0.1", "feedback": "momentum:m=0.9,clip=1"},
    {"sparsifier": "topk:ratio=0.1", "start_step": 4},
]


def nested(depth):
    found = []
    for _ in range(depth):
        found = [found]
    return found


NUMBERS = [-1, 0, 1, 2, 2**31, 2**32, 2**63, 2**64, 10**400, 0.0, -1.5, 1e308, float("nan"), float("inf"), True, False]
TEXTS = ["", "x", "four", "1", "\0", "\ud800", "\u0663", "[[", "null", "[" * 9999, "rank0", "0.weight", "9" * 5000]
JSON_VALUES = [None, *NUMBERS, *TEXTS, [], {}, [[]], [{}], {"": []}, nested(90)]
TENSORS = [
    torch.ones(3),
    torch.zeros(0, dtype=torch.uint8),
    torch.zeros(9, dtype=torch.uint8),
    torch.zeros((2, 9), dtype=torch.uint8),
    torch.zeros((), dtype=torch.uint8),
    torch.zeros(9, dtype=torch.uint8, device="meta"),
    torch.zeros(9, dtype=torch.uint8).to_sparse(),
    torch.zeros(9, dtype=torch.int8),
]
VALUES = [*JSON_VALUES, *TENSORS, 10**5000, -(10**5000), nested(9999), b"x", (1,), {1}, object(), print, complex(1)]
KEYS = ["rank0", "rank1", "rank7", "rank-1", "rank", "rank\u0663", "rank" + "9" * 20, "rank" + "9" * 5000, "group0", "group1"]
KEYS += ["group99", "group" + "9" * 20, "group\u0660", "format", "step", "\ud800", "", 0, None, (1,), 10**5000]


def places(node, found):
    """All containers of parsed JSON."""
    if isinstance(node, (dict, list)):
        found.append(node)
        for inner in node.values() if isinstance(node, dict) else node:
            places(inner, found)
    return found


def change_json(choose, text):
    """Another JSON, or what is no JSON any more."""
    if choose.random() < 0.2:
        at = choose.randrange(len(text) + 1)
        return text[:at] + choose.choice(["", "[", '"', "NaN", "\\ud800", "1e999", "-", "}"]) + text[at + choose.randrange(3) :]
    whole = json.loads(text)
    place = choose.choice(places(whole, []))
    keys = list(place) if isinstance(place, dict) else list(range(len(place)))
    how = choose.choice(["replace", "replace", "replace", "remove", "add", "swap"])
    if how == "add" or not keys:
        new = choose.choice(JSON_VALUES)
        if isinstance(place, dict):
            place[choose.choice(["x", "last", "groups", *map(str, keys)])] = new
        else:
            place.insert(choose.randrange(len(place) + 1), choose.choice([new, *place]))
    elif how == "remove":
        del place[choose.choice(keys)]
    elif how == "swap":
        one, other = choose.choice(keys), choose.choice(keys)
        place[one], place[other] = place[other], place[one]
    else:
        place[choose.choice(keys)] = choose.choice(JSON_VALUES)
    return json.dumps(whole)


def change_tensor(choose, tensor):
    how = choose.choice(["other", "cut", "longer", "flip", "type", "shape"])
    if how == "other":
        return choose.choice(TENSORS)
    if how == "cut":
        return tensor[: choose.randrange(len(tensor))]
    if how == "longer":
        return torch.cat([tensor, tensor[: choose.randrange(1, 50)]])
    if how == "type":
        return tensor.to(choose.choice([torch.int8, torch.float32, torch.int64, torch.bool]))
    if how == "shape":
        return tensor[None]
    changed = tensor.clone()
    changed[choose.randrange(len(changed))] ^= 1 << choose.randrange(8)
    return changed


def change(choose, state):
    """A state of which one to three things are not as state_dict() made them, and what these are."""
    if choose.random() < 0.02:
        return choose.choice(VALUES)
    state = {key: dict(one) for key, one in state.items()}
    for _ in range(choose.choice([1, 1, 1, 2, 3])):
        key = choose.choice(list(state))
        one = state[key]
        how = choose.choice(["json"] * 6 + ["field", "field", "tensor", "key", "rank"])
        if not isinstance(one, dict) or how == "rank":
            new = choose.choice([*VALUES, one])
            state[choose.choice([key, choose.choice(KEYS)])] = new
            if choose.random() < 0.5:
                state.pop(key, None)
            if not state:
                return state
            continue
        if how == "key":
            one[choose.choice(KEYS)] = choose.choice([*VALUES, *one.values()])
            continue
        tensors = [name for name, value in one.items() if _is_bytes(value) and len(value)]
        texts = [name for name in ("options", "groups", "totals") if isinstance(one.get(name), str)]
        if how == "json" and texts:
            name = choose.choice(texts)
            try:
                changed = change_json(choose, one[name])
            except (ValueError, IndexError, RecursionError):  # it was changed before
                continue
            for other in state.values() if choose.random() < 0.5 else [one]:  # the states of one training are alike
                if isinstance(other, dict):
                    other[name] = changed
        elif how == "tensor" and tensors:
            name = choose.choice(tensors)
            one[name] = change_tensor(choose, one[name])
        elif one:
            name = choose.choice(list(one))
            if choose.random() < 0.3:
                del one[name]
            else:
                new = choose.choice(VALUES)
                for other in state.values() if choose.random() < 0.5 else [one]:
                    if isinstance(other, dict):
                        other[name] = new
    return state


def held(state):
    """All that a State has, for comparison."""
    saved = state.state_dict()
    plain = {
        key: {name: value.tolist() if isinstance(value, torch.Tensor) else value for name, value in one.items()}
        for key, one in saved.items()
    }
    return [plain, state.stats(), state._parameters.all]


def hostile_states(kind, count):
    """Every changed state is refused with a UsageError, and nothing is changed; or it is loaded, and the next pass works.

    This rank is alone in its group, so that it can go on without the other one. Both load other states.
    """
    options = KINDS[kind]
    both = small_buckets(network())
    together = sw.register(both, **options)
    train(both, 3)
    whole = together.consolidated_state_dict()
    together.close()
    group = [dist.new_group([each]) for each in range(dist.get_world_size())][rank()]

    def start():
        model = small_buckets(network(), process_group=group)
        return model, sw.register(model, **options)

    model, state = start()
    train(model, 3)
    own, weights = state.state_dict(), {name: value.clone() for name, value in model.state_dict().items()}
    train(model, 2, first=3)
    expected = digest(model)
    state.load_state_dict(own)
    before = held(state)
    choose = random.Random(1000 * kind + rank())
    bad, outcomes = [], {"refused": 0, "loaded": 0}
    for i in range(count):
        changed = change(choose, choose.choice([own, whole]))
        is_bound = choose.random() < 0.9
        target = state if is_bound else sw.State(group, **{name: value for name, value in options.items() if name != "exclude"})
        was = before if is_bound else held(target)
        try:
            target.load_state_dict(changed)
        except sparsewire.UsageError as error:
            outcomes["refused"] += 1
            str(error).encode(errors="replace")
            if held(target) != was:
                bad.append([i, "changed", str(error)[:200]])
        except Exception as error:
            bad.append([i, f"{type(error).__name__}: {error!s:.200}"])
            if held(target) != was:
                bad[-1].append("and changed")
        else:
            outcomes["loaded"] += 1
            try:
                held(target)
                if is_bound:
                    loss_of(model, 5).backward()
                    state.stats()  # waits for the threads
                    if state.error is not None:
                        raise state.error
            except Exception as error:
                bad.append([i, f"after loading: {type(error).__name__}: {error!s:.200}"])
                if is_bound:
                    state.close()
                    model, state = start()
            if is_bound:
                state.load_state_dict(own)
                before = held(state)
        if not is_bound:
            target.close()
    model.load_state_dict(weights)
    state.load_state_dict(own)
    train(model, 2, first=3)
    goes_on = digest(model) == expected
    state.close()
    return [bad, outcomes, goes_on]


class Writes:
    """Whose pickle makes a file when it is loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


def pickles(path):
    """A pickle that would run code, in the place of a saved state: from rank 1, and in files."""
    path = f"{path}/{rank()}"
    model = small_buckets(network())
    state = sw.register(model, "topk:ratio=0.1")
    train(model, 2)
    expected = held(state)
    buffer = io.BytesIO()
    torch.save({f"rank{rank()}": Writes(path)}, buffer)
    pickled = buffer.getvalue()
    coded = base64.b64encode(pickled).decode()
    own = to_bytes(state.state_dict())
    sent = {
        "pickle": pickled,
        "nothing": b"",
        "null": b"null\n",
        "no JSON": b"[[[" + own,
        "cut": own[:-1],
        "longer": own + b"x",
        "negative": own.replace(b": [", b": [-", 1),
        "a tensor for a number": own.replace(b'"step": 2', b'"step": [9]'),
        "sound": own,
    }
    os.environ["TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"] = "1"  # so that torch.load() does what it did before torch 2.6
    try:
        said = {}
        for name, words in sent.items():
            mine = _CONSOLIDATED + (words if rank() == 1 else own)
            gather = lambda: state._call(lambda: state._passes.transport.all_gather(mine))
            said.update(said_by({name: state.consolidated_state_dict if rank() == 0 else gather}, Exception))
        wrapped = {f"rank{rank()}": coded}
        said.update(said_by({"checkpoint": lambda: sw.DistributedCheckpoint(state).load_state_dict(wrapped)}))
        given = {**state.__getstate__(), "state": coded}
        said.update(said_by({"copy": lambda: sw.State.__new__(sw.State).__setstate__(given)}, Exception))
        ran = os.path.exists(path)
        torch.load(io.BytesIO(pickled))  # it does run where it is let
        return [said, ran, os.path.exists(path), held(state) == expected]
    finally:
        del os.environ["TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"]


def damaged_answers(words):
    """Rank 1 says in torch's store what is no answer, then in the comparison of options; and then all is well."""
    said = {}
    for each in words:
        if rank() == 1:
            _Attempt(None).store.set("1", each)
        else:
            said.update(said_by({each: lambda: connect(None, patient(60))}, Exception))
    if rank() == 1:
        kept, Passes._compare_options = Passes._compare_options, lambda self: self.transport.all_gather(b"5")
    try:
        said.update(said_by({"options": lambda: sw.register(small_buckets(network()))}, Exception))
    finally:
        if rank() == 1:
            Passes._compare_options = kept
    model = small_buckets(network())
    state = sw.register(model, "topk:ratio=0.1")
    train(model, 2)
    return [said, state.stats()["steps"]]


if __name__ == "__main__":
    obey(vars())
