"""The hook in DistributedDataParallel, on real gloo processes."""

import dataclasses
import inspect
import os

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import sparsewire  # noqa: E402
import sparsewire.torch as sw  # noqa: E402
from patience import patient  # noqa: E402
from ranks import LIMIT, Ranks, assert_said, run  # noqa: E402

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

# Those whose defaults are others for LocalSteps.
LOCAL = {"sparsifier", "feedback", "codec", "exchange", "average", "check_every", "min_compress_size"}


def same(results):
    assert all(result == results[0] for result in results), results
    return results[0]


@pytest.mark.timeout(1800 if LONG else 300)
@pytest.mark.parametrize("size", [2, 3, 4] if LONG else [2, 3])
def test_replicas_stay_identical(size):
    """All pairs of sparsifiers and exchanges, or a third of them for each number of processes; C++ tests have all pairs."""
    cases = [(sparsifier, *way) for sparsifier in SPARSIFIERS for way in WAYS + DOWNLINKS]
    if not LONG:
        cases = cases[size % 3 :: 3]
    same(run(size, "every_way", limit=patient(1700) if LONG else LIMIT, cases=cases, steps=200 if LONG else 15))


def test_dense_gives_the_weights_of_ddp():
    for difference, largest, steps in run(3, "dense", steps=30):
        assert difference <= 1e-6 * largest
        assert steps == 30


def test_the_hook_gives_the_bits_of_workers():
    """processes_test.py and worker_test.py compare them with C++, MPI and TCP."""
    assert run(3, "golden_bits") == [[25, []]] * 3


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
    steps = 100 if LONG and "downlink" in options else 12
    expected = same(run(2, "first_half", folder=str(tmp_path), steps=steps, options=options))
    assert same(run(2, "second_half", folder=str(tmp_path), steps=steps, options=options)) == expected
    if "ddp" not in options:
        same(run(3, "other_size", folder=str(tmp_path), steps=steps, options=options))


@pytest.mark.parametrize("downlink", [None, "topk:ratio=0.1"])
def test_an_infinity_in_the_last_bucket_skips_the_step(downlink):
    options = {"sparsifier": "topk:ratio=0.1", "downlink": downlink}
    results = run(2, "infinite", options=options)
    same([result["digest"] for result in results])
    for result in results:
        assert result["worst"] < 1e-5 and result["same_weights"] and result["finite"]
        assert result["scale"][1] < result["scale"][0]
        assert result["skipped"] == 1


def test_a_scaled_loss_gives_the_same_weights():
    one, scaled = same(run(2, "unscaled"))
    assert one == scaled


@pytest.mark.parametrize("options", [{}, {"start_step": 2}, {"exclude": ["0.weight", "2.weight"]}], ids=str)
def test_a_bad_gradient_fails_the_backward_pass_on_all_ranks(options):
    for messages, kind, rank, step in run(2, "bad_gradient", options=options):
        words = "the gradient of rank 1 is not finite at index 120 of parameter 2.weight in step 4"
        assert len(messages) == 2 and all(words in message for message in messages), messages
        assert kind == "BadGradient" and rank == 1 and step == 4


def test_an_error_of_a_sparsifier_names_rank_and_step():
    first, second = run(2, "raises")
    assert "rank 1 failed in step 4: LookupError: not there" in first
    assert "LookupError: not there" in second


def test_an_update_too_large_for_float16_is_refused():
    for answers, memories, message, kind, step in run(2, "too_large", dtype="float16", unit=1, scale=None):
        assert answers == [[61440, 0]] and memories == [[0, 49152]]
        assert "in step 2 the update of all ranks is 98304 at index 1 of parameter weight" in message
        assert "bfloat16" in message and kind == "BadGradient" and step == 2


