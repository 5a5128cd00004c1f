"""The hook with gradients on a GPU: the bits of the processor. Real processes on gloo, which share one GPU."""

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import sparsewire  # noqa: E402
from ranks import Ranks, run  # noqa: E402

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
on_device = pytest.mark.skipif(not sparsewire.has_cuda(), reason="this build has no CUDA")

TOPK = {"sparsifier": "topk:ratio=0.05"}
BOTH = {**TOPK, "downlink": "topk:ratio=0.05", "codec": "golomb:values=bf16"}
UNUSED = {"ddp": {"find_unused_parameters": True}, "unused": {"1": ["third"], "2": ["third", "last"], "4": ["bias"]}}

CASES = {
    "topk": TOPK,
    "both directions": BOTH,
    "allgather": {**TOPK, "exchange": "allgather"},
    "server": {**BOTH, "exchange": "server"},
    "layers": {**TOPK, "scope": "layer"},
    "chunks": {"sparsifier": "topk:k=3,chunk=64"},
    "rtopk": {"sparsifier": "rtopk:ratio=0.05"},
    "randomk": {"sparsifier": "randomk:ratio=0.05"},
    "threshold": {"sparsifier": "threshold:ratio=0.05"},
    "regtopk": {"sparsifier": "regtopk:ratio=0.05", "steps": 8},
    "momentum": {**TOPK, "feedback": "momentum:m=0.9,clip=1"},
    "decay": {**TOPK, "feedback": "ef:decay=0.9"},
    "no feedback": {**TOPK, "feedback": "none"},
    "bfloat16": {**BOTH, "dtype": "bfloat16"},
    "float16": {**TOPK, "dtype": "float16"},
    "int8": {**TOPK, "codec": "golomb:values=int8"},
    "dense start": {**BOTH, "start_step": 2},
    "dense": {"sparsifier": "dense", "exchange": "dense", "feedback": "none"},
    "excluded in the middle": {**BOTH, "exclude": ["second", "bias"]},
    "excluded at the ends": {**BOTH, "exclude": ["first", "last"]},
    "small ones densely": {**BOTH, "min_compress_size": 100},
    "all densely": {**TOPK, "min_compress_size": 100000},
    "bucket views": {**BOTH, "ddp": {"gradient_as_bucket_view": True}},
    "static graph": {**BOTH, "ddp": {"static_graph": True}},
    "unused": {**TOPK, **UNUSED},
    "unused and excluded": {**BOTH, **UNUSED, "exclude": ["first"]},
    "infinity in the first bucket": {**BOTH, "scaler": 3, "bad": {"2": "last"}, "steps": 6},
    "infinity in the last bucket": {**BOTH, "scaler": 3, "bad": {"1": "first", "3": "first"}, "steps": 6},
    "a scaler and nothing bad": {**BOTH, "scaler": 8},
}


@on_device
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("ranks", [1, 3])
def test_gives_the_bits_of_the_processor(ranks, name):
    assert run(ranks, "cuda_as_host", cases={name: dict(CASES[name])}) == [{}] * ranks


@on_device
@pytest.mark.parametrize("name", ["topk", "both directions", "regtopk", "momentum", "dense start", "bfloat16"])
def test_saves_on_one_device_and_goes_on_on_the_other(tmp_path, name):
    options = {key: value for key, value in CASES[name].items() if key != "steps"}
    assert run(2, "cuda_saved", folder=str(tmp_path), options=options) == [[]] * 2


@on_device
def test_other_options_keep_the_memory():
    assert run(2, "cuda_retuned") == [[]] * 2


@on_device
def test_a_sparsifier_in_python():
    assert run(2, "cuda_own_sparsifier") == [{}] * 2


@on_device
def test_a_saved_state_is_on_the_host():
    assert run(2, "cuda_pickled") == [["cpu"]] * 2


@on_device
def test_a_stream_of_the_user():
    assert run(2, "cuda_streams", steps=10) == [[]] * 2


@on_device
@pytest.mark.parametrize("ranks", [1, 2])
def test_what_ends_a_training_is_raised_by_backward(ranks):
    with Ranks(ranks) as own:  # they cannot be used again
        for first, second, kind in own.ask("cuda_failed"):
            assert "sparsewire on rank" in first and "not finite at index 3 of parameter second in step 2" in first, first
            assert "sparsewire on rank" in second, second
            assert kind == "BadGradient"


@on_device
def test_two_hooks_on_one_gpu():
    assert run(2, "cuda_two_models") == [[]] * 2


def test_a_build_without_cuda_copies_buckets_and_says_so():
    for wrong, said, copies in run(2, "cuda_copied", options=BOTH):
        assert (wrong, copies) == ([], True)
        assert said.startswith("host: buckets of a GPU are copied to the host and back, because this build")


def test_trains_on_a_gpu():
    results = run(2, "cuda_trained", steps=20)
    assert results[0] == results[1], results
    where = "cuda:0" if sparsewire.has_cuda() else "host: buckets"
    assert results[0]["plain on"].startswith(where) and results[0]["scaled on"].startswith(where)


@on_device
def test_nccl_with_one_rank():
    import torch.distributed as dist

    import sparsewire.torch as sw

    store = dist.TCPStore("127.0.0.1", 0, 1, is_master=True)
    dist.init_process_group("nccl", store=store, rank=0, world_size=1)
    try:
        torch.cuda.set_device(0)
        net = torch.nn.Linear(50, 40, bias=False).cuda()
        model = torch.nn.parallel.DistributedDataParallel(net, device_ids=[0])
        state = sw.register(model, **BOTH)
        sifter = sparsewire.Sifter("topk:ratio=0.05", 2000)
        for step in range(3):
            model.zero_grad()
            x = torch.full((1, 50), 2.0**-step).cumsum(1).cuda()
            (model(x) * torch.arange(40, device="cuda")).sum().backward()
            sent = sifter.sift((torch.arange(40.0)[:, None] * x.cpu()).contiguous())
            assert torch.count_nonzero(net.weight.grad) == len(sent) == 100
        assert state.stats()["device"].startswith("cuda:0")
        state.close()
    finally:
        dist.destroy_process_group()


LOCAL = {
    "plain": {},
    "f32": {"codec": "auto:values=f32"},
    "downlink": {"exchange": "sharded", "downlink": "topk:ratio=0.2"},
    "rtopk": {"sparsifier": "rtopk:ratio=0.1,r=2"},
    "threshold": {"sparsifier": "threshold:ratio=0.1"},
    "diloco": {"sparsifier": "dense", "codec": "auto", "exchange": "dense", "outer_lr": 0.7, "outer_momentum": 0.9},
    "nesterov": {"outer_lr": 0.7, "outer_momentum": 0.9},
    "fragments": {"fragments": 2},
    "delay": {"fragments": 2, "delay": 1},
    "mix": {"delay": 3, "mix": 0.25},
    "bfloat16": {"dtype": "bfloat16"},
    "bfloat16 with delay": {"dtype": "bfloat16", "delay": 2},
    "float16": {"dtype": "float16"},
    "on the host": {"memory": "host", "delay": 1},
}


@pytest.mark.parametrize("name", LOCAL)
def test_local_steps_give_the_bits_of_the_processor(name):
    assert run(2, "local_steps_as_host", devices=["cpu", "cuda"], cases={name: dict(LOCAL[name])}) == [{}] * 2
