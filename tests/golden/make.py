"""Makes the missing frames of tests/golden/v1/, each with the vector that must be read from it.

    make.py PROGRAM

Existing frames are never replaced: they prove that frames written by older versions can still be read. The expected vector
NAME.json does not come from the library's decoder: this script computes which entries are sent, and compares each value with
the input. Only the codes of int8, int4 and int2 are read from the frame, by tests/wire/decoder.py, and must be the nearest
ones that its scales allow.
"""
import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
from collections import namedtuple
from fractions import Fraction

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "wire"))

import npy  # noqa: E402
from decoder import Refused, bf16, decode, draw, to_f32  # noqa: E402
from encoder import bf16_bits, f16_bits  # noqa: E402

RUN = dict(seed=0x123456789ABCDEF0, step=2**33 + 7, rank=3)  # for Random-k; large enough to use all words of the counter

Case = namedtuple("Case", "name index value sparsifier values chosen block packed")


def codec_spec(case):
    """The codec spec for the program. `full` has no name: `auto` sends a vector with all entries in a full frame."""
    spec = f"{'auto' if case.index == 'full' else case.index}:values={case.value},pack={'yes' if case.packed else 'no'}"
    return spec + f",block={case.block}" if case.value.startswith("int") else spec


# Inputs, without zeros, because some sparsifiers send zeros and others do not.

def gauss(dim, seed, factor=1.0):
    rng = random.Random(seed)
    values = [to_f32(rng.gauss(0, factor)) for _ in range(dim)]
    assert 0.0 not in values
    return values


def in_runs(dim, seed):
    """Large where the index is in certain runs, small elsewhere."""
    return [to_f32(v + (10 if v > 0 else -10)) if i % 29 < 11 and i % 7 != 3 else to_f32(v / 100)
            for i, v in enumerate(gauss(dim, seed))]


def wide(dim, seed):
    """From below the smallest 16-bit numbers to above the largest."""
    rng = random.Random(seed)
    return [to_f32(rng.choice([-1, 1]) * rng.uniform(1, 2) * 2.0**(-140 + 267 * i / (dim - 1))) for i in range(dim)]


def ties(dim):
    """Halfway between two 16-bit numbers: rounding to even goes up for some and down for others."""
    return [to_f32((-1)**i * (1 + (2 * i + 1) * 2.0**-(11 if i % 2 else 8))) for i in range(dim)]


# Which entries are sent, computed naively. Among equals the lower index wins.

def topk(values, k):
    return sorted(sorted(range(len(values)), key=lambda i: (-abs(values[i]), i))[:k])


def above(values, threshold):
    return [i for i, v in enumerate(values) if abs(v) >= threshold]


def cases():
    out = []

    def add(name, index, value, sparsifier, values, chosen, block=16, packed=False):
        out.append(Case(name, index, value, sparsifier, values, chosen, block, packed))

    def add_top(name, index, value, dim, k, seed, block=16, packed=False):
        values = gauss(dim, seed)
        add(name, index, value, f"topk:k={k}", values, topk(values, k), block, packed)

    for number, value in enumerate(["f32", "f16", "bf16", "int8", "int4", "int2"]):
        add_top(f"golomb_{value}", "golomb", value, 1000, 75, number)
        values = gauss(61, 10 + number)
        add(f"full_{value}", "full", value, "dense", values, None)
    for number, value in enumerate(["f32", "int8"]):
        add_top(f"bitmap_{value}", "bitmap", value, 301, 101, 20 + number)
        add_top(f"raw32_{value}", "raw32", value, 5000, 40, 30 + number)
        values = in_runs(500, 40 + number)
        add(f"runs_{value}", "runs", value, "threshold:lambda=5", values, above(values, 5))
    for name, value, dim, k in [("few", "f32", 5000, 60), ("half", "int4", 200, 100), ("most", "f16", 200, 151)]:
        indices = draw(k, dim, RUN["seed"], 0, RUN["rank"], RUN["step"])
        add(f"seed_{name}_{value}", "seed", value, f"randomk:k={k}", gauss(dim, 50 + k), indices)

    for index in ["golomb", "bitmap", "raw32", "runs"]:
        add(f"empty_{index}", index, "f32", "threshold:lambda=1e30", gauss(77, 60), [])
    add("empty_int8", "golomb", "int8", "threshold:lambda=1e30", gauss(77, 60), [])
    for index in ["golomb", "runs", "bitmap"]:
        values = [0.25] * 99 + [2.0]
        add(f"last_{index}", index, "f32", "topk:k=1", values, [99])

    for count in [1023, 1024]:
        add_top(f"golomb_{count}_int2", "golomb", "int2", 6000, count, 70, block=64)
    add_top("golomb_lanes_f32", "golomb", "f32", 9000, 1201, 71)
    add_top("golomb_lanes_int8", "golomb", "int8", 9000, 1302, 72, block=256)
    add_top("golomb_dense_lanes_int4", "golomb", "int4", 1500, 1403, 73, block=65536)
    add_top("golomb_sparse_f32", "golomb", "f32", 60000, 9, 74)

    for value in ["f32", "f16", "bf16"]:
        add(f"wide_{value}", "full", value, "dense", wide(150, 80), None)
        add(f"ties_{value}", "full", value, "dense", ties(100), None)
    for value in ["int8", "int4", "int2"]:
        add(f"wide_{value}", "full", value, "dense", wide(150, 81), None, block=17)

    # Since 0.6.0.
    for count in [32, 33, 1100]:
        add_top(f"adaptive_{count}_int2", "adaptive", "int2", 6000, count, 90, block=64)
    rows = [to_f32(v + (9 if v > 0 else -9)) if i // 100 % 10 == 3 and i % 3 == 0 or i % 211 == 0 else v
            for i, v in enumerate(gauss(20000, 91))]
    add("adaptive_rows_f16", "adaptive", "f16", "threshold:lambda=6", rows, above(rows, 6))
    add("empty_adaptive", "adaptive", "f32", "threshold:lambda=1e30", gauss(77, 60), [])
    add("last_adaptive", "adaptive", "f32", "topk:k=1", [0.25] * 99 + [2.0], [99])
    for number, value in enumerate(["f32", "f16", "bf16", "int8", "int4"]):
        if not value.startswith("int"):  # too few to gain
            add_top(f"packed_{value}", "golomb", value, 3000, 100, 100 + number, block=64, packed=True)
        add_top(f"packed_1100_{value}", "adaptive", value, 9000, 1100, 110 + number, block=256, packed=True)
    add("packed_all_bf16", "full", "bf16", "dense", gauss(300, 120), None, packed=True)  # folded around the middle
    return out