@pytest.mark.parametrize(("dtype", "scale"), [("float16", 1.0), ("float32", 2.0**96)])
def test_with_a_scaler_an_update_too_large_skips_the_step(dtype, scale):
    unit = 1 if dtype == "float16" else 2.0**112
    for answers, memories, skipped, steps in run(2, "too_large", dtype=dtype, unit=unit, scale=scale):
        one = unit / scale
        assert answers == str([[61440.0 * unit, 0.0], [float("inf")] * 2, [0.0, 55296.0 * unit]])
        assert memories == [[0, 49152 * one], [0, 49152 * one], [7680 * one, 0]]
        assert (skipped, steps) == (1, 2)


@pytest.mark.parametrize("bucket", [1, 3] if LONG else [1])
def test_a_killed_rank_is_named_by_all_others(bucket):
    """silent_test.py: one that is stopped."""
    with Ranks(3) as ranks:
        results = ranks.ask("lost", without=[1], how="SIGKILL", bucket=bucket, steps=10, deadline=10 * LIMIT)
        for message, kind, lost in (results[0], results[2]):
            assert kind == "TransportError" and lost == 1 and "rank 1" in message, message
        assert ranks.wait(without=[1]) == [0, 0]


def test_what_cannot_work_is_refused():
    expected = {
        "spec": "ratio=7",
        "plain module": "DistributedDataParallel",
        "twice": "hook already",
        "exclude": "nowhere",
        "one name": "one string",
        "scaler": "no GradScaler",
        "misspelt": "unexpected keyword argument 'start_steps'",
        "compiled": "before torch.compile",
        "scale=lr": "feedback",
        "deadline": "deadline=0",
        "float64": "float64",
        "late float64": "float64",
        "sparse": "sparse",
        "join": "join",
    }
    assert_said(run(2, "refusals"), expected)


@pytest.mark.parametrize(
    ("what", "failing", "cause"),
    [
        ("spec", 1, "UsageError: [topk] ratio=7"),
        ("spec", 0, "UsageError: [topk] ratio=7"),
        ("exclude", 2, "UsageError: [torch] exclude: the model has no parameter nowhere"),
        ("option", 1, "TypeError: [torch] codec=3 is not a string"),
        ("metrics", 1, "FileNotFoundError: "),
        ("interface", 1, "UsageError: [torch] interface 'nosuch0'"),
        ("twice", 2, "ValueError: [torch] this model has a communication hook already"),
    ],
)
def test_a_rank_that_cannot_register_is_named_by_all_others(what, failing, cause):
    results = run(3, "half_registered", what=what, failing=failing)
    same([digest for _, digest in results])
    for rank, (said, _) in enumerate(results):
        told = f"RankFailed: [torch] rank {failing} could not begin: "
        assert said.startswith(cause if rank == failing else told + cause), said


def test_nobody_waits_for_a_process_that_ended_in_register():
    with Ranks(3) as ranks:
        results = ranks.ask("leaves", without=[0])
        for kind, rank in results[1:]:
            assert kind in ("RankFailed", "TransportError") and rank == 0


@pytest.mark.parametrize("what", ["spec", "names", "exclude", "scaler"])
def test_unequal_ranks_are_refused(what):
    results = run(2, "unequal", what=what)
    assert all(result != "no error" for result in results), results


def test_a_state_that_nobody_holds_is_freed():
    with Ranks(2) as ranks:
        assert ranks.ask("freed") == [0, 0]


def test_a_process_does_not_end_before_the_threads():
    assert run(1, "ends_before_its_threads") == [[0, ["3", "[]", ""], ""]]


def test_a_bucket_with_fewer_entries_than_k_sends_all():
    for sizes, memories in run(2, "k_of_small_buckets"):
        assert min(sizes) < 100 < max(sizes), "buckets after DDP has regrouped them"
        assert memories["0.bias"] == 0 and memories["1.weight"] > 0


def test_the_plain_form_uses_the_group_of_the_model():
    assert run(2, "plain_form_in_a_subgroup") == [[1.0], [2.0]]


def test_an_exit_on_the_thread_ends_the_backward_pass():
    assert all("rank 1" in said for said in run(2, "exits"))


