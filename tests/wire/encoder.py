"""Encodes sparsewire frames, version 1. Written from docs/reference/wire_format.md alone: the frames that another encoder may send, not
those that the library would choose. The caller chooses divisors, blocks and scales, so the tests can make frames that the
library never makes.

    data = encode(dim, indices, values, index="golomb", value="f32", M=5)

Each section has its own function, and `frame` joins any bytes and adds a right checksum: broken frames are made in this way.
The checksum and the draw are those of decoder.py, which are tested with known answers.
"""
import math
import struct
from fractions import Fraction

from decoder import CODE_BITS, INDEX_CODECS, VALUE_CODECS, bf16, ceil_div, crc32c, draw_units, to_f32

MAX_BF16 = 0x7F7F


def with_checksum(data):
    return data + struct.pack("<I", crc32c(data))


def frame(dim, count, value_section, index_section, index="golomb", value="f32", magic=b"SWFR", version=1, zero=0, packed=False):
    """Codecs are given by name, or by number for unknown ones."""
    index_id = INDEX_CODECS.index(index) if isinstance(index, str) else index
    value_id = VALUE_CODECS.index(value) if isinstance(value, str) else value
    value_id += 128 * packed
    header = struct.pack("<4s4B2Q", magic, version, index_id, value_id, zero, dim, count)
    return with_checksum(header + value_section + index_section)


