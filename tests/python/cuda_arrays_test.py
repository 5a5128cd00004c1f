"""Arrays on a GPU, of torch and CuPy: read and written where they are, on the stream of their owner."""

import gc
import sys

import numpy
import pytest

import sparsewire

torch = pytest.importorskip("torch", reason="torch is not installed")

on_device = pytest.mark.skipif(
    not (torch.cuda.is_available() and sparsewire.has_cuda()), reason="there is no CUDA device, or no code for it"
)
SPECS = ["topk:ratio=0.01", "topk:k=2,chunk=64", "rtopk:ratio=0.01", "randomk:ratio=0.01", "threshold:ratio=0.01",
         "regtopk:ratio=0.01"]  # fmt: skip


class Interface:
    """What hands out an array by __cuda_array_interface__; `changes` lie about it."""

    def __init__(self, address=16, shape=(4,), **changes):
        self.__cuda_array_interface__ = {
            "shape": shape,
            "typestr": "<f4",
            "data": (address, False),
            "version": 3,
            "strides": None,
            "stream": 1,
            **changes,
        }


class Owner:
    """A tensor of a framework that is not torch: it is told the stream on which it will be used."""

    def __init__(self, tensor):
        self.tensor, self.streams = tensor, []

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()

    def __dlpack__(self, stream=None, max_version=None):
        self.streams.append(stream)
        return self.tensor.__dlpack__(stream=stream)


# --- on every machine ---


def refused(array, size=4):
    with pytest.raises(sparsewire.UsageError) as raised:
        sparsewire.Sifter("topk:k=1", size).sift(array)
    return str(raised.value)


class Buffer(bytearray):
    """As an array of CuPy: it has the buffer protocol, too, which then refuses."""

    __cuda_array_interface__ = Interface(typestr="<f8").__cuda_array_interface__


def test_an_array_on_a_gpu_that_has_a_buffer_is_not_taken_for_one_of_the_host():
    assert "__cuda_array_interface__: an array of <f8" in refused(Buffer(32), 32)


def test_what_is_no_array_of_floats_in_c_order_is_refused():
    assert "[sift] __cuda_array_interface__: an array of <f8: float32 or float16" in refused(Interface(typestr="<f8"))
    assert "bfloat16 comes by __dlpack__" in refused(Interface(typestr="<V2"))
    assert "not contiguous (C order): pass cupy.ascontiguousarray(...)" in refused(Interface(strides=(8,)))
    assert "not contiguous" in refused(Interface(shape=(2, 2), strides=(4, 8)))
    assert "mask" in refused(Interface(mask=object()))
    assert "stream 0 is ambiguous" in refused(Interface(stream=0))
    with pytest.raises(sparsewire.UsageError, match="read-only"):
        sparsewire.Worker(4).write_update(Interface(data=(16, True)))


@pytest.mark.skipif(sparsewire.has_cuda(), reason="this build has CUDA")
def test_a_build_without_cuda_says_what_to_do():
    class OnGpu:
        def __dlpack_device__(self):
            return (2, 0)

        def __dlpack__(self, **kwargs):
            raise AssertionError

    for array in (Interface(), Interface(strides=(4,)), OnGpu(), (16, "f32", 4, 0, 0)):
        said = refused(array)
        assert "[sift] the array is on a GPU, and this build has no code for GPUs: copy it to the host" in said
        assert "-DSPARSEWIRE_CUDA=ON" in said
    with pytest.raises(sparsewire.UsageError, match="SPARSEWIRE_CUDA=ON"):
        sparsewire.Sifter("topk:k=1", 4, device="cuda")


@pytest.mark.skipif(not sparsewire.has_cuda(), reason="this build has no CUDA")
def test_an_address_that_is_not_on_a_gpu_is_refused():
    numbers = numpy.zeros(4, numpy.float32)
    assert "not in the memory of a GPU" in refused(Interface(numbers.ctypes.data))


def test_other_devices_are_refused():
    class OnAnother:
        device = "rocm:0"

        def __dlpack_device__(self):
            return (10, 0)

        def __dlpack__(self, **kwargs):
            raise AssertionError

    assert "the tensor is on rocm:0: it must be on the CPU or on a CUDA device" in refused(OnAnother())
    with pytest.raises(sparsewire.UsageError, match=r"\[device\] 'gpu' is not one of cpu, cuda, cuda:0"):
        sparsewire.Sifter("topk:k=1", 4, device="gpu")
    with pytest.raises(TypeError, match="index of the GPU"):
        sparsewire.Sifter("topk:k=1", 4).sift((16, "f32", 4, 0))


