"""Frames: round trips, hostile bytes, and the program's own."""

import json
import pickle
import subprocess

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sparsewire
from processes import LIMIT

CODECS = [choice.name for choice in sparsewire.codecs() if choice.name != "seed"]


@st.composite
def vectors(draw):
    dim = draw(st.integers(0, 300))
    indices = sorted(draw(st.sets(st.integers(0, dim - 1)))) if dim else []
    values = draw(st.lists(st.floats(-1e6, 1e6, width=32), min_size=len(indices), max_size=len(indices)))
    return sparsewire.SparseVector(indices, values, dim)


@given(vectors(), st.sampled_from(CODECS))
def test_what_is_encoded_is_decoded(vector, codec):
    frame = sparsewire.encode(vector, codec)
    assert sparsewire.encode(*vector, codec) == frame or vector.is_full
    indices, values, dim = sparsewire.decode(frame)
    assert numpy.array_equal(indices, vector.indices)
    assert values.tobytes() == vector.values.tobytes()
    assert dim == vector.dim
    assert sparsewire.inspect(frame)["count"] == len(vector)


@given(st.binary(max_size=200))
def test_any_bytes_give_a_vector_or_a_value_error(noise):
    try:
        sparsewire.decode(noise)
    except ValueError as error:
        assert isinstance(error, sparsewire.FormatError)


@given(vectors(), st.data())
def test_a_damaged_frame_is_a_value_error(vector, data):
    frame = bytearray(sparsewire.encode(vector))
    place = data.draw(st.integers(0, len(frame) - 1))
    frame[place] ^= data.draw(st.integers(1, 255))
    for broken in [frame, frame[:place]]:
        with pytest.raises(sparsewire.FormatError):
            sparsewire.decode(broken)


def test_a_frame_comes_in_any_buffer():
    frame = sparsewire.encode([1], [2.0], 3)
    for same in [bytearray(frame), memoryview(frame), numpy.frombuffer(frame, numpy.uint8)]:
        assert sparsewire.decode(same).values.tolist() == [2]
    with pytest.raises(TypeError):
        sparsewire.decode("text")


@pytest.mark.parametrize(
    ("indices", "values", "dim"),
    [([1, 1], [1, 2], 3), ([2, 1], [1, 2], 3), ([3], [1], 3), ([-1], [1], 3), ([1], [1, 2], 3), ([1.5], [1], 3)]
    + [([2**32], [1], 3), ([[1]], [1], 3), ([1], ["a"], 3), ([1], [numpy.nan], 3), ([True], [1], 3)],
)
def test_wrong_entries_are_value_errors(indices, values, dim):
    with pytest.raises(ValueError):
        sparsewire.encode(indices, values, dim)


def test_unknown_codecs_and_keys_are_named():
    with pytest.raises(sparsewire.UsageError, match="golomp"):
        sparsewire.encode([1], [1], 2, "golomp")


def test_a_drawn_vector_needs_no_indices():
    sent = sparsewire.Sifter("randomk:k=100", 10_000, seed=5).sift(numpy.ones(10_000, numpy.float32))
    frame = sparsewire.encode(sent, "seed")
    assert sparsewire.decode(frame) == sent
    assert sparsewire.inspect(frame)["index_bytes"] < 50
    with pytest.raises(ValueError, match="seed"):
        sparsewire.encode(*sent, "seed")


def test_errors_can_be_pickled():
    for error in [sparsewire.BadGradient("bad", 1, 2, 3), sparsewire.TransportError("lost", 4)]:
        copy = pickle.loads(pickle.dumps(error))
        assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))


def test_the_program_writes_the_same_frame(program, random, tmp_path):
    gradient = random.standard_normal(5000).astype(numpy.float32)
    numpy.save(tmp_path / "gradient.npy", gradient)
    command = [program, "compress", "gradient.npy", "-o", "frame", "--sparsifier", "topk:ratio=0.03", "--codec"]
    subprocess.run([*command, "golomb:values=bf16"], cwd=tmp_path, check=True, timeout=LIMIT, capture_output=True)
    sent = sparsewire.Sifter("topk:ratio=0.03", 5000).sift(gradient)
    assert (tmp_path / "frame").read_bytes() == sparsewire.encode(sent, "golomb:values=bf16")


def test_the_program_has_the_version_of_the_package(program):
    output = subprocess.run([program, "--version"], check=True, timeout=LIMIT, capture_output=True, text=True).stdout
    assert sparsewire.__version__ in output
    listed = subprocess.run([program, "list", "--json", "-"], timeout=LIMIT, capture_output=True, text=True)
    if listed.returncode == 0 and listed.stdout.startswith("{"):
        names = [row["name"] for row in json.loads(listed.stdout)["sparsifiers"]]
        assert names == [choice.name for choice in sparsewire.sparsifiers()]