def bits_of(x):
    return struct.unpack("<I", struct.pack("<f", x))[0]


class Wrong(Exception):
    pass


def check(condition, case, what):
    if not condition:
        raise Wrong(f"{case.name}: {what}")


def levels(value, scale):
    """The values of all codes of the block."""
    if value == "int2":
        return [sign * magnitude for sign in (1.0, -1.0) for magnitude in scale]
    most = 127 if value == "int8" else 7
    return [to_f32(float(q) * scale) for q in range(-most, most + 1)]


def expected_values(case, sent, vector):
    if case.value == "f32":
        return sent
    if case.value == "f16":
        return [struct.unpack("<e", struct.pack("<H", f16_bits(v)))[0] for v in sent]
    if case.value == "bf16":
        return [bf16(bf16_bits(v)) for v in sent]
    check(vector.info["block"] == case.block, case, "the block size differs")
    possible = [levels(case.value, scale) for scale in vector.info["scales"]]
    for i, (v, got) in enumerate(zip(sent, vector.values)):
        nearest = min(abs(Fraction(level) - Fraction(v)) for level in possible[i // case.block])
        check(abs(Fraction(got) - Fraction(v)) <= nearest, case, f"value {i} is {got}; of {v} another code is nearer")
    return vector.values


def make(program, case, folder):
    npy.write(folder / "in.npy", "f", case.values)
    command = [program, "compress", folder / "in.npy", "--sparsifier", case.sparsifier,
               "--codec", codec_spec(case), "-o", folder / "out.swf"]
    for name, number in RUN.items():
        command += [f"--{name}", str(number)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    check(done.returncode == 0, case, f"{' '.join(map(str, command[3:]))}: {done.stderr.strip()}")
    data = (folder / "out.swf").read_bytes()

    vector = decode(data)
    for field in ["index", "value"]:
        codec = vector.info[field + "_codec"]
        check(codec == getattr(case, field), case, f"another {field} codec: {codec}")
    check(vector.info["packed"] == case.packed, case, "packed, or not, against the spec")
    check(vector.dim == len(case.values), case, f"dim is {vector.dim}")
    check(vector.indices == case.chosen, case, f"indices are {vector.indices}, not {case.chosen}")
    sent = case.values if case.chosen is None else [case.values[i] for i in case.chosen]
    expected = list(map(bits_of, expected_values(case, sent, vector)))
    got = list(map(bits_of, vector.values))
    check(got == expected, case, f"value bits are {got}, not {expected}")
    check(len(data) <= (6000 if "lanes" in case.name else 4096), case, f"{len(data)} bytes are too many to keep")
    return data, json.dumps({"dim": vector.dim, "indices": case.chosen, "value_bits": expected}, separators=(",", ":")) + "\n"


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    out = HERE / "v1"
    out.mkdir(exist_ok=True)
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for case in cases():
            if (out / f"{case.name}.swf").exists():
                continue
            try:
                data, expected = make(sys.argv[1], case, pathlib.Path(folder))
            except (Wrong, Refused) as error:  # this frame is not written; continue with the others
                print(error, file=sys.stderr)
                wrong += 1
                continue
            (out / f"{case.name}.json").write_text(expected)
            (out / f"{case.name}.swf").write_bytes(data)
            print(f"{case.name}: {len(data)} bytes")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