def test_a_state_is_not_saved_in_the_middle_of_a_pass():
    assert all("backward pass is under way" in said[0] for said in run(2, "torn"))


def test_the_plain_form_works():
    unbound, bound = same(run(2, "plain_form"))
    assert unbound[0] == bound[0]
    assert unbound[1:] == [True, "parameter0"] and bound[1:] == [False, "0.bias"]


def test_the_options_that_are_written_out_are_those_there_are():
    own = {field.name: (field.type, field.default) for field in dataclasses.fields(sw.Options)}
    for function, differing in ((sw.register, ()), (sw.State.__init__, ()), (sw.LocalSteps.__init__, LOCAL)):
        arguments = inspect.signature(function).parameters
        left_out = {"scope", "start_step"} if function is sw.LocalSteps.__init__ else {"average"}
        assert {name for name in own if name not in arguments} == left_out
        for name in set(own) - left_out:
            kind, default = own[name]
            found = arguments[name].annotation
            assert kind == (found if isinstance(found, str) else getattr(found, "__name__", str(found))) or "Optional" in kind
            assert (arguments[name].default == default) == (name not in differing), name


def test_options_do_what_they_say():
    results = run(2, "options_at_work")
    same([result["digest"] for result in results])
    for result in results:
        assert result["densities"][:2] == [1, 1] and all(d < 0.6 for d in result["densities"][2:])
        assert 0.9 < result["dense_factor"] <= 1.01  # an all-reduce moves what an all-reduce moves
        assert result["small"] == [0, 0, 0] and result["large"] > 0
        assert result["entries"][1] > 1.2 * result["entries"][0]
        number, refused, specs = result["refused"]
        assert number > 1 and "not for this one" in refused and specs == ["topk:ratio=0.1"]
        assert result["lines"] == list(range(1, 9))
        assert result["copy"] == ["topk:ratio=0.3", "loaded"]
        assert result["factor"] > 1


def test_metrics_have_the_numbers_of_the_script_and_tensorboard_gets_those_of_the_hook(tmp_path):
    for rank, result in enumerate(run(2, "own_numbers", folder=str(tmp_path))):
        lines, totals = result["lines"], result["totals"]
        assert [line["step"] for line in lines] == [1, 1, 2, 2, 3, 3, 3]
        assert [line.get("loss") for line in lines] == [None, 0.5, None, 0.5, None, 0.5, "nan"]
        assert [line["test_accuracy"] for line in lines[1:6:2]] == [0, 1, 2]
        assert [line["rank"] for line in lines] == [rank] * 7
        for name in ("seconds", "rank_bytes_up", "rank_bytes_down"):  # axes of charts, in every line
            values = [line[name] for line in lines]
            assert values == sorted(values) and values[0] > 0
        assert lines[-1]["rank_bytes_up"] == totals["bytes_up"] and lines[-1]["rank_bytes_down"] == totals["bytes_down"]
        assert "the metrics have a rank already" in result["refused"]
        if result["scalars"]:  # where TensorBoard is installed: tools/check_package.sh
            assert [step for step, _ in result["scalars"]["sparsewire/bytes_up"]] == [1, 2, 3]
            assert result["scalars"]["sparsewire/bytes_up"][2][1] == totals["last"]["bytes_up"]


@pytest.mark.parametrize("sparsifier", ["topk:ratio=0.1", "randomk:ratio=0.1"])
def test_a_ratio_holds_for_what_is_not_excluded(sparsifier):
    for sizes, sent, density, dense_bytes in run(2, "ratio_of_the_rest", sparsifier=sparsifier):
        rest = {"0.weight": 240, "4.weight": 96}
        densely = sum(sizes.values()) - sum(rest.values())
        assert {name: sizes[name] for name in rest} == rest
        assert sent == densely + 34  # 10 % of 336
        assert densely + 34 <= density * sum(sizes.values()) <= densely + 68
        assert dense_bytes == 4 * sum(sizes.values())


def test_types_optimizers_and_modes():
    same(run(2, "dtypes"))


