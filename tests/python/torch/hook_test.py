"""The hook in DistributedDataParallel, on real gloo processes."""

import os

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from ranks import Ranks, run  # noqa: E402

LONG = "SPARSEWIRE_LONG_TESTS" in os.environ
SPARSIFIERS = [
    "topk:ratio=0.1",
    "randomk:ratio=0.1",
    "rtopk:ratio=0.1,r=2",
    "threshold:ratio=0.1",
    "regtopk:ratio=0.1",
    "dense",
]
WAYS = [("dense", ""), ("allgather", ""), ("server", ""), ("sharded", ""), ("auto", "")]
DOWNLINKS = [("server", "topk:ratio=0.1"), ("sharded", "topk:ratio=0.1"), ("sharded", "threshold:ratio=0.1")]


def same(results):
    assert all(result == results[0] for result in results), results
    return results[0]


@pytest.mark.timeout(1800 if LONG else 300)
@pytest.mark.parametrize("size", [2, 3, 4])
def test_replicas_stay_identical(size):
    """All pairs of sparsifiers and exchanges, or a third of them for each number of processes."""
    cases = [(sparsifier, *way) for sparsifier in SPARSIFIERS for way in WAYS + DOWNLINKS]
    if not LONG:
        cases = cases[size % 3 :: 3]
    same(run(size, "every_way", seconds=1700 if LONG else 280, cases=cases, steps=200 if LONG else 30))


@pytest.mark.timeout(120)
def test_dense_gives_the_weights_of_ddp():
    for difference, largest, steps in run(3, "dense", steps=30):
        assert difference <= 1e-6 * largest
        assert steps == 30


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("model", "options", "groups"),
    [
        ("plain", {}, [1, 3]),
        ("plain", {"ddp": {"static_graph": True}}, [1, 3]),
        ("plain", {"sparsifier": "regtopk:ratio=0.1"}, [1, 3]),
        ("plain", {"exchange": "allgather", "min_compress_size": 30}, [1, 3]),
        ("two_types", {}, None),
        ("two_types", {"ddp": {"static_graph": True}}, None),
        ("branches", {"ddp": {"find_unused_parameters": True}}, None),
    ],
    ids=["regrouped", "static graph", "regtopk", "small ones densely", "two types", "two types static", "unused"],
)
def test_nothing_is_lost(model, options, groups):
    options = {"sparsifier": "topk:ratio=0.1", **options}
    for result in run(2, "owed", model_name=model, steps=12, options=options):
        assert result["unsent"] > 0
        assert result["worst"] < (2e-2 if model == "two_types" else 1e-5)
        if groups is not None:
            assert result["groups"][0] == groups[0] and result["groups"][-1] > 1


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "options",
    [
        {"sparsifier": "topk:ratio=0.05", "downlink": "topk:ratio=0.05", "codec": "golomb:values=bf16"},
        {"sparsifier": "regtopk:ratio=0.05", "exchange": "allgather"},
        {"sparsifier": "threshold:ratio=0.1", "ddp": {"static_graph": True}},
        {"sparsifier": "topk:ratio=0.1", "two_types": True, "ddp": {}},
    ],
    ids=["downlink", "regtopk", "threshold", "two types"],
)
def test_resumes_bit_for_bit(options, tmp_path):
    steps = 100 if "downlink" in options else 12
    expected = same(run(2, "first_half", folder=str(tmp_path), steps=steps, options=options))
    assert same(run(2, "second_half", folder=str(tmp_path), steps=steps, options=options)) == expected
    if "ddp" not in options:
        same(run(3, "other_size", folder=str(tmp_path), steps=steps, options=options))


@pytest.mark.timeout(120)
@pytest.mark.parametrize("downlink", [None, "topk:ratio=0.1"])
def test_an_infinity_in_the_last_bucket_skips_the_step(downlink):
    options = {"sparsifier": "topk:ratio=0.1", "downlink": downlink}
    results = run(2, "infinite", options=options)
    same([result["digest"] for result in results])
    for result in results:
        assert result["worst"] < 1e-5 and result["same_weights"] and result["finite"]
        assert result["scale"][1] < result["scale"][0]
        assert result["skipped"] == 1