def pack_bits(bits):
    """The bit stream of an iterable of bits."""
    bits = list(bits)
    data = bytearray(ceil_div(len(bits), 8))
    for i, bit in enumerate(bits):
        data[i // 8] |= bit << i % 8
    return bytes(data)


def number_bits(number, n):
    return [number >> i & 1 for i in range(n)]


def golomb_bits(x, m):
    q, r = divmod(x, m)
    b = 1
    while 2**b < m:
        b += 1
    u = 2**b - m
    bits = [0] * q + [1]
    if r < u:
        return bits + number_bits(r, b - 1)
    y = r + u
    return bits + number_bits(y // 2, b - 1) + [y % 2]


def unary_bits(zeros):
    return [0] * zeros + [1]


def number_parts(x, p, linear):
    """The class of a number, and its rest as bits."""
    c = 0
    while True:
        e = max(0, c - linear)
        start = (min(c, linear) + 2**e - 1) * 2**p
        if x < start + 2**(p + e):
            return c, number_bits(x - start, p + e)
        c += 1


def change_bits(d):
    return [0] if d == 0 else [1, int(d < 0)] + unary_bits(abs(d) - 1)


def parameter_bits(blocks, shorten=True):
    """`shorten`: groups without a change are one bit, as every encoder should write them."""
    bits = []
    for i in range(0, len(blocks), 4):
        group = blocks[i:i + 4]
        before = [blocks[i - 1] if i > 0 else 0] + group
        changes = [p - q for p, q in zip(group, before)]
        bits += [1] + [bit for d in changes for bit in change_bits(d)] if any(changes) or not shorten else [0]
    return bits


def numbers_section(numbers, linear=3, parameters=(1,), shorten=True):
    """`parameters`: of block 0, 1, ..., and from the start again."""
    blocks = [parameters[j % len(parameters)] for j in range(ceil_div(len(numbers), 32))]
    parts = [number_parts(x, blocks[i // 32], linear) for i, x in enumerate(numbers)]
    streams = [pack_bits(parameter_bits(blocks, shorten)), pack_bits(bit for c, _ in parts for bit in unary_bits(c)),
               pack_bits(bit for _, rest in parts for bit in rest)]
    return struct.pack("<B2I", linear, len(streams[0]), len(streams[1])) + b"".join(streams)


# Values.

def packed_section(plain, value, count, fold=0, reference=None, linear=3, parameters=(1,), block=256):
    """Packs the section of a value codec. The reference is the smallest magnitude unless it is given."""
    scales = 4 + 4 * ceil_div(count, block) if value.startswith("int") else 0
    width = CODE_BITS[value]
    half = 2**(width - 1)
    bits = int.from_bytes(plain[scales:], "little")
    codes = [bits >> i * width & 2 * half - 1 for i in range(count)]
    pairs = [(code, 0) if code < half else (2 * half - code if scales else code - half, 1) for code in codes]
    if reference is None:
        reference = min((m for m, _ in pairs), default=0)
    offsets = [m - reference for m, _ in pairs]
    ys = [d if fold == 0 else 2 * d if d >= 0 else -2 * d - 1 for d in offsets]
    numbers = [2 * y + minus for y, (_, minus) in zip(ys, pairs)]
    rest = plain[:scales] + struct.pack("<BI", fold, reference) + numbers_section(numbers, linear, parameters)
    return struct.pack("<I", len(rest)) + rest


def f16_bits(x):
    """Rounds to nearest, ties to even; values that are too large become the largest finite number."""
    try:
        return struct.unpack("<H", struct.pack("<e", x))[0]
    except OverflowError:
        return 0xFBFF if x < 0 else 0x7BFF


def bf16_bits(x):
    bits = struct.unpack("<I", struct.pack("<f", x))[0]
    sign, magnitude = bits >> 31 << 15, bits & 0x7FFFFFFF
    upper, lower = divmod(magnitude, 2**16)
    if lower > 0x8000 or lower == 0x8000 and upper % 2 == 1:
        upper += 1
    return sign | min(upper, MAX_BF16)


def coded_values(value, block, scales, codes):
    """A section of int8, int4 or int2 from its parts: int2 has pairs of bf16 bits for scales, and unsigned codes."""
    flat = b"".join(struct.pack("<2H", *s) if value == "int2" else struct.pack("<f", s) for s in scales)
    width = CODE_BITS[value]
    return struct.pack("<I", block) + flat + pack_bits(bit for code in codes for bit in number_bits(code % 2**width, width))


def quantise(value, block, values):
    """Scales from the largest magnitude of each block, and the codes nearest to the values."""
    scales, codes = [], []
    for at in range(0, len(values), block):
        part = values[at:at + block]
        top = max(abs(v) for v in part)
        if value == "int2":
            low, high = bf16_bits(min(abs(v) for v in part)), bf16_bits(top)
            scales.append((low, high))
            for v in part:
                far = abs(Fraction(abs(v)) - Fraction(bf16(high))) < abs(Fraction(abs(v)) - Fraction(bf16(low)))
                codes.append(int(far) + (2 if math.copysign(1, v) < 0 else 0))
        else:
            most = 2**(CODE_BITS[value] - 1) - 1
            scale = to_f32(top / most)
            if math.isinf(to_f32(most * scale)):  # the next lower scale: every value stays finite
                scale = struct.unpack("<f", struct.pack("<I", struct.unpack("<I", struct.pack("<f", scale))[0] - 1))[0]
            scales.append(scale)
            for v in part:
                q = round(Fraction(v) / Fraction(scale)) if scale > 0 else 0
                codes.append(max(-most, min(most, q)))
    return scales, codes


def value_section(value, values, block=256):
    if value == "f32":
        return struct.pack(f"<{len(values)}f", *values)
    if value == "f16":
        return struct.pack(f"<{len(values)}H", *map(f16_bits, values))
    if value == "bf16":
        return struct.pack(f"<{len(values)}H", *map(bf16_bits, values))
    return coded_values(value, block, *quantise(value, block, values))


# Indices.

def gaps_of(indices):
    return [i - before - 1 for before, i in zip([-1] + indices[:-1], indices)]


def golomb_section(indices, M):
    gaps = gaps_of(indices)
    lanes = 1 if len(indices) < 1024 else 4
    streams = [pack_bits(bit for x in gaps[lane::lanes] for bit in golomb_bits(x, M)) for lane in range(lanes)]
    lengths = b"".join(struct.pack("<I", len(stream)) for stream in streams[:-1])
    return struct.pack("<I", M) + lengths + b"".join(streams)


def adaptive_section(indices, linear=3, parameters=(1,)):
    return numbers_section(gaps_of(indices), linear, parameters)


def bitmap_section(indices, dim):
    present = set(indices)
    return pack_bits(int(i in present) for i in range(dim))


def raw32_section(indices):
    return struct.pack(f"<{len(indices)}I", *indices)


def seed_section(indices, seed, step, rank, role, units=()):
    flat = [number for unit in units for number in unit]
    return (struct.pack("<QQIBI", seed, step, rank, role, len(units)) + struct.pack(f"<{len(flat)}I", *flat) +
            struct.pack("<I", crc32c(raw32_section(indices))))


def runs_of(indices):
    """(first, length) of each maximal run."""
    runs = []
    for i in indices:
        if runs and i == sum(runs[-1]):
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((i, 1))
    return runs


def runs_section(indices, M_gap, M_length):
    runs = runs_of(indices)
    bits = []
    for number, (first, length) in enumerate(runs):
        gap = first if number == 0 else first - sum(runs[number - 1]) - 1
        bits += golomb_bits(gap, M_gap) + golomb_bits(length - 1, M_length)
    return struct.pack("<3I", M_gap, M_length, len(runs)) + pack_bits(bits)


def encode(dim, indices, values, index="golomb", value="f32", block=256, M=1, M_gap=1, M_length=1, seed=0, step=0, rank=0,
           role=0, units=(), linear=3, parameters=(1,), packed=None):
    """`packed`: arguments of packed_section, or None for plain values. `indices` is None for full; for seed they must be those that `draw_indices` returns."""
    section = {"full": lambda: b"", "golomb": lambda: golomb_section(indices, M),
               "bitmap": lambda: bitmap_section(indices, dim), "raw32": lambda: raw32_section(indices),
               "runs": lambda: runs_section(indices, M_gap, M_length),
               "adaptive": lambda: adaptive_section(indices, linear, parameters),
               "seed": lambda: seed_section(indices, seed, step, rank, role, units)}[index]()
    of_values = value_section(value, values, block)
    if packed is not None:
        of_values = packed_section(of_values, value, len(values), block=block, **packed)
    return frame(dim, len(values), of_values, section, index, value, packed=packed is not None)


def draw_indices(units, seed=0, step=0, rank=0, role=0):
    return draw_units(units, seed, role, rank, step)
