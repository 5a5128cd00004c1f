"""LocalSteps, on real gloo processes."""

import os
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import ranks  # noqa: E402
from patience import patient  # noqa: E402

LONG = "SPARSEWIRE_LONG_TESTS" in os.environ
BODIES = Path(__file__).parent / "local_bodies.py"

SPARSIFIERS = ["topk:k=9,chunk=100", "randomk:ratio=0.1", "rtopk:ratio=0.1,r=2", "threshold:ratio=0.1", "dense"]
WAYS = [("allgather", None), ("server", None), ("sharded", None)]
WAYS += [("server", "topk:ratio=0.2"), ("sharded", "topk:ratio=0.2")]


def run(size, body, **arguments):
    return ranks.run(size, body, bodies=BODIES, **arguments)


def same(results):
    assert all(result == results[0] for result in results), results
    return results[0]


TOPK = {"sparsifier": "topk:k=5,chunk=100", "codec": "auto:values=f32"}
BY_HAND = {"k": 5, "chunk": 100, "decay": 0.95}


@pytest.mark.parametrize(
    ("options", "reference", "more"),
    [
        ({**TOPK, "exchange": "allgather"}, BY_HAND, {}),
        ({**TOPK, "exchange": "server"}, BY_HAND, {}),
        ({**TOPK, "exchange": "sharded"}, BY_HAND, {}),
        ({**TOPK, "outer_lr": 0.7, "outer_momentum": 0.9}, {**BY_HAND, "lr": 0.7, "momentum": 0.9}, {}),
        ({**TOPK, "outer_lr": 0.5, "every": 1}, {**BY_HAND, "lr": 0.5}, {"frozen": ["2.weight", "0.bias"]}),
        ({**TOPK}, BY_HAND, {"dtype": "bfloat16"}),
        ({"sparsifier": "dense", "codec": "auto:values=f32", "feedback": "none"}, {"k": 0, "chunk": 1, "decay": 0}, {}),
    ],
    ids=["allgather", "server", "sharded", "nesterov", "frozen", "bfloat16", "diloco"],
)
def test_has_the_bits_of_local_steps_by_hand(options, reference, more):
    for result in run(3, "by_hand", options=options, reference=reference, steps=17, **more):
        assert result == {"differing": [], "start": True, "memory": 0, "exchanges": 17 if "every" in options else 3}


@pytest.mark.parametrize("size", [2, 3, 4] if LONG else [2, 3])
def test_all_ranks_have_the_same_start_in_every_way(size):
    cases = [
        {"sparsifier": sparsifier, "exchange": exchange, "downlink": downlink, "every": 2}
        for sparsifier in SPARSIFIERS
        for exchange, downlink in WAYS
    ]
    cases += [
        {"sparsifier": "regtopk:ratio=0.1", "every": 2},
        {"sparsifier": "dense", "exchange": "dense", "codec": "auto:values=f32"},
        {"sparsifier": "topk:ratio=0.1", "exchange": "dense", "average": "all", "codec": "auto"},
        {"sparsifier": "topk:ratio=0.1", "exchange": "auto", "average": "all", "outer_momentum": 0.9},
        {"fragments": 2},
        {"delay": 3},
        {"fragments": 4, "delay": 1, "mix": 0.5, "outer_momentum": 0.5},
        {"delay": 4, "mix": 0.3},
        {"memory": "host", "exclude": ["2.weight"]},
    ]
    if not LONG:
        cases = cases[size % 2 :: 2]
    found = same(run(size, "every_way", cases=cases, exchanges=50 if LONG else 20))
    for start, model, exchanges in found.values():
        assert exchanges > 20 or LONG


SAVED = [
    {},
    {"downlink": "topk:ratio=0.2", "exchange": "sharded", "outer_lr": 0.7, "outer_momentum": 0.9},
    {"fragments": 2, "delay": 2, "outer_lr": 0.7},
    {"fragments": 2, "delay": 1, "mix": 0.25, "outer_momentum": 0.9, "sparsifier": "rtopk:ratio=0.1,r=2"},
]


@pytest.mark.parametrize("until", [5, 6])
@pytest.mark.parametrize("options", SAVED, ids=["plain", "downlink", "delay", "mix"])
def test_goes_on_bit_for_bit(options, until, tmp_path):
    arguments = {"folder": str(tmp_path), "steps": 15, "until": until, "options": options}
    expected = run(2, "saved_in_mid_round", stop=False, **arguments)
    assert run(2, "go_on", **arguments) == expected


def test_goes_on_after_a_kill(tmp_path):
    arguments = {"folder": str(tmp_path), "steps": 15, "until": 7, "options": {"fragments": 2, "delay": 2}}
    expected = run(2, "saved_in_mid_round", stop=False, **arguments)
    for saved in tmp_path.iterdir():
        saved.unlink()
    with ranks.Ranks(2, BODIES) as killed:
        with pytest.raises(AssertionError, match="ended"):
            killed.ask("saved_in_mid_round", stop=True, **arguments)
    assert run(2, "go_on", **arguments) == expected