def test_the_memory_begins_on_the_host():
    sifter = sparsewire.Sifter("topk:k=1", 4)
    assert sifter.device == "cpu"
    sifter.move_to("cpu")


# --- on a GPU ---


def tensors(seed, dtype=torch.float32, size=20_000):
    """The same numbers on the host and on the GPU."""
    here = torch.randn(size, generator=torch.Generator().manual_seed(seed)).to(dtype)
    return here, here.cuda()


def same(one, other):
    return one.indices.tobytes() == other.indices.tobytes() and one.values.tobytes() == other.values.tobytes()


@on_device
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("spec", SPECS)
def test_tensors_of_torch_give_the_bits_of_the_processor(spec, dtype):
    sifters = [sparsewire.Sifter(spec, 20_000, seed=5) for _ in range(2)]
    for step in range(6):
        here, there = tensors(step, dtype)
        sent = [sifter.sift(array) for sifter, array in zip(sifters, (here, there))]
        assert same(*sent)
    assert [sifter.device for sifter in sifters] == ["cpu", "cuda:0"]
    assert sifters[0].memory().tobytes() == sifters[1].memory().tobytes()
    for sifter, one, array in zip(sifters, sent, (here, there)):
        sifter.undo(array, one)
    assert sifters[0].memory().tobytes() == sifters[1].memory().tobytes()
    assert sifters[0].save() == sifters[1].save()


@on_device
def test_a_state_moves_between_devices():
    whole = sparsewire.Sifter("topk:ratio=0.01", 20_000)
    sifter = sparsewire.Sifter("topk:ratio=0.01", 20_000, device="cuda:0")
    assert sifter.device == "cuda:0"
    for step in range(6):
        here, there = tensors(step)
        if step % 2 == 0:
            moved = sparsewire.Sifter("topk:ratio=0.01", 20_000)
            moved.load(sifter.save())
            sifter = moved
        if step == 3:
            sifter.move_to("cuda:0")
        assert same(whole.sift(here), sifter.sift(there if step % 3 == 0 else here))
        assert sifter.device == ("cuda:0" if step % 3 == 0 else "cpu")
    assert sifter.memory().tobytes() == whole.memory().tobytes()


@on_device
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_updates_are_written_and_applied_on_the_gpu(dtype):
    workers = [sparsewire.Worker(20_000, sparsifier="topk:ratio=0.01", downlink="topk:ratio=0.01") for _ in range(2)]
    weights = tensors(9, dtype)
    for step in range(3):
        arrays = tensors(step, dtype)
        for worker, array, weight in zip(workers, arrays, weights):
            worker.step(array)
            worker.write_update(array, 2.0)
            worker.apply_update(weight, 0.1)
        assert torch.equal(arrays[0].view(torch.uint8), arrays[1].cpu().view(torch.uint8))
        assert torch.equal(weights[0].view(torch.uint8), weights[1].cpu().view(torch.uint8))
    assert workers[0].memory().tobytes() == workers[1].memory().tobytes()


@on_device
def test_work_is_done_in_the_order_of_the_current_stream():
    sifters = [sparsewire.Sifter("topk:ratio=0.01", 20_000) for _ in range(2)]
    worker = sparsewire.Worker(20_000, sparsifier="topk:ratio=0.01")
    ballast = torch.randn(3000, 3000, device="cuda")
    out = torch.zeros(20_000, device="cuda")
    torch.cuda.synchronize()
    for step in range(10):
        here, late = tensors(step)
        there = torch.zeros_like(late)
        torch.cuda.synchronize()
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(3):
                ballast = (ballast @ ballast).clamp_(-1, 1)
            there.copy_(late)
            sent = sifters[1].sift(there)
            worker.step(there)
            worker.write_update(out)
            total = out.count_nonzero()
            torch.cuda.current_stream().synchronize()
        assert same(sifters[0].sift(here), sent)
        assert total.item() == len(worker.update())