def test_a_sparsifier_written_in_python():
    same(run(2, "own_sparsifier"))


def test_distributed_checkpoint(tmp_path):
    for expected, found in run(2, "distributed_checkpoint", folder=str(tmp_path / "dcp")):
        assert expected == found


def test_a_state_that_does_not_fit_is_refused_when_it_is_loaded():
    damaged, other_form = "is damaged: ", "not what State.state_dict() returned"
    expected = {
        "a list": other_form,
        "nothing": other_form,
        "a whole checkpoint": "it has 'model'",
        "another rank": "save state_dict() on every rank",
        "another world": "the state is of 7 ranks, and here are 2",
        "no dict": damaged + "it is a list",
        "a later format": "has format 99",
        "no format": "has format None",
        "no groups": damaged + "'groups' is 'missing'",
        "no step": damaged + "'step' is 'missing'",
        "no totals": damaged + "'totals' is 'missing'",
        "a step in words": damaged + "'step' is 'four'",
        "a negative step": damaged + "world_size=2, step=-1",
        "groups that are no JSON": damaged + "'groups' cannot be read",
        "groups of another form": damaged + "'groups' cannot be read",
        "a name twice": damaged + "'groups' cannot be read",
        "totals of another form": damaged + "'totals' cannot be read",
        "a memory that is a number": damaged + "'group0' is not a tensor of bytes",
        "a memory of floats": damaged + "'group0' is not a tensor of bytes",
        "a memory that is cut": "[state]",
        "a memory that is flipped": "checksum",
        "a memory of another group": "its tensors are not those of its groups",
        "a memory too many": damaged + "it has 'group9'",
        "another model": "of another model: it differs in 2.bias, nosuch",
        "another size": "of another model: 2.bias had 25 entries, and has 24",
        "not one training": "step differs",
        "another spec": "'topk:ratio=0.1'",
        "another feedback": "it was saved with downlink='topk:ratio=0.1', and here it is ''",
        "another exchange": "it was saved with exchange='sharded', and here it is 'server'",
        "other exclusions": "same exclude=",
        "no part": "has no state of rank",
        "no base64": "cannot be read",
    }
    results = run(2, "misfits")
    assert_said([said for said, _ in results], expected)
    assert all(text.startswith("UsageError") for said, _ in results for text in said.values())
    assert all(goes_on for _, goes_on in results)


def test_a_state_of_the_beginning_can_be_loaded():
    assert run(2, "before_the_first_pass") == [2, 2]


def test_the_next_bucket_is_sifted_while_one_is_exchanged():
    assert run(2, "sifts_ahead") == [5, 5]


def test_says_where_gradients_are_worked_on():
    assert run(2, "where") == [["host", 0]] * 2


@pytest.mark.skipif(sparsewire.has_cuda(), reason="this build has CUDA")
def test_a_build_without_cuda_says_that_it_copies():
    from sparsewire.torch import _device

    gpu = torch.device("cuda", 0)
    assert not _device.can_work_on(gpu)
    assert "copied to the host and back, because this build of sparsewire has no code for cuda:0" in _device.describe(gpu)


# --- the tests themselves: ranks.py ---


@pytest.mark.parametrize(
    ("how", "limit", "said"),
    [
        ("raises", LIMIT, "rank 1: error\nTraceback (.|\n)*LookupError: not here\n"),
        ("ends", LIMIT, "rank 1: ended\n\nit leaves\n"),
        ("waits", patient(0.1), "rank 1: no answer in"),
    ],
    ids=["raises", "ends", "waits"],
)
def test_a_rank_that_fails_ends_the_others_and_says_why(how, limit, said):
    with Ranks(3) as ranks:
        with pytest.raises(AssertionError, match=f"all ranks were ended\n(.|\n)*--- {said}") as caught:
            ranks.ask("one_fails", limit, how=how)
        assert how == "waits" or "rank 0" not in str(caught.value)
        assert ranks._process.returncode is not None
