"""Arrays in and out: types, shapes, order, without a copy."""

import array
import subprocess
import sys

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import sparsewire
from processes import LIMIT

FINITE = st.floats(-1e6, 1e6, width=32)


def sifted(gradient, dim=None, spec="topk:ratio=0.1"):
    return sparsewire.Sifter(spec, gradient.size if dim is None else dim).sift(gradient)


@given(arrays.arrays(numpy.float32, st.integers(0, 70), elements=FINITE))
def test_what_is_sent_and_what_stays_is_the_gradient(gradient):
    sifter = sparsewire.Sifter("topk:ratio=0.1", gradient.size)
    sent = sifter.sift(gradient)
    assert (sent.to_dense() + sifter.memory() == gradient).all()
    assert (numpy.diff(sent.indices.astype(numpy.int64)) > 0).all()
    assert sent.dim == gradient.size


@given(arrays.arrays(numpy.float16, st.integers(1, 70), elements=st.floats(-1000, 1000, width=16)))
def test_float16_gives_what_float32_gives(gradient):
    assert sifted(gradient) == sifted(gradient.astype(numpy.float32))


@given(st.integers(1, 40), st.data())
def test_nan_and_infinity_are_found_where_they_are(size, data):
    gradient = numpy.ones(size, numpy.float32)
    index = data.draw(st.integers(0, size - 1))
    gradient[index] = data.draw(st.sampled_from([numpy.nan, numpy.inf, -numpy.inf]))
    sifter = sparsewire.Sifter("topk:k=1", size, rank=2, ranks=3)
    with pytest.raises(sparsewire.BadGradient) as caught:
        sifter.sift(gradient)
    assert (caught.value.rank, caught.value.step, caught.value.index) == (2, 0, index)
    assert (sifter.memory() == 0).all()
    assert sifter.step == 0


@given(arrays.arrays(numpy.float32, arrays.array_shapes(min_dims=2, max_dims=3), elements=FINITE))
def test_other_orders_are_refused_and_all_shapes_taken(gradient):
    assert sifted(gradient) == sifted(gradient.ravel())
    if not gradient.T.flags.c_contiguous:
        with pytest.raises(ValueError, match="not contiguous"):
            sifted(gradient.T)


@pytest.mark.parametrize("dtype", ["float64", "int32", "uint16", "complex64", "bool", ">f4", "O"])
def test_other_types_are_refused_by_name(dtype):
    with pytest.raises(ValueError, match=r"\[sift\] an array of .*: float32, float16 or bfloat16 is needed"):
        sifted(numpy.zeros(4, dtype))


@pytest.mark.parametrize("wrong", [None, 3, "text", [1.0, 2.0], object()])
def test_what_is_no_array_is_a_type_error(wrong):
    with pytest.raises(TypeError, match=r"\[sift\] takes an array"):
        sparsewire.Sifter("topk:k=1", 2).sift(wrong)


def test_bytes_are_no_numbers():
    with pytest.raises(ValueError, match="is needed"):
        sparsewire.Sifter("topk:k=1", 2).sift(b"12345678")


def test_a_gradient_of_another_size_is_refused():
    with pytest.raises(ValueError, match="3"):
        sifted(numpy.zeros(3, numpy.float32), dim=4)


def test_anything_with_a_buffer_is_read():
    assert sparsewire.Sifter("topk:k=1", 2).sift(array.array("f", [1, 2])).indices.tolist() == [1]


def test_read_only_arrays_are_read_and_not_written():
    gradient = numpy.ones(4, numpy.float32)
    gradient.flags.writeable = False
    worker = sparsewire.Worker(4)
    worker.step(gradient)
    with pytest.raises(ValueError, match="read-only"):
        worker.write_update(gradient)


def test_results_are_read_only_and_outlive_everything():
    sifter = sparsewire.Sifter("topk:k=2", 1000)
    gradient = numpy.arange(1000, dtype=numpy.float32)
    values = sifter.sift(gradient).values
    sifter.sift(gradient)
    del sifter, gradient
    assert values.tolist() == [998, 999]
    with pytest.raises(ValueError):
        values[0] = 1