@on_device
def test_another_owner_is_told_the_stream_and_its_array_is_waited_for():
    here, there = tensors(1)
    owner = Owner(there)
    worker, other = (sparsewire.Worker(20_000, sparsifier="topk:ratio=0.01") for _ in range(2))
    worker.step(owner)
    other.step(here)
    worker.write_update(owner)
    other.write_update(here)
    assert owner.streams == [1, 1]
    assert torch.equal(here, there.cpu())


@on_device
def test_an_interface_without_a_stream():
    here, there = tensors(1)
    for changes in ({"stream": None}, {"version": 2}, {"strides": (4,)}, {"stream": 2}):
        array = Interface(there.data_ptr(), (20_000,), **changes)
        if changes.get("version") == 2:
            del array.__cuda_array_interface__["stream"]
        torch.cuda.synchronize()
        sent = sparsewire.Sifter("topk:ratio=0.01", 20_000).sift(array)
        assert same(sent, sparsewire.Sifter("topk:ratio=0.01", 20_000).sift(here))


@on_device
def test_a_pointer_with_device_and_stream():
    here, there = tensors(1, torch.bfloat16)
    stream = torch.cuda.current_stream().cuda_stream
    sent = sparsewire.Sifter("topk:ratio=0.01", 20_000).sift((there.data_ptr(), "bf16", 20_000, 0, stream))
    assert same(sent, sparsewire.Sifter("topk:ratio=0.01", 20_000).sift(here))


@on_device
def test_what_does_not_fit_on_the_gpu_is_refused_too():
    grid = torch.zeros(3, 4, device="cuda")
    assert "torch.float64" in refused(torch.zeros(4, device="cuda", dtype=torch.float64))
    assert "not contiguous (C order): pass tensor.contiguous()" in refused(grid[:, 1], 3)
    assert "2" in refused(grid[0, :2])
    with pytest.raises(BufferError, match="detach"):
        sparsewire.Sifter("topk:k=1", 4).sift(torch.zeros(4, device="cuda", requires_grad=True))
    with pytest.raises(sparsewire.UsageError, match="it must be on the CPU"):
        sparsewire.ThreadGroup(1).at(0).all_reduce_sum(grid)
    sifter = sparsewire.Sifter("topk:k=1", 4)
    with pytest.raises(sparsewire.UsageError, match="must be on the host"):
        sifter.write_memory(None, grid[0])
    with pytest.raises(sparsewire.BadGradient, match="index 2"):
        sifter.sift(torch.tensor([1, 2, float("nan"), 4], device="cuda"))
    assert sifter.sift(torch.tensor([1.0, 2, 3, 4], device="cuda")).indices.tolist() == [3]


@on_device
def test_no_tensor_is_left_behind_on_the_gpu():
    sifter = sparsewire.Sifter("topk:k=1", 1 << 20)
    tensor = torch.ones(1 << 20, device="cuda")
    sifter.sift(tensor)
    gc.collect()
    before = torch.cuda.memory_allocated()
    for _ in range(20):
        sifter.sift(torch.ones(1 << 20, device="cuda"))
        sifter.sift(Owner(tensor))
    gc.collect()
    assert torch.cuda.memory_allocated() <= before
    assert sys.getrefcount(tensor) == 2


@on_device
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_arrays_of_cupy(dtype):
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    here = numpy.random.default_rng(3).standard_normal((100, 200)).astype(dtype)
    workers = [sparsewire.Worker(20_000, sparsifier="topk:ratio=0.01") for _ in range(2)]
    for stream in (cupy.cuda.Stream.null, cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream.ptds):
        with stream:
            there = cupy.asarray(here) + cupy.zeros(1, dtype)
            workers[0].step(here)
            workers[1].step(there)
            weights = numpy.ones(20_000, dtype), cupy.ones(20_000, dtype)
            for worker, weight in zip(workers, weights):
                worker.apply_update(weight, 0.5)
            assert workers[0].update() == workers[1].update()
            assert cupy.asnumpy(weights[1]).tobytes() == weights[0].tobytes()
    assert workers[0].memory().tobytes() == workers[1].memory().tobytes()
    assert "pass cupy.ascontiguousarray(...)" in refused(cupy.zeros((4, 2), dtype)[:, 1])
    assert "<f8" in refused(cupy.zeros(4))
    count = sys.getrefcount(there)
    sparsewire.Sifter("topk:k=1", 20_000).sift(there)
    assert sys.getrefcount(there) == count
