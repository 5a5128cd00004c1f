"""Tensors of torch, through DLPack."""

import numpy
import pytest

import sparsewire

torch = pytest.importorskip("torch", reason="torch is not installed")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_tensors_are_read_and_written_in_place(dtype):
    gradient = torch.tensor([1, -5, 2, 0], dtype=dtype)
    worker = sparsewire.Worker(4, sparsifier="topk:k=1")
    worker.step(gradient)
    assert worker.update().values.tolist() == [-5]
    worker.write_update(gradient, 2)
    assert gradient.tolist() == [0, -10, 0, 0]
    weights = torch.zeros(4, dtype=dtype)
    worker.apply_update(weights, 0.5)
    assert weights.tolist() == [0, 2.5, 0, 0]


def test_a_part_of_a_tensor_is_read_where_it_lies():
    gradient = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    sent = sparsewire.Sifter("topk:k=1", 4).sift(gradient[1])
    assert sent.values.tolist() == [7]
    with pytest.raises(ValueError, match="not contiguous"):
        sparsewire.Sifter("topk:k=1", 3).sift(gradient[:, 1])


def test_other_types_and_devices_are_refused():
    sifter = sparsewire.Sifter("topk:k=1", 4)
    with pytest.raises(ValueError, match="torch.float64"):
        sifter.sift(torch.zeros(4, dtype=torch.float64))
    with pytest.raises((ValueError, BufferError)):
        sifter.sift(torch.zeros(4, device="meta"))
    with pytest.raises(BufferError, match="detach"):
        sifter.sift(torch.zeros(4, requires_grad=True))


def test_the_old_and_the_new_form_of_dlpack_are_read():
    class Old:
        def __init__(self, tensor):
            self.tensor = tensor

        def __dlpack_device__(self):
            return self.tensor.__dlpack_device__()

        def __dlpack__(self):
            return self.tensor.__dlpack__()

    class Frozen:
        def __init__(self, frozen):
            self.frozen = frozen

        def __dlpack__(self, max_version=None):
            return self.frozen.__dlpack__(max_version=max_version)

    worker = sparsewire.Worker(2, sparsifier="topk:k=1")
    worker.step(Old(torch.tensor([1.0, 3.0])))
    assert worker.update().indices.tolist() == [1]
    frozen = numpy.array([1, 3], numpy.float32)
    frozen.flags.writeable = False
    worker.step(Frozen(frozen))
    with pytest.raises(ValueError, match="read-only"):
        worker.write_update(Frozen(frozen))


def test_no_tensor_is_left_behind():
    released = []

    class Watched:
        def __init__(self):
            self.tensor = torch.zeros(4)

        def __dlpack__(self, **kwargs):
            return self.tensor.__dlpack__(**kwargs)

        def __del__(self):
            released.append(1)

    sifter = sparsewire.Sifter("topk:k=1", 4)
    storage = torch.zeros(4)
    for _ in range(50):
        sifter.sift(storage)
        sifter.sift(Watched())
    assert len(released) == 50
    import sys

    assert sys.getrefcount(storage) == 2