def test_a_pointer_is_read_and_written():
    gradient = numpy.array([1, 5, 2], numpy.float32)
    pointer = (gradient.ctypes.data, "f32", 3)
    worker = sparsewire.Worker(3, sparsifier="topk:k=1")
    worker.step(pointer)
    worker.write_update(pointer)
    assert gradient.tolist() == [0, 5, 0]
    for wrong in [(0, "f32", 3), (1, "f64", 3)]:
        with pytest.raises(ValueError):
            worker.write_update(wrong)
    with pytest.raises(TypeError):
        worker.write_update((1, 2))


def test_no_reference_is_left_behind():
    gradient = numpy.ones(64, numpy.float32)
    wrong = numpy.ones(64)
    sifter = sparsewire.Sifter("topk:k=2", 64)
    before = sys.getrefcount(gradient), sys.getrefcount(wrong)
    for _ in range(100):
        sifter.sift(gradient)
        with pytest.raises(ValueError):
            sifter.sift(wrong)
    assert (sys.getrefcount(gradient), sys.getrefcount(wrong)) == before


def test_a_worker_keeps_its_gradient_until_the_next_step():
    worker = sparsewire.Worker(8, sparsifier="topk:k=1")
    worker.step(numpy.arange(8, dtype=numpy.float32))  # nobody else refers to it
    worker.take_back_step()
    assert (worker.memory() == 0).all()
    gradient = numpy.ones(8, numpy.float32)
    before = sys.getrefcount(gradient)
    worker.step(gradient)
    assert sys.getrefcount(gradient) == before + 1
    worker.step(numpy.ones(8, numpy.float32))
    assert sys.getrefcount(gradient) == before


def test_a_layout_is_a_number_a_dict_or_pairs():
    for layout in [{"a": 2, "b": 3}, [("a", 2), ("b", 3)], (["a", 2], ["b", numpy.int64(3)])]:
        assert sparsewire.Sifter("dense", layout).layout == [("a", 2), ("b", 3)]
    assert sparsewire.Sifter("dense", numpy.int32(5)).dim == 5
    for wrong in [-1, {"a": -1}, [("a", 1), ("a", 1)], 2**32]:
        with pytest.raises(ValueError):
            sparsewire.Sifter("dense", wrong)
    for wrong in [1.5, "abc", [1, 2], {"a": 1.5}, [("a", 1, 2)], None]:
        with pytest.raises(TypeError):
            sparsewire.Sifter("dense", wrong)


CLASSES = {
    "Sifter": ["step", "dim", "memory", "layout"],
    "Worker": ["dim", "memory", "config", "transport", "layout"],
    "SparseVector": ["values", "indices", "dim", "to_dense", "__len__", "__iter__"],
    "ThreadGroup": ["at"],
    "TcpListener": ["address"],
    "Transport": ["rank", "barrier"],
}


@pytest.mark.parametrize("name", CLASSES)
def test_an_object_that_was_not_made_is_refused(name):
    """It once crashed, so each class has a process of its own."""
    code = f"""
import sparsewire
kind = sparsewire.{name}
class Derived(kind):
    pass
for made in (kind.__new__(kind), Derived.__new__(Derived)):
    for member in {CLASSES[name]}:
        try:
            found = getattr(made, member)
            if callable(found):
                found(*([0] if member == "at" else []))
        except (TypeError, RuntimeError) as error:
            assert "__init__" in str(error) or "non-held" in str(error), error  # ours, or pybind11's
            continue
        raise AssertionError(member)
    for call in (sparsewire.encode, sparsewire.Sifter("topk:k=1", 4).sift, sparsewire.Worker(4).adopt):
        try:
            call([made] if call.__name__ == "adopt" else made)
        except (TypeError, RuntimeError):
            continue
        raise AssertionError(call)
    try:
        sparsewire.Worker(4, transport=made)
    except (TypeError, RuntimeError):
        continue
    raise AssertionError("transport")
"""
    done = subprocess.run([sys.executable, "-c", code], timeout=LIMIT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