def test_another_number_of_ranks_goes_on_from_the_start(tmp_path):
    start, model, owed = same(run(2, "save_for_any_number", folder=str(tmp_path)))
    results = run(3, "load_for_another_number", folder=str(tmp_path))
    for result in results:
        assert result[0] == start and result[1] == model
        assert abs(result[2] - owed) < 1e-5 * max(1, abs(owed))  # each has the mean of the memories
    same([result[3:] for result in results])


def test_small_drifts_of_bfloat16_are_not_lost():
    for found, expected in run(2, "drifts"):
        assert abs(found - expected) < 1e-3 * expected


def test_tied_and_frozen_weights_and_buffers():
    results = run(2, "tied_and_frozen")
    for result in results:
        assert result["names"] == ["first.bias", "first.weight", "last.bias", "norm.bias", "norm.weight", "second.bias"]
        assert result["tied"] and result["frozen"]
        assert "last.weight was frozen" in result["unfrozen"]
    assert results[0]["began"] == results[1]["began"] and results[0]["weights"] == results[1]["weights"]
    assert results[0]["mean"] != results[1]["mean"], "each rank has its own running mean"


@pytest.mark.parametrize("explicit", [False, True])
def test_steps_that_a_scaler_leaves_out_count(explicit):
    results = run(2, "scaled", explicit=explicit)
    same([result[:3] for result in results])
    assert results[0][0] == [0] * 3 + [1] * 4 + [2] * 4 + [3] * 4 + [4]
    assert [result[3] for result in results] == [4, 3]


def test_counts_steps_of_every_kind_of_loop():
    found = same(run(2, "loops"))
    assert found["two, accumulated"] == [6, 1, round(0.1 * 0.9**6, 6)]
    assert found["closed"] == 6
    assert found["wrapped"] == 5
    assert "would count twice" in found["twice"]


@pytest.mark.parametrize(
    "options",
    [{}, {"exchange": "sharded", "downlink": "topk:ratio=0.2"}, {"fragments": 2, "delay": 1}, {"exchange": "dense", "sparsifier": "dense", "codec": "auto"}],
    ids=["plain", "downlink", "delay", "dense"],
)
def test_ranks_may_run_out_of_data_at_different_steps(options):
    results = run(3, "unequal", steps=[9, 21, 14], options=options)
    same([[result["weights"], result["start"], result["exchanges"]] for result in results])
    for result in results:
        assert "this LocalSteps was closed" in result["again"]["step"] and result["again"]["close"] == "no error"


def test_nothing_is_exchanged_where_nobody_has_steps():
    """All ranks close right after an exchange: no further one counts."""
    for result in run(2, "unequal", steps=[8, 8], options={}):
        assert result["exchanges"] == 2
    for result in run(2, "unequal", steps=[8, 9], options={}):
        assert result["exchanges"] == 3


def test_who_has_closed_has_no_say_in_the_average():
    # 6 steps of rank 0, 2 of rank 1: exchanges after 4 and 2 (mean 3), then 2 and 0 (2), in the mean of those who moved.
    for weights, biases in run(2, "a_say_in_the_average", steps=[6, 2]):
        assert weights == [-5.0] and biases == [-5.0]


def test_steps_made_meanwhile_are_in_the_next_message():
    """Rank 0 moves by 1 in every step, rank 1 by 3: both by 2 in the mean."""
    first, second = run(2, "movements", options={"every": 4, "delay": 2}, steps=11)
    starts = [0] * 5 + [-8] * 4 + [-16] * 2  # messages after 4 and 8 steps, which arrive after 6 and 10
    assert [start for start, _ in first[:11]] == [start for start, _ in second[:11]] == starts
    # At 6 the new start, and the two steps since the message.
    assert [own for _, own in first[:11]] == [-1, -2, -3, -4, -5, -10, -11, -12, -13, -18, -19]
    assert [own for _, own in second[:11]] == [-3, -6, -9, -12, -15, -14, -17, -20, -23, -22, -25]
    assert [found[11:] for found in (first, second)] == [[0, -22], [0, -22]]


def test_goes_on_while_messages_are_under_way(tmp_path):
    results = run(2, "goes_on_meanwhile", folder=str(tmp_path), deadline=patient(40))
    assert results[0] == results[1] == [True, results[0][1], [1, 2, 3, 4, 5, 6]]


