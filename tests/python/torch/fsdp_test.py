"""The hook in FSDP2, on real gloo processes: two replicas of two shards each."""

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
fsdp = pytest.importorskip("torch.distributed.fsdp")
if not hasattr(getattr(fsdp, "FSDPModule", None), "set_all_reduce_hook"):
    pytest.skip("FSDP2 with set_all_reduce_hook needs torch 2.7 or later", allow_module_level=True)

import sparsewire  # noqa: E402

import ranks  # noqa: E402

BODIES = Path(__file__).parent / "fsdp_bodies.py"


def run(body, **arguments):
    return ranks.run(4, body, bodies=BODIES, **arguments)


def test_dense_gives_the_weights_of_ddp():
    """It would not if gloo's reduce_scatter summed, as it once did."""
    for difference, largest, moved, steps in run("dense", steps=20):
        assert moved > 0.01
        assert difference <= 1e-6 * largest
        assert steps == 20


@pytest.mark.parametrize(
    ("options", "reduce_dtype"),
    [
        ({"sparsifier": "topk:ratio=0.1", "downlink": "topk:ratio=0.1", "codec": "golomb:values=bf16"}, None),
        ({"sparsifier": "regtopk:ratio=0.1", "exchange": "allgather", "start_step": 3, "min_compress_size": 60}, None),
        ({"sparsifier": "topk:ratio=0.1"}, "bfloat16"),
    ],
    ids=["downlink", "small ones densely", "bfloat16"],
)
def test_replicas_stay_identical(options, reduce_dtype):
    for identical, moved, steps, density in run("replicas", steps=30, options=options, reduce_dtype=reduce_dtype):
        assert identical and moved and steps == 30
        assert density < 0.6


def test_gradients_can_be_accumulated():
    assert run("accumulation") == [[True, 4]] * 4


@pytest.mark.parametrize("sparsifier", ["topk:ratio=0.1", "regtopk:ratio=0.1"])
def test_resumes_bit_for_bit(sparsifier):
    for resumed, without_memory in run("resume", steps=10, options={"sparsifier": sparsifier}):
        assert resumed and not without_memory


def test_what_cannot_work_is_refused():
    expected = {
        "two dimensions": "mesh=mesh['shard']",
        "no group": "replicate_group=",
        "exclude": "exclude= is not supported",
        "wrong group": "shards",
        "twice": "hook already",
        "another model": "the state is of another model: it differs in 0, 2, first",
    }
    ranks.assert_said(run("refusals"), expected)


def test_a_rank_that_cannot_register_is_named():
    """Ranks are numbered within the replicate group."""
    said = run("half_registered")
    assert said[0] == said[2] == "no error"
    assert said[1].startswith("UsageError: [topk] ratio=7")
    assert said[3].startswith("RankFailed: [torch] rank 0 could not begin: UsageError: [topk] ratio=7")


@pytest.mark.parametrize("what", ["module", "parameter"])
def test_missing_gradients_are_refused(what):
    for message, kind in run("missing", what=what):
        assert "every parameter needs a gradient" in message, message
        assert kind in ("UsageError", "TransportError")


SPARSE = {"sparsifier": "topk:ratio=0.1", "downlink": "topk:ratio=0.1", "codec": "golomb:values=bf16", "start_step": 1}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@pytest.mark.parametrize(("size", "backend"), [(1, "nccl"), (2, "gloo")])  # NCCL cannot connect two that share a GPU
def test_a_gpu_gives_the_bits_of_the_processor(size, backend, monkeypatch):
    monkeypatch.setenv("SPARSEWIRE_TEST_BACKEND", f"cpu:gloo,cuda:{backend}")
    with ranks.Ranks(size, BODIES) as own:
        for differing, compared, said in own.ask("on_gpu", devices=["cpu", "cuda"], options=SPARSE, steps=5):
            assert (differing, compared, said[0]) == ([], 11, "host")
            assert said[1].startswith("cuda:0" if sparsewire.has_cuda() else "host: buckets")