@pytest.mark.timeout(120)
def test_a_scaled_loss_gives_the_same_weights():
    one, scaled = same(run(2, "unscaled"))
    assert one == scaled


@pytest.mark.timeout(120)
def test_a_bad_gradient_fails_the_backward_pass_on_all_ranks():
    for messages, kind, rank in run(2, "bad_gradient"):
        assert len(messages) == 2 and all("rank 1" in message and "2.weight" in message for message in messages)
        assert kind == "BadGradient" and rank == 1


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("how", "bucket"), [("kill", 1), ("kill", 3), ("stop", 2)])
def test_a_lost_rank_is_named_by_all_others(how, bucket):
    with Ranks(3) as ranks:
        results = ranks.ask("lost", 60, without=[1], how=how, bucket=bucket, steps=10, deadline=4)
        for message, kind, lost, waited in (results[0], results[2]):
            assert kind == "TransportError" and lost == 1 and "rank 1" in message, message
            assert waited < 30
        assert ranks.wait(20, without=[1]) == [0, 0]


@pytest.mark.timeout(120)
def test_what_cannot_work_is_refused():
    for said in run(2, "refusals"):
        expected = {
            "spec": "ratio=7",
            "plain module": "DistributedDataParallel",
            "twice": "hook already",
            "exclude": "nowhere",
            "scale=lr": "feedback",
            "float64": "float64",
            "late float64": "float64",
            "sparse": "sparse",
            "join": "join",
        }
        for name, words in expected.items():
            assert words in said[name], (name, said[name])


@pytest.mark.timeout(120)
@pytest.mark.parametrize("what", ["spec", "names", "exclude", "scaler"])
def test_unequal_ranks_are_refused(what):
    results = run(2, "unequal", what=what)
    assert all(result != "no error" for result in results), results


@pytest.mark.timeout(120)
def test_a_state_that_nobody_holds_is_freed():
    with Ranks(2) as ranks:
        assert ranks.ask("freed", 60) == [0, 0]


@pytest.mark.timeout(120)
def test_an_exit_on_the_thread_ends_the_backward_pass():
    assert all("rank 1" in said for said in run(2, "exits"))


@pytest.mark.timeout(120)
def test_a_state_is_not_saved_in_the_middle_of_a_pass():
    assert all("backward pass is under way" in said[0] for said in run(2, "torn"))


@pytest.mark.timeout(120)
def test_the_plain_form_works():
    unbound, bound = same(run(2, "plain_form"))
    assert unbound[0] == bound[0]
    assert unbound[1:] == [True, "parameter0"] and bound[1:] == [False, "0.bias"]


@pytest.mark.timeout(120)
def test_options_do_what_they_say():
    results = run(2, "options_at_work")
    same([result["digest"] for result in results])
    for result in results:
        assert result["densities"][:2] == [1, 1] and all(d < 0.6 for d in result["densities"][2:])
        assert 0.9 < result["dense_factor"] <= 1.01  # an all-reduce moves what an all-reduce moves
        assert result["small"] == [0, 0, 0] and result["large"] > 0
        assert result["entries"][1] > 1.2 * result["entries"][0]
        assert result["lines"] == list(range(1, 9))
        assert result["copy"] == ["topk:ratio=0.3", "loaded"]
        assert result["factor"] > 1


@pytest.mark.timeout(120)
def test_types_optimizers_and_modes():
    same(run(2, "dtypes"))


@pytest.mark.timeout(120)
def test_a_sparsifier_written_in_python():
    same(run(2, "own_sparsifier"))


@pytest.mark.timeout(120)
def test_distributed_checkpoint(tmp_path):
    for expected, found in run(2, "distributed_checkpoint", folder=str(tmp_path / "dcp")):
        assert expected == found