def test_mixing_moves_no_weights_of_the_start():
    """What the shares move the weights by is in no message: the start moves by 2 in every step."""
    for options in ({"every": 4, "mix": 0.5}, {"every": 4, "delay": 2, "mix": 0.5}):
        results = run(2, "movements", options=options, steps=18)
        late = options.get("delay", 0)
        for found in results:
            assert [start for start, _ in found[:18]] == [-8 * ((step - late) // 4) if step >= late else 0 for step in range(1, 19)]
            assert found[18:] == [0, -36]
    # Without a delay, after the first exchange: half of -8, and half of its own -4 or -12.
    assert [found[3][1] for found in run(2, "movements", options={"every": 4, "mix": 0.5}, steps=5)] == [-6, -10]


def test_an_exception_starts_no_exchange():
    results = run(2, "fails", where="loop")
    for rank, (said, exchanges, hooks, again) in enumerate(results):
        assert exchanges == [1] and hooks == 0
        if rank == 1:
            assert said == "KeyError: 'no more data'" and "this LocalSteps was closed" in again
        else:
            assert "KeyError: 'no more data'" in said and "rank 1" in said


def test_weights_that_are_not_finite_end_the_training_on_all_ranks():
    for said, kind in run(2, "bad_weights"):
        assert "the weights of rank 1 are not finite at index 124 of parameter 2.weight in exchange 1" in said["next"]
        assert kind == "BadGradient" and all("not finite" in said[name] for name in ("then", "sync", "close")), said


def test_outer_optimizers():
    found = same(run(2, "outer_optimizers"))
    own = torch.tensor(found["own"][0])
    assert torch.allclose(own, torch.tensor(found["function"][0]), rtol=1e-5, atol=1e-7)
    assert found["function"][1:] == found["instance"][1:] and found["adam"][2] == 1
    assert not torch.allclose(own, torch.tensor(found["adam"][0]), rtol=1e-2)


def test_the_form_of_torchft():
    one, two, own = same(run(2, "as_torchft"))
    assert one == two
    assert torch.allclose(torch.tensor(one), torch.tensor(own), rtol=1e-5, atol=1e-6)


def test_compiled_and_with_autocast():
    plain, *others = same(run(2, "compiled"))
    assert others == [plain, plain]


def test_start_weights_are_shown_and_taken_back():
    results = run(2, "shows_the_start")
    same([result[0] for result in results])
    for _, back, said in results:
        assert back == [True, True]
        assert all("leave `with start_weights()` first" in text for text in said.values()), said


def test_statistics_metrics_and_other_options(tmp_path):
    for result in run(2, "numbers", folder=str(tmp_path)):
        lines = [[1, True], [4, False], [4, True], [7, True], [8, False], [12, False]]
        assert result["lines"] == lines
        assert result["sent"][1] > 2 * result["sent"][0]
        assert result["up"] > 0 and result["factor"] > 1
        assert min(result["seconds"]) > 0  # also without metrics
        assert "TypeError" in result["refused"]


@pytest.mark.parametrize("way", ["fsdp", "ddp"])
@pytest.mark.parametrize("dense", [True, False])
def test_several_processes_stand_for_one_rank(way, dense):
    """Shards, or copies: each process exchanges a part of the model with those that have the same part."""
    options = {"sparsifier": "dense", "codec": "auto:values=f32", "feedback": "none"} if dense else {"fragments": 2, "mix": 0.25}
    results = run(4, "of_several_processes", way=way, options=options)
    for result in results:
        assert result["began"] and result["apart"] == [True, False, False]
        assert result["together"] and result["shown"] and result["back"] and result["evaluated"] and result["last"], result
        assert not dense or result["mean"] < 1e-6
    entries = [result["entries"] for result in results]
    assert entries[0] + entries[1] == entries[2] + entries[3] == 964 and max(entries) < 900


@pytest.mark.parametrize("way", ["fsdp", "ddp"])
def test_several_processes_go_on_bit_for_bit(way):
    assert run(4, "several_go_on", way=way, options={"fragments": 2, "delay": 1, "outer_momentum": 0.5}) == [True] * 4


def test_several_processes_need_their_group():
    expected = {
        "ddp": "give the plain module",
        "copies": "hold copies in one DistributedDataParallel, and are in group=",
        "fsdp": "an FSDP2 model needs group=",
        "shards": "hold shards of the same model, and are in group=",
        "hsdp": "a mesh of two dimensions",
        "too few": "1 parameters of a fragment cannot be divided among 2 copies",
    }
    ranks.assert_said(run(4, "several_refused"), expected)


def test_what_cannot_work_is_refused():
    expected = {
        "misspelt": "unexpected keyword argument 'downlnk'",
        "a number": "codec=3 is not a string",
        "spec": "[topk] ratio=7",
        "average": "median",
        "the inner one": "outer_optimizer is the inner optimizer",
        "only empty": "is in none of the modules",
        "dense exchange": "average senders: the exchange 'dense' does not tell who sent an entry",
        "every": "every=0 is not a number of steps",
        "every 2.5": "every=2.5 is not a number of steps",
        "fragments": "every=4 is no multiple of the number of fragments, 3",
        "no fragments": "fragments=0 is not in [1, 6]",
        "too many": "fragments=100 is not in [1, 6]",
        "a module twice": "0.weight is in two of the modules",
        "a module left out": "4.weight is in none of the modules",
        "delay": "delay=5 is not in [0, 4]",
        "mix": "mix=1 is not in [0, 1)",
        "memory": "memory='disk'",
        "deadline": "deadline=0",
        "exclude": "the model has no parameter nowhere",
        "outer_lr": "outer_lr=0 is not in (0, 100]",
        "outer_momentum": "outer_momentum=1.0",
        "two outers": "outer_lr= and outer_momentum= are those of the outer_optimizer",
        "no optimizer": "is neither an optimizer of the model's parameters nor a function",
        "another's": "outer_optimizer has not the parameter 0.bias",
        "used": "outer_optimizer has taken steps already",
        "ddp": "give the plain module",
        "no module": "LocalSteps takes a module; this is a list",
        "no torch optimizer": "is no torch.optim.Optimizer",
        "empty list": "optimizer=[] has none",
        "another model's": "the optimizer has none of the model's parameters",
        "schedule-free": "ScheduleFree keeps two versions of the weights",
        "float64": "is of torch.float64",
        "frozen": "no parameter that requires a gradient",
        "scaler": "scaler=True is no GradScaler",
    }
    ranks.assert_said(run(2, "refusals"), expected)


@pytest.mark.parametrize("what", ["every", "spec", "momentum", "model", "wrong"])
def test_ranks_with_other_options_say_so(what):
    results = run(2, "unequal_options", what=what)
    assert all(said != "no error" for said in results), results
    # Who finds out first tells the other one.
    assert "rank 1" in results[0] and results[0].split(":")[0] in ("UsageError", "RankFailed", "TransportError")


def test_a_state_that_does_not_fit_is_refused():
    damaged = "is damaged: "
    expected = {
        "a list": "not what LocalSteps.state_dict() returned",
        "a whole checkpoint": "not what LocalSteps.state_dict() returned",
        "a hook's": "not what LocalSteps.state_dict() returned",
        "a later format": "has format 99",
        "no start": damaged + "'start' has not the numbers of",
        "another size": damaged + "'start' has not the numbers of",
        "another rank": "save state_dict() on every rank",
        "another model": "of another model: it differs in 2.bias, nosuch",
        "other fragments": "other fragments=",
        "momentum": "another outer_momentum=",
        "a base": "delay= and mix=",
        "steps": damaged + "'steps' is 'many'",
        "negative": damaged + "its numbers of steps",
        "outer": "another outer_optimizer=",
        "under way": damaged + "'under_way' cannot be read",
        "under way elsewhere": damaged + "'under_way' is of no fragment",
        "an update": damaged + "'under_way' has another size",
        "not finite": damaged + "'start' has not the numbers of",
        "no group0": damaged + "'group0' is missing",
        "no dense1": damaged + "'dense1' is missing",
    }
    results = run(2, "misfits")
    ranks.assert_said([said for said, _ in results], expected)
    assert all(text.startswith("UsageError") for said, _ in results for text in said.values())
    assert all(goes_on for _, goes_on in results)


def test_a_state_of_other_outer_optimizers_is_refused():
    damaged = "is damaged: 'outer_optimizers' has "
    expected = {
        "empty": "'outer_optimizers' cannot be read",
        "no groups": "'outer_optimizers' cannot be read",
        "a group": damaged + "other groups",
        "no lr": damaged + "other groups",
        "lr": damaged + "lr=inf",
        "momentum": damaged + "momentum=",
        "parameters": damaged + "other groups",
        "another's": damaged + "the state of no parameter",
        "a size": damaged + "a momentum_buffer of another size",
        "a buffer": damaged + "a momentum_buffer of another size, or one that is not finite",
        "a thing": damaged + "momentum_buffer=",
    }
    results = run(2, "outer_misfits")
    ranks.assert_said([said for said, _ in results], expected)
    assert all(text.startswith("UsageError") for said, _ in results for text in said.values())
    assert all(goes_on for _, goes_on in results)


def test_an_exchange_under_way_is_not_lost_by_another_rhythm():
    for left, said in run(2, "other_rhythm"):
        assert left == 7 and said.startswith("UsageError") and "give every= and delay= as before" in said


def test_empty_parameters_are_left_alone():
    assert same(run(2, "empty_parameters"))[1] == []


def test_parameters_that_were_replaced_are_refused():
    for said in run(2, "replaced_parameters"):
        assert "0.weight is not the parameter that LocalSteps was made with" in said


def test_two_can_follow_one_scaler():
    assert same(run(2, "two_on_a_scaler"))[0] == [5, 9]
