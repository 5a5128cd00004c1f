"""Frames for the tests: valid ones with their contents, broken ones with the reason, and mutants of the valid ones."""
import ctypes
import random
import struct
from collections import namedtuple
from fractions import Fraction

from decoder import PACKED_CODECS, VALUE_CODECS, bf16
from encoder import (adaptive_section, bitmap_section, coded_values, draw_indices, encode, frame, golomb_bits,
                     golomb_section, number_bits, numbers_section, pack_bits, packed_section, parameter_bits, raw32_section,
                     runs_section, seed_section, unary_bits, value_section, with_checksum)

LAST = 2**32 - 2  # the largest possible index

Whole = namedtuple("Whole", "name data dim indices bits")
Broken = namedtuple("Broken", "name reason data")


def f32_bits(values):
    return [struct.unpack("<I", struct.pack("<f", value))[0] for value in values]


def some_values(random_, count):
    return [struct.unpack("<f", struct.pack("<f", random_.gauss(0, 1)))[0] for _ in range(count)]


def whole_frames():
    rng = random.Random(1)
    frames = []

    def add(name, dim, indices, **choices):
        values = some_values(rng, dim if indices is None else len(indices))
        frames.append(Whole(name, encode(dim, indices, values, **choices), dim, indices, f32_bits(values)))

    def choose(count, dim):
        return sorted(rng.sample(range(dim), count))

    # Vectors without entries, for all codecs that can encode them; and vectors of dim 0.
    for dim in [0, 1, 9, 2**32 - 1]:
        for index in ["golomb", "raw32", "runs", "seed", "adaptive"] + (["bitmap"] if dim < 10 else []) + (["full"] if dim == 0 else []):
            add(f"empty, {index}, dim {dim}", dim, None if index == "full" else [], index=index)
    for value in VALUE_CODECS:
        add(f"empty, {value}", 5, [], value=value)

    # One entry, at the start and at the end.
    for dim in [1, 2, 8, 1000]:
        for at in {0, dim - 1}:
            for index in ["golomb", "bitmap", "raw32", "runs", "adaptive"]:
                add(f"one at {at} of {dim}, {index}", dim, [at], index=index, M=3, M_gap=5, M_length=4)
    for m in [2**22 + 1, 2**31 - 1, 2**31, 2**31 + 1, 2**32 - 2, 2**32 - 1]:
        add(f"one at the last index, golomb, M {m}", LAST + 1, [LAST], M=m)
        add(f"first and last index, golomb, M {m}", LAST + 1, [0, LAST], M=m)
        add(f"one at the last index, runs, M {m}", LAST + 1, [LAST], index="runs", M_gap=m, M_length=m)
    add("first and last index, raw32", LAST + 1, [0, LAST], index="raw32")

    # Small divisors, which give long quotients, and the powers of two with their neighbours.
    for m in range(1, 71):
        add(f"golomb, M {m}", 700, choose(40, 700), M=m)
    for power in [7, 8, 12, 16, 24, 30, 31]:
        for m in [2**power - 1, 2**power, 2**power + 1]:
            add(f"golomb, M {m}", 5000, choose(30, 5000), M=m)
    # Counts around the one from which there are four streams.
    for count in [1023, 1024, 1025, 1026, 1027]:
        for m in [1, 2, 3, 8, 2**32 - 1]:
            add(f"golomb, {count} entries, M {m}", 4000, choose(count, 4000), M=m)
    add("golomb, no gaps, M 1", 1024, list(range(1024)), M=1)
    add("golomb, one stream far longer than the others", 6000, list(range(1027)) + [5999], M=1)

    # Numbers in blocks: counts around a block, and around what the library reads at a time; all sizes of classes.
    steady = (2,) * 7 + (3,) * 9  # a group that changes in its last block, and groups that do not
    for count in [1, 31, 32, 33, 64, 127, 128, 129, 1024, 1025]:
        for linear, parameters in [(0, (0,)), (3, (1, 2)), (63, (0, 5, 1)), (63, steady), (1, steady)]:
            add(f"adaptive, {count} entries, linear {linear}, parameters {parameters}", 4000, choose(count, 4000), index="adaptive", linear=linear,
                parameters=parameters)
    section = numbers_section([1] * 300, 63, (2,), shorten=False)
    frames.append(Whole("adaptive, groups without a change in full",
                        frame(600, 300, struct.pack("<300f", *[1.0] * 300), section, "adaptive"), 600,
                        list(range(1, 600, 2)), f32_bits([1.0] * 300)))
    for p in range(32):
        linear = [0, 1, 7, 63][p % 4]
        add(f"adaptive, parameter {p}, linear {linear}", 2000, choose(40, 2000), index="adaptive", linear=linear,
            parameters=(p, 31 - p))
    for linear in [0, 1, 2, 3, 5, 8, 31, 62, 63]:
        gaps = [0, 1, linear, linear + 1, linear + 2, linear + 3, 2 * linear + 7, 300]
        indices = [sum(gaps[:i + 1]) + i for i in range(len(gaps))]
        add(f"adaptive, linear {linear}", 1000, indices, index="adaptive", linear=linear, parameters=(0,))
    for p in [0, 1, 30, 31]:
        for linear in [0, 1, 63]:
            add(f"adaptive, the last index, parameter {p}, linear {linear}", LAST + 1, [LAST], index="adaptive",
                linear=linear, parameters=(p,))
            add(f"adaptive, the first and the last index, parameter {p}, linear {linear}", LAST + 1, [0, LAST],
                index="adaptive", linear=linear, parameters=(p,))

    # Packed values, which are exact: so the formats that round take values that they have.
    def add_packed(name, value, values, block=16, **packed):
        plain = value_section(value, values, block)
        section = packed_section(plain, value, len(values), block=block, **packed)
        frames.append(Whole("packed, " + name, frame(len(values), len(values), section, b"", "full", value, packed=True),
                            len(values), None, f32_bits(values)))

    for value in ["f32", "f16", "bf16"]:
        step = {"f32": 2.0**-23, "f16": 2.0**-10, "bf16": 2.0**-7}[value]
        for count in [0, 1, 32, 33, 1030]:
            near = [rng.choice([-1, 1]) * (1 + step * min(int(rng.expovariate(0.05)), 100)) for _ in range(count)]
            for fold in [0, 1]:
                reference = None if fold == 0 or count == 0 else struct.unpack("<I", struct.pack("<f", 1.0))[0] >> 16
                if value == "f32" and reference is not None:
                    reference <<= 16
                if value == "f16" and reference is not None:
                    reference = 0x3C05
                add_packed(f"{value}, {count}, fold {fold}", value, near, fold=fold, reference=reference, linear=2,
                           parameters=(3, 1, 6))
        ends = [0.0, -0.0, 1.0, -2.0]
        ends += {"f32": [3.4028234663852886e38, 2.0**-149], "f16": [65504.0, -2.0**-24],
                 "bf16": [-3.3895313892515355e38, 2.0**-133]}[value]
        add_packed(f"{value}, extremes", value, ends, parameters=(12,), linear=1)
    for value, most in [("int8", 127), ("int4", 7)]:
        for block, count in [(16, 1), (16, 17), (17, 100), (31, 1100), (65536, 75)]:
            scales = [rng.choice([0.0, 0.5, 2.0**-149, 2.0**100]) for _ in range(-(-count // block))]
            codes = [rng.choice([most, -most, 0, rng.randint(-most, most)]) for _ in range(count)]
            values = [float(q) * scales[i // block] for i, q in enumerate(codes)]
            values = [-0.0 if q < 0 and v == 0 else v for q, v in zip(codes, values)]
            plain = coded_values(value, block, scales, codes)
            for fold, reference in [(0, 0), (1, most // 2)]:
                section = packed_section(plain, value, count, fold, reference, 2, (1, 3), block)
                frames.append(Whole(f"packed, {value}, {count} in blocks of {block}, fold {fold}",
                                    frame(count, count, section, b"", "full", value, packed=True), count, None,
                                    f32_bits(values)))
    for index in ["golomb", "adaptive", "raw32", "runs", "bitmap"]:
        values = [1.0, -1.5, 1.25, 1.0]
        frames.append(Whole(f"packed, {index}", encode(50, [3, 4, 20, 49], values, index=index, packed={}), 50, [3, 4, 20, 49],
                            f32_bits(values)))

    for dim in [1, 7, 8, 9, 15, 16, 17, 63, 64, 65, 1001]:
        add(f"bitmap, dim {dim}", dim, choose(dim // 2 + 1, dim), index="bitmap")
        add(f"bitmap of all, dim {dim}", dim, list(range(dim)), index="bitmap")
    add("bitmap, empty, dim 1001", 1001, [], index="bitmap")

    for m_gap, m_length in [(1, 1), (2, 3), (7, 8), (9, 1), (64, 5), (2**32 - 1, 2**31 + 1)]:
        indices = [i for start in range(3, 900, 37) for i in range(start, start + rng.randrange(1, 36))]
        indices = [i for i in indices if i < 900]
        add(f"runs, M {m_gap} and {m_length}", 900, indices, index="runs", M_gap=m_gap, M_length=m_length)
    add("runs, one of all", 500, list(range(500)), index="runs", M_length=100)
    add("runs of one with gaps of one", 501, list(range(0, 501, 2)), index="runs")
    add("runs, 1500 entries", 4000, choose(1500, 4000), index="runs")

    draws = [((), 1000, 10), ((), 1000, 500), ((), 1000, 501), ((), 1000, 999), ((), 1000, 1000), ((), 3, 2), ((), 1, 1),
             ((), 2**32 - 1, 7), ([(1000, 30)], 1000, 30), ([(100, 10), (1, 1), (7, 0), (0, 0), (50, 50), (64, 40)], 222, 101),
             ([(2**31, 3), (2**31 - 1, 2)], 2**32 - 1, 5)]
    for units, dim, count in draws:
        for choices in [dict(), dict(seed=2**64 - 1, step=2**55 + 2**33 + 5, rank=2**32 - 1, role=1),
                        dict(seed=5, rank=3, step=9)]:
            indices = draw_indices(units or [(dim, count)], **choices)
            add(f"seed, {count} of {dim}, units {units}, {choices}", dim, indices, index="seed", units=units, **choices)

    for dim in [1, 2, 100]:
        add(f"full, dim {dim}", dim, None, index="full")

    # Values: 16-bit formats by their bit patterns, and codes with the smallest and largest scales.
    def add_values(name, value, section, values):
        bits = f32_bits(values)
        frames.append(Whole(name, frame(len(bits), len(bits), section, b"", "full", value), len(bits), None, bits))

    extreme = [0.0, -0.0, 2.0**-149, -2.0**-126, 3.4028234663852886e38, -3.4028234663852886e38, 1.0]
    add_values("f32, extremes", "f32", value_section("f32", extreme), extreme)
    halves = [sign | bits for sign in (0, 0x8000) for bits in list(range(0, 0x7C00, 97)) + [1, 0x3FF, 0x400, 0x7BFF]]
    add_values("f16", "f16", struct.pack(f"<{len(halves)}H", *halves),
               [struct.unpack("<e", struct.pack("<H", bits))[0] for bits in halves])
    uppers = [sign | bits for sign in (0, 0x8000) for bits in list(range(0, 0x7F80, 97)) + [1, 0x7F, 0x80, 0x7F7F]]
    add_values("bf16", "bf16", struct.pack(f"<{len(uppers)}H", *uppers), [bf16(bits) for bits in uppers])
    for value, most in [("int8", 127), ("int4", 7)]:
        for block, count in [(16, 1), (16, 15), (16, 16), (16, 17), (16, 80), (17, 100), (65536, 75), (31, 300), (16, 1000)]:
            ends = [0.0, 2.0**-149, 2.0**-127, 1.0, 2.0**120]
            scales = [rng.choice(ends + [abs(x), abs(x)]) for x in some_values(rng, -(-count // block))]
            codes = [rng.choice([most, -most, 0, rng.randint(-most, most)]) for _ in range(count)]
            # Exact as a fraction, then rounded by ctypes. A negative code with the scale 0 gives -0, as a product does.
            values = [ctypes.c_float(float(Fraction(q) * Fraction(scales[i // block]))).value for i, q in enumerate(codes)]
            values = [-0.0 if q < 0 and value_ == 0 else value_ for q, value_ in zip(codes, values)]
            add_values(f"{value}, {count} in blocks of {block}", value, coded_values(value, block, scales, codes), values)
    for block, count in [(16, 1), (16, 2), (16, 3), (16, 4), (16, 5), (16, 64), (17, 100), (65536, 75)]:
        scales = [sorted(rng.choice([0, 1, 0x3F80, 0x7F7F, rng.randrange(0x7F80)]) for _ in range(2))
                  for _ in range(-(-count // block))]
        codes = [rng.randrange(4) for _ in range(count)]
        values = [(-1.0, 1.0)[code < 2] * bf16(scales[i // block][code % 2]) for i, code in enumerate(codes)]
        add_values(f"int2, {count} in blocks of {block}", "int2", coded_values("int2", block, scales, codes), values)
    return frames


def broken_frames():
    """At least one for each refusal in the document; the checksum is right unless it is the fault itself."""
    one = struct.pack("<f", 1.0)
    good = encode(100, [3, 50], [1.0, 2.0], M=7)
    frames = [Broken(name, reason, data) for name, reason, data in [
        ("no bytes", "fewer than 28", b""),
        ("27 bytes", "fewer than 28", with_checksum(good[:23])),
        ("a header alone", "fewer than 28", good[:24]),
        ("magic", "magic", with_checksum(b"SWFS" + good[4:-4])),
        ("checksum", "checksum", good[:-1] + bytes([good[-1] ^ 1])),
        ("a flipped value bit", "checksum", good[:24] + bytes([good[24] ^ 1]) + good[25:]),
        ("a truncated frame", "checksum", good[:-1])]]

    def add(name, reason, dim, count, values, indices, **fields):
        frames.append(Broken(name, reason, frame(dim, count, values, indices, **fields)))

    for version in [0, 2, 255]:
        add(f"version {version}", "version", 1, 1, one, b"", index="full", version=version)
    for codec in [7, 128, 255]:
        add(f"index codec {codec}", "unknown index", 1, 1, one, b"", index=codec)
    for codec in [6, 127, 133, 255]:
        add(f"value codec {codec}", "unknown value", 1, 1, one, b"", index="full", value=codec)
    for zero in [1, 128]:
        add(f"zero is {zero}", "zero", 1, 1, one, b"", index="full", zero=zero)
    for dim in [2**32, 2**63, 2**64 - 1]:
        add(f"dim {dim}", "dim", dim, 1, one, raw32_section([0]), index="raw32")
    for dim, count in [(0, 1), (1, 2), (5, 2**64 - 1)]:
        add(f"count {count} of {dim}", "count above dim", dim, count, one * 2, raw32_section([0, 1]), index="raw32")

    # Values.
    for value in VALUE_CODECS:
        section = value_section(value, [1.0] * 20, block=16)
        add(f"{value}: a byte short", "values: too few", 20, 20, section[:-1], b"", index="full", value=value)
        add(f"{value}: a byte long", "left over", 20, 20, section + b"\0", b"", index="full", value=value)
        # 4 times this count overflows 32 bits.
        for count in [2**30, 2**31 + 20, 2**32 - 1]:
            add(f"{value}: count {count} in few bytes", "values: too few", 2**32 - 1, count, section, b"", value=value)
    add("int8: no block", "values: too few", 5, 0, b"\0\0\0", b"", index="raw32", value="int8")
    for name, value, pattern in [("infinity", "f32", 0x7F800000), ("minus infinity", "f32", 0xFF800000),
                                 ("NaN", "f32", 0x7FC00000), ("signalling NaN", "f32", 0x7F800001),
                                 ("infinity", "f16", 0x7C00), ("NaN", "f16", 0xFE00),
                                 ("infinity", "bf16", 0x7F80), ("NaN", "bf16", 0xFFC0)]:
        section = struct.pack("<I" if value == "f32" else "<H", pattern)
        for at in [0, 20]:  # an early and a late one of many
            zeros = bytes(len(section))
            add(f"{value}: {name} at {at}", "not finite", 21, 21, zeros * at + section + zeros * (20 - at), b"",
                index="full", value=value)
    for value in ["int8", "int4", "int2"]:
        for block in [0, 15, 65537, 2**32 - 1]:
            scales = [(0, 0x3F80)] if value == "int2" else [1.0]
            add(f"{value}: block {block}", "block", 4, 4, coded_values(value, block, scales, [1] * 4), b"",
                index="full", value=value)
    infinity, nan = float("inf"), float("nan")
    for value, most in [("int8", 127), ("int4", 7)]:
        for scale in [-1.0, -2.0**-149, infinity, -infinity, nan]:
            for codes in [[1] * 17, [0] * 17]:
                add(f"{value}: scale {scale}, codes {codes[0]}", "scale", 17, 17,
                    coded_values(value, 16, [1.0, scale], codes), b"", index="full", value=value)
        for at in [0, 16]:
            codes = [0] * at + [-most - 1] + [0] * (16 - at)
            add(f"{value}: code {-most - 1} at {at}", "the code", 17, 17, coded_values(value, 16, [1.0] * 2, codes), b"",
                index="full", value=value)
        add(f"{value}: a product too large", "not finite", 2, 2, coded_values(value, 16, [1e38], [0, -most]), b"",
            index="full", value=value)
    add("int4: a bit after the last code", "non-zero bits", 1, 1, coded_values("int4", 16, [1.0], [1, 1]), b"",
        index="full", value="int4")
    for pair in [(0x3F81, 0x3F80), (0x3F80, 0x7F80), (0x7F80, 0x7F80), (0xBF80, 0x3F80), (0x3F80, 0xBF80), (0x7FC0, 0x3F80),
                 (0x3F80, 0x7FC0), (0xFF80, 0)]:
        for codes in [[0, 1], [0, 0]]:
            add(f"int2: low {pair[0]:x}, high {pair[1]:x}, codes {codes}", "low <= high", 2, 2,
                coded_values("int2", 16, [pair], codes), b"", index="full", value="int2")
    add("int2: a bit after the last code", "non-zero bits", 3, 3, coded_values("int2", 16, [(0, 0)], [0, 0, 0, 2]), b"",
        index="full", value="int2")

    # Indices; `three` values go with three indices below 20.
    three = one * 3
    indices = [2, 3, 19]
    add("full: count below dim", "full", 4, 3, three, b"", index="full")
    add("full: a byte left over", "left over", 3, 3, three, b"\0", index="full")

    def indices_after(gaps):
        return [sum(gaps[:i + 1]) + i for i in range(len(gaps))]

    stream = golomb_section(indices, 4)
    add("golomb: M 0", "M is 0", 20, 3, three, struct.pack("<I", 0) + stream[4:])
    add("golomb: M 0, no entries", "M is 0", 20, 0, b"", struct.pack("<I", 0))
    add("golomb: no M", "too few", 20, 3, three, stream[:3])
    add("golomb: nothing", "too few", 20, 0, b"", b"")
    add("golomb: a byte short", "too few", 20, 3, three, stream[:-1])
    add("golomb: a byte long", "left over", 20, 3, three, stream + b"\0")
    add("golomb: a byte, no entries", "left over", 20, 0, b"", stream[:4] + b"\0")
    bits = [bit for x in [2, 0, 15] for bit in golomb_bits(x, 4)]
    assert len(bits) % 8
    add("golomb: a bit after the last code", "non-zero bits", 20, 3, three,
        stream[:4] + pack_bits(bits + [0] * (7 - len(bits) % 8) + [1]))
    add("golomb: index dim", "outside", 19, 3, three, stream)
    add("golomb: zeros without a one", "too few", 20, 3, three, stream[:4] + bytes(50))
    for beyond in [2**32 - 1, 2**32, 2**32 + 5, 2**33 + 5]:  # some are below dim modulo 2^32
        add(f"golomb: index {beyond}", "outside", 20, 2, one * 2, golomb_section([2, beyond], 2**30 + 1))
    many = list(range(0, 3000, 2))[:1030]
    values = one * len(many)
    lanes = golomb_section(many, 2)
    lengths = struct.unpack("<3I", lanes[4:16])
    parts = [lanes[16 + sum(lengths[:j]):16 + sum(lengths[:j + 1])] for j in range(3)] + [lanes[16 + sum(lengths):]]

    def joined(parts, lengths=None):
        lengths = lengths or [len(part) for part in parts[:3]]
        return lanes[:4] + struct.pack("<3I", *lengths) + b"".join(parts)

    for lane in range(4):
        longer = [part + b"\0" * (lane == j) for j, part in enumerate(parts)]
        add(f"golomb: stream {lane} a byte long", "left over", 3000, len(many), values, joined(longer))
        shorter = [part[:-1] if lane == j else part for j, part in enumerate(parts)]
        add(f"golomb: stream {lane} a byte short", "too few", 3000, len(many), values, joined(shorter))
        ending = [part[:-1] + bytes([part[-1] | 0x80]) if lane == j else part for j, part in enumerate(parts)]
        if ending[lane] != parts[lane]:
            add(f"golomb: a bit after stream {lane}", "non-zero bits", 3000, len(many), values, joined(ending))
    beyond = joined(parts, [lengths[0], lengths[1], 2**32 - 1])
    add("golomb: lengths beyond the end", "too few", 3000, len(many), values, beyond)
    add("golomb: lengths that wrap", "too few", 3000, len(many), values, joined(parts, [2**31, 2**31, lengths[2]]))
    add("golomb: lengths cut off", "too few", 3000, len(many), values, lanes[:15])
    add("golomb: one stream for 1030", "too few", 3000, len(many), values, lanes[:4] + b"".join(parts))
    add("golomb: four streams for 3", "", 20, 3, three, stream[:4] + struct.pack("<3I", 1, 1, 1) + bytes(4))
    add("golomb: four streams, index dim", "outside", many[-1], len(many), values, lanes)
    wrapped = indices_after([2**29 - 8] * 8 + [0] * 1022)  # those of the first 64 gaps add up to 2^32
    add("golomb: four streams, the sum of the gaps is 2^32", "outside", 3000, len(wrapped), values,
        golomb_section(wrapped, 2**25))

    def numbers(changes, classes, rests, linear=1):
        streams = [pack_bits(bits) for bits in (changes, classes, rests)]
        return struct.pack("<B2I", linear, len(streams[0]), len(streams[1])) + b"".join(streams)

    def joined_unary(ranks):
        return [bit for c in ranks for bit in unary_bits(c)]

    section = adaptive_section(indices, 1, (2,))
    head, streams = section[:9], section[9:]
    assert numbers(parameter_bits([2]), joined_unary([0, 0, 2]), number_bits(2, 2) + number_bits(0, 2) + number_bits(7, 3)) == section
    add("adaptive: nothing", "too few", 20, 3, three, b"", index="adaptive")
    add("adaptive: cut in the fields", "too few", 20, 3, three, section[:8], index="adaptive")
    add("adaptive: a byte short", "too few", 20, 3, three, section[:-1], index="adaptive")
    add("adaptive: a byte long", "left over", 20, 3, three, section + b"\0", index="adaptive")
    add("adaptive: linear 64", "linear", 20, 3, three, b"\x40" + section[1:], index="adaptive")
    for field, sizes in [("parameters", (0, 1)), ("classes", (1, 0))]:
        add(f"adaptive: no {field}", "too few", 20, 3, three, struct.pack("<B2I", 1, *sizes) + streams, index="adaptive")
    for sizes in [(2**32 - 1, 1), (1, 2**32 - 1), (2**31, 2**31)]:
        add(f"adaptive: lengths {sizes}", "too few", 20, 3, three, struct.pack("<B2I", 1, *sizes) + streams, index="adaptive")
    longer = struct.pack("<B2I", 1, 2, 1) + streams[:1] + b"\0" + streams[1:]
    add("adaptive: a byte of parameters too many", "left over", 20, 3, three, longer, index="adaptive")
    longer = struct.pack("<B2I", 1, 1, 2) + streams[:2] + b"\0" + streams[2:]
    add("adaptive: a byte of classes too many", "left over", 20, 3, three, longer, index="adaptive")
    add("adaptive: bytes, no entries", "left over", 20, 0, b"", section, index="adaptive")
    good_parts = dict(changes=parameter_bits([2]), classes=joined_unary([0, 0, 2]),
                      rests=number_bits(2, 2) + number_bits(0, 2) + number_bits(7, 3))
    for part, bits in good_parts.items():
        ending = bits + [0] * (7 - len(bits) % 8) + [1]
        add(f"adaptive: a bit after the {part}", "non-zero bits", 20, 3, three, numbers(**{**good_parts, part: ending}),
            index="adaptive")
    add("adaptive: parameter -1", "parameter", 20, 3, three, numbers(**{**good_parts, "changes": parameter_bits([-1])}),
        index="adaptive")
    add("adaptive: parameter 32", "parameter", 20, 3, three, numbers(**{**good_parts, "changes": parameter_bits([32])}),
        index="adaptive")
    add("adaptive: parameter without an end", "too few", 20, 3, three, numbers(**{**good_parts, "changes": [1, 1, 0] + [0] * 60}),
        index="adaptive")
    add("adaptive: index dim", "outside", 19, 3, three, section, index="adaptive")
    add("adaptive: zeros without a one", "too few|2.32", 20, 3, three, numbers(parameter_bits([2]), [0] * 400, []), index="adaptive")
    for c, p in [(33, 1), (34, 0), (95, 2), (4, 31), (2, 31), (150, 0), (300, 0)]:
        add(f"adaptive: class {c}, parameter {p}", "2.32|too few", 2**32 - 1, 1, one,
            numbers(parameter_bits([p]), unary_bits(c), [1] * 80), index="adaptive")
    for beyond in [2**32 - 1, 2**32 + 5 - 3]:  # below dim modulo 2^32 after the first index
        add(f"adaptive: gap {beyond}", "outside|2.32", 20, 2, one * 2, numbers_section([2, beyond], 0, (4,)), index="adaptive")
    wrapped = indices_after([2**31 - 8] * 2 + [0] * 14)
    add("adaptive: the sum of the gaps is 2^32", "outside", 20, 16, one * 16, adaptive_section(wrapped, 63, (26,)),
        index="adaptive")
    many = list(range(0, 4400, 2))[:1100]
    add("adaptive: many, index dim", "outside", many[-1], len(many), one * len(many), adaptive_section(many), index="adaptive")

    # Packed values.
    def add_packed(name, reason, section, value="f32", count=3, indices=b"", **fields):
        fields = dict(index="full", packed=True, **fields)
        add("packed: " + name, reason, count, count, section, indices, value=value, **fields)

    for value in PACKED_CODECS:
        section = packed_section(value_section(value, [1.0, -1.0, 1.0], 16), value, 3, block=16)
        add_packed(f"{value}, a byte short", "too few", section[:-1], value)
        add_packed(f"{value}, a byte long", "left over", section + b"\0", value)
        inside = struct.pack("<I", len(section) - 3) + section[4:] + b"\0"
        add_packed(f"{value}, a byte long inside", "left over", inside, value)
        add_packed(f"{value}, no length", "too few", section[:3], value)
        add_packed(f"{value}, length 0", "too few", struct.pack("<I", 0) + section[4:], value)
        for length in [1, 4, 8, 2**31, 2**32 - 1]:
            add_packed(f"{value}, length {length}", "", struct.pack("<I", length) + section[4:], value)
        at = len(section) - len(numbers_section([0, 1, 0])) - 5 if value in ["f32", "f16", "bf16"] else 12
        half = 2**({"f32": 32, "f16": 16, "bf16": 16, "int8": 8, "int4": 4}[value] - 1)
        add_packed(f"{value}, fold 2", "fold", section[:at] + b"\x02" + section[at + 1:], value)
        for reference in [half, 2**32 - 1]:
            add_packed(f"{value}, reference {reference}", "reference",
                       section[:at + 1] + struct.pack("<I", reference) + section[at + 5:], value)
        for fold, reference, n in [(0, half - 1, 2), (1, half - 1, 4), (1, 0, 2), (0, 1, 2**32 - 2)]:
            scales = struct.pack("<If", 16, 1.0) if value.startswith("int") else b""
            body = scales + struct.pack("<BI", fold, reference) + numbers_section([n], 0, (20,))
            add_packed(f"{value}, fold {fold}, reference {reference}, number {n}", "magnitude",
                       struct.pack("<I", len(body)) + body, value, 1)
        body = scales + struct.pack("<BI", 0, 1) + numbers_section([0], 0, (0,))
        add_packed(f"{value}, parameter 0", "parameter", struct.pack("<I", len(body)) + body, value, 1)
        for count in [200, 2**30, 2**32 - 1]:
            add(f"packed: {value}, count {count} in few bytes", "too few", 2**32 - 1, count, section, b"", value=value,
                packed=True)
    for value in ["int8", "int4"]:
        body = struct.pack("<If", 16, 1.0) + struct.pack("<BI", 0, 0) + numbers_section([1], 0, (1,))
        add_packed(f"{value}, minus zero", "minus zero", struct.pack("<I", len(body)) + body, value, 1)
        for block in [15, 65537]:
            plain = struct.pack("<If", block, 1.0)
            body = plain + struct.pack("<BI", 0, 0) + numbers_section([2], 0, (1,))
            add_packed(f"{value}, block {block}", "block", struct.pack("<I", len(body)) + body, value, 1)
        for scale in [-1.0, infinity, nan]:
            body = struct.pack("<If", 16, scale) + struct.pack("<BI", 0, 0) + numbers_section([2], 0, (1,))
            add_packed(f"{value}, scale {scale}", "scale", struct.pack("<I", len(body)) + body, value, 1)
    for value, reference in [("f32", 0x7F7FFFFF), ("f16", 0x7BFF), ("bf16", 0x7F7F)]:
        body = struct.pack("<BI", 0, reference) + numbers_section([2], 0, (1,))
        add_packed(f"{value}, infinity", "not finite", struct.pack("<I", len(body)) + body, value, 1)

    bitmap = bitmap_section(indices, 20)
    add("bitmap: a byte short", "too few", 20, 3, three, bitmap[:-1], index="bitmap")
    add("bitmap: a byte long", "left over", 20, 3, three, bitmap + b"\0", index="bitmap")
    add("bitmap: a one too few", "count ones", 20, 3, three, bitmap_section([2, 3], 20), index="bitmap")
    add("bitmap: a one too many", "count ones", 20, 3, three, bitmap_section([2, 3, 4, 19], 20), index="bitmap")
    add("bitmap: a bit after the last", "non-zero bits", 20, 3, three, bitmap_section([2, 3, 19, 20], 24), index="bitmap")
    add("bitmap: a bit after instead of before", "non-zero bits", 20, 3, three, bitmap_section([2, 3, 23], 24), index="bitmap")
    add("bitmap: of 2^32 - 1 in few bytes", "too few", 2**32 - 1, 3, three, bitmap, index="bitmap")

    raw = raw32_section(indices)
    add("raw32: a byte short", "too few", 20, 3, three, raw[:-1], index="raw32")
    add("raw32: an index too many", "left over", 20, 3, three, raw + raw32_section([20]), index="raw32")
    add("raw32: one twice", "ascending", 20, 3, three, raw32_section([2, 2, 3]), index="raw32")
    add("raw32: descending", "ascending", 20, 3, three, raw32_section([2, 19, 3]), index="raw32")
    add("raw32: index dim", "outside", 19, 3, three, raw, index="raw32")
    add("raw32: the largest number", "outside", 2**32 - 1, 1, one, raw32_section([2**32 - 1]), index="raw32")

    def add_seed(name, reason, units, dim=20, drawn=None, cut=None, tail=b""):
        drawn = draw_indices(drawn or [(20, 3)], seed=5)
        section = seed_section(drawn, 5, 0, 0, 0, units)
        add("seed: " + name, reason, dim, 3, three, section[:cut] + tail, index="seed")

    add_seed("other indices", "other indices", (), drawn=[(19, 3)])
    add_seed("sizes below dim", "sizes", [(10, 2), (9, 1)], drawn=[(10, 2), (9, 1)])
    add_seed("sizes above dim", "sizes", [(10, 2), (11, 1)], drawn=[(10, 2), (11, 1)])
    add_seed("sizes that wrap to dim", "sizes", [(2**32 - 1, 2), (21, 1)])
    add_seed("k below count", "k do not", [(10, 1), (10, 1)], drawn=[(10, 1), (10, 1)])
    add_seed("k above count", "k do not", [(10, 2), (10, 2)], drawn=[(10, 2), (10, 2)])
    add_seed("k that wrap to count", "k above|k do not", [(10, 2**32 - 1), (10, 4)])
    add_seed("k above size", "k above size", [(2, 3), (18, 0)])
    add_seed("a byte short", "too few", (), cut=-1)
    add_seed("a byte long", "left over", (), tail=b"\0")
    add_seed("nothing", "too few", (), cut=0)
    add_seed("units cut off", "too few", [(10, 2), (10, 1)], cut=-8)
    section = seed_section(draw_indices([(20, 3)]), 0, 0, 0, 0)
    for units in [2**29, 2**32 - 1]:  # 8 times the first is 0 modulo 2^32
        add(f"seed: {units} units in no bytes", "too few", 20, 3, three,
            section[:21] + struct.pack("<I", units) + section[25:], index="seed")

    runs = runs_section(indices, 4, 2)
    for m_gap, m_length in [(0, 2), (4, 0)]:
        add(f"runs: M {m_gap} and {m_length}", "M is 0", 20, 3, three, struct.pack("<2I", m_gap, m_length) + runs[8:],
            index="runs")
    add("runs: M 0, no entries", "M is 0", 20, 0, b"", bytes(12), index="runs")
    add("runs: a byte short", "too few", 20, 3, three, runs[:-1], index="runs")
    add("runs: a byte long", "left over", 20, 3, three, runs + b"\0", index="runs")
    add("runs: cut in the fields", "too few", 20, 3, three, runs[:11], index="runs")
    add("runs: index dim", "outside", 19, 3, three, runs, index="runs")
    add("runs: more than count", "more indices", 20, 3, three, runs_section([2, 3, 18, 19], 4, 2), index="runs")
    add("runs: fewer than count", "fewer indices", 20, 3, three, runs_section([2, 19], 4, 2), index="runs")
    add("runs: none for three", "fewer indices", 20, 3, three, struct.pack("<3I", 1, 1, 0), index="runs")
    add("runs: 2^32 - 1 of them", "too few", 20, 3, three, runs[:8] + struct.pack("<I", 2**32 - 1) + runs[12:], index="runs")
    bits = golomb_bits(2, 4) + golomb_bits(1, 2) + golomb_bits(14, 4) + golomb_bits(0, 2)
    assert len(bits) % 8
    add("runs: a bit after the last code", "non-zero bits", 20, 3, three,
        runs[:12] + pack_bits(bits + [0] * (7 - len(bits) % 8) + [1]), index="runs")
    for beyond in [2**32 - 1, 2**32, 2**32 + 5, 2**33 + 5]:
        add(f"runs: index {beyond}", "outside", 20, 2, one * 2, runs_section([2, beyond], 2**30 + 1, 1), index="runs")
    gap = golomb_bits(2, 2**30 + 1)
    for length in [2**32 - 1, 2**32, 2**32 + 2]:  # the last is 2 modulo 2^32
        section = struct.pack("<3I", 2**30 + 1, 2**30 + 1, 1) + pack_bits(gap + golomb_bits(length - 1, 2**30 + 1))
        add(f"runs: a run of {length}", "outside", 20, 2, one * 2, section, index="runs")
    return frames


def mutants(count):
    """Valid frames with one bit changed and the checksum corrected: most of them are broken."""
    rng = random.Random(2)
    small = [whole for whole in WHOLE if len(whole.data) < 400]
    for number in range(count):
        data = bytearray(rng.choice(small).data[:-4])
        # The last bytes are the indices, which have the most ways to be wrong.
        first, end = [(4, 24), (4, len(data)), (max(4, len(data) - 30), len(data))][number % 3]
        at = rng.randrange(first, end)
        data[at] ^= 1 << rng.randrange(8)
        yield f"mutant {number}: {data.hex()}", with_checksum(bytes(data))


def edge_frames():
    """Frames that the document just allows or just forbids."""
    one = struct.pack("<f", 1.0)
    for name, choices in [("role 2", dict(role=2)), ("role 255", dict(role=255)), ("a step of 57 bits", dict(step=2**56))]:
        section = seed_section(draw_indices([(9, 1)], **choices), **{**dict(seed=0, step=0, rank=0, role=0), **choices})
        yield name, frame(9, 1, one, section, "seed")
    for value in ["int8", "int4"]:
        yield f"{value}: scale -0", frame(3, 3, coded_values(value, 16, [-0.0], [1, 0, -1]), b"", "full", value)
    for pair in [(0x8000, 0), (0, 0x8000), (0x8000, 0x3F80)]:
        yield f"int2: {pair}", frame(4, 4, coded_values("int2", 16, [pair], [0, 1, 2, 3]), b"", "full", "int2")


WHOLE = whole_frames()
BROKEN = broken_frames()
