"""Decodes sparsewire frames, version 1. Written from docs/reference/wire_format.md alone, without reading the C++ code: it proves that
the document is sufficient, and the tests compare the library with it. Simple rather than fast: every line follows a sentence
of the document.

    vector = decode(data)     # Vector(dim, indices, values, info), or raises Refused(reason)

`indices` is None for a full frame. `values` are Python floats, each exactly an f32. `info` contains the fields of the frame.
"""
import math
import struct
from collections import namedtuple

INDEX_CODECS = ["full", "golomb", "bitmap", "raw32", "seed", "runs", "adaptive"]
VALUE_CODECS = ["f32", "f16", "bf16", "int8", "int4", "int2"]
PACKED_CODECS = VALUE_CODECS[:5]  # those that can be packed; 128 more on the wire
CODE_BITS = {"f32": 32, "f16": 16, "bf16": 16, "int8": 8, "int4": 4, "int2": 2}

Vector = namedtuple("Vector", "dim indices values info")


class Refused(Exception):
    pass


def require(condition, reason):
    if not condition:
        raise Refused(reason)


def ceil_div(a, b):
    return -(-a // b)


def _crc_of_byte(crc):
    for _ in range(8):
        crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc


_CRC_TABLE = [_crc_of_byte(byte) for byte in range(256)]


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _CRC_TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def to_f32(x):
    """x rounded to f32; infinite if it is too large."""
    try:
        return struct.unpack("<f", struct.pack("<f", x))[0]
    except OverflowError:
        return math.copysign(math.inf, x)


def has_sign(x):
    return math.copysign(1, x) < 0


def bf16(bits):
    return struct.unpack("<f", struct.pack("<I", bits << 16))[0]


class Bytes:
    """Reads a section from its start."""

    def __init__(self, data, what):
        self.data, self.at, self.what = data, 0, what

    def take(self, n):
        require(len(self.data) - self.at >= n, f"{self.what}: too few bytes")
        self.at += n
        return self.data[self.at - n:self.at]

    def numbers(self, kind, n=1):
        return list(struct.unpack(f"<{n}{kind}", self.take(n * struct.calcsize("<" + kind))))

    def u32(self):
        return self.numbers("I")[0]

    def rest(self):
        return self.take(len(self.data) - self.at)

    def end(self):
        require(self.at == len(self.data), f"{self.what}: bytes left over")


class Bits:
    """A bit stream; the least significant bit of each byte comes first."""

    def __init__(self, data, what):
        self.data, self.at, self.what = data, 0, what

    def bit(self):
        require(self.at < 8 * len(self.data), f"{self.what}: too few bytes")
        self.at += 1
        return self.data[(self.at - 1) // 8] >> (self.at - 1) % 8 & 1

    def number(self, n):
        return sum(self.bit() << i for i in range(n))

    def unary(self):
        zeros = 0
        while not self.bit():
            zeros += 1
        return zeros

    def golomb(self, m):
        q = self.unary()
        b = max(1, (m - 1).bit_length())  # ceil(log2 m), but 1 for m = 1
        u = 2**b - m
        s = self.number(b - 1)
        return q * m + (s if s < u else 2 * s + self.bit() - u)

    def end(self):
        require(8 * len(self.data) - self.at < 8, f"{self.what}: bytes left over")
        while self.at < 8 * len(self.data):
            require(not self.bit(), f"{self.what}: non-zero bits after the end")


def philox(counter, key):
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        a, b = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = b >> 32 ^ c1 ^ k0, b & 0xFFFFFFFF, a >> 32 ^ c3 ^ k1, a & 0xFFFFFFFF
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return c0, c1, c2, c3


def draw(k, n, seed, role, rank, step):
    """k of n positions, sorted."""
    wanted = n - k if 2 * k > n else k
    drawn = set()
    i = 0
    while len(drawn) < wanted:
        c = philox((i // 2, step % 2**32, rank, role * 2**24 + (step >> 32) % 2**24), (seed % 2**32, seed >> 32))
        w = c[1] * 2**32 + c[0] if i % 2 == 0 else c[3] * 2**32 + c[2]
        drawn.add(w * n // 2**64)
        i += 1
    return [p for p in range(n) if p not in drawn] if 2 * k > n else sorted(drawn)


def draw_units(units, seed, role, rank, step):
    indices, base = [], 0
    for u, (size, k) in enumerate(units):
        indices += [base + p for p in draw(k, size, (seed + u * 0x9E3779B97F4A7C15) % 2**64, role, rank, step)]
        base += size
    return indices


def read_numbers(section, count, least, info):
    """A section of numbers in blocks, to the end of `section`."""
    what = section.what
    linear = section.numbers("B")[0]
    require(linear <= 63, f"{what}: linear above 63")
    sizes = section.numbers("I", 2)
    parameters, classes = (Bits(section.take(size), what) for size in sizes)
    rests = Bits(section.rest(), what)
    numbers, p, blocks = [], 0, []
    for i in range(count):
        if i % 128 == 0:
            same = not parameters.bit()
        if i % 32 == 0:
            if not same and parameters.bit():
                minus = parameters.bit()
                d = parameters.unary() + 1
                p += -d if minus else d
            require(least <= p <= 31, f"{what}: parameter outside [{least}, 31]")
            blocks.append(p)
        c = classes.unary()
        e = max(0, c - linear)
        require(p + e <= 32, f"{what}: a number of 2^32 or more")
        number = (min(c, linear) + 2**e - 1) * 2**p + rests.number(p + e)
        require(number < 2**32, f"{what}: a number of 2^32 or more")
        numbers.append(number)
    for stream in [parameters, classes, rests]:
        stream.end()
    info.setdefault("numbers", []).append(dict(linear=linear, parameters=blocks))
    return numbers


def read_packed(section, codec, count, info):
    """The plain section that a packed one stands for."""
    packed = Bytes(section.take(section.u32()), "values")
    width = CODE_BITS[codec]
    plain = b""
    if codec.startswith("int"):
        block = packed.take(4)
        size = struct.unpack("<I", block)[0]
        require(16 <= size <= 65536, "values: block outside [16, 65536]")
        plain = block + packed.take(4 * ceil_div(count, size))
    fold, = packed.numbers("B")
    reference = packed.u32()
    half = 2**(width - 1)
    require(fold <= 1, "values: fold")
    require(reference < half, "values: reference too large")
    info.update(fold=fold, reference=reference)
    require(count <= 8 * (len(packed.data) - packed.at), "values: too few bytes")
    bits, fill = 0, 0
    for n in read_numbers(packed, count, 1, info):
        minus, y = n % 2, n // 2
        m = reference + (y if fold == 0 else y // 2 if y % 2 == 0 else -(y + 1) // 2)
        require(0 <= m < half, "values: a magnitude out of range")
        if codec.startswith("int"):
            require(m > 0 or not minus, "values: minus zero")
            code = 2 * half - m if minus else m
        else:
            code = m + half * minus
        bits |= code << fill
        fill += width
    return plain + bits.to_bytes(ceil_div(fill, 8), "little")


def read_values(section, codec, count, info):
    """Reads the values of a section; the position is after them then."""
    if codec == "f32":
        return section.numbers("f", count)
    if codec == "f16":
        return section.numbers("e", count)
    if codec == "bf16":
        return [bf16(bits) for bits in section.numbers("H", count)]
    block = info["block"] = section.u32()
    require(16 <= block <= 65536, "values: block outside [16, 65536]")
    blocks = ceil_div(count, block)
    if codec == "int2":
        pairs = [bf16(bits) for bits in section.numbers("H", 2 * blocks)]
        scales = list(zip(pairs[::2], pairs[1::2]))
        # A NaN fails the comparison.
        require(all(low <= high < math.inf and not has_sign(low) for low, high in scales) and
                not any(has_sign(high) for _, high in scales), "values: not low <= high, without signs, finite")
    else:
        scales = section.numbers("f", blocks)
        most = 127 if codec == "int8" else 7
        require(all(scale >= 0 and not has_sign(scale) and math.isfinite(to_f32(most * scale)) for scale in scales),
                "values: a scale is negative, -0, or not finite times the largest code")
    width = CODE_BITS[codec]
    stream = Bits(section.take(ceil_div(count * width, 8)), "values")
    codes = [stream.number(width) for _ in range(count)]
    stream.end()
    info.update(scales=scales, codes=codes)
    if codec == "int2":
        return [(-1.0 if code & 2 else 1.0) * scales[i // block][code & 1] for i, code in enumerate(codes)]
    half = 2**(width - 1)
    require(half not in codes, f"values: the code {-half}")
    signed = [code - 2 * half if code > half else code for code in codes]
    # The product of 7 and 24 bits is exact in a double, so that it is rounded only once.
    return [to_f32(float(q) * scales[i // block]) for i, q in enumerate(signed)]


def read_golomb(section, dim, count, info):
    m = info["M"] = section.u32()
    require(m >= 1, "golomb: M is 0")
    lanes = 1
    lengths = []
    if count >= 1024:
        lanes = 4
        lengths = section.numbers("I", 3)
    streams = [Bits(section.take(length), "golomb") for length in lengths] + [Bits(section.rest(), "golomb")]
    indices, previous = [], -1
    for i in range(count):
        previous += streams[i % lanes].golomb(m) + 1
        require(previous < dim, "golomb: index outside [0, dim)")
        indices.append(previous)
    for stream in streams:
        stream.end()
    return indices


def read_adaptive(section, dim, count, info):
    indices, previous = [], -1
    for gap in read_numbers(section, count, 0, info):
        previous += gap + 1
        require(previous < dim, "adaptive: index outside [0, dim)")
        indices.append(previous)
    return indices


def read_bitmap(section, dim, count, info):
    stream = Bits(section.take(ceil_div(dim, 8)), "bitmap")
    indices = [i for i in range(dim) if stream.bit()]
    stream.end()
    require(len(indices) == count, "bitmap: not count ones")
    return indices


def read_raw32(section, dim, count, info):
    indices = section.numbers("I", count)
    require(all(a < b for a, b in zip(indices, indices[1:])), "raw32: not ascending")
    require(all(i < dim for i in indices), "raw32: index outside [0, dim)")
    return indices


def read_seed(section, dim, count, info):
    seed, step = section.numbers("Q", 2)
    rank, = section.numbers("I")
    role, = section.numbers("B")
    flat = section.numbers("I", 2 * section.u32())
    units = list(zip(flat[::2], flat[1::2]))
    info.update(seed=seed, step=step, rank=rank, role=role, units=units)
    units = units or [(dim, count)]
    require(all(k <= size for size, k in units), "seed: k above size")
    require(sum(size for size, _ in units) == dim, "seed: sizes do not add up to dim")
    require(sum(k for _, k in units) == count, "seed: k do not add up to count")
    checksum = section.u32()
    section.end()  # before the draw, which is slow
    indices = draw_units(units, seed, role, rank, step)
    require(crc32c(struct.pack(f"<{count}I", *indices)) == checksum, "seed: other indices than the sender's")
    return indices


def read_runs(section, dim, count, info):
    m_gap, m_length, runs = section.numbers("I", 3)
    info.update(M_gap=m_gap, M_length=m_length, runs=runs)
    require(m_gap >= 1 and m_length >= 1, "runs: M is 0")
    stream = Bits(section.rest(), "runs")
    indices, end = [], 0
    for run in range(runs):
        start = end + stream.golomb(m_gap) + (1 if run > 0 else 0)
        end = start + stream.golomb(m_length) + 1
        require(end <= dim, "runs: index outside [0, dim)")
        require(len(indices) + end - start <= count, "runs: more indices than count")
        indices += range(start, end)
    stream.end()
    require(len(indices) == count, "runs: fewer indices than count")
    return indices


def read_full(section, dim, count, info):
    require(count == dim, "full: count is not dim")
    return None


def decode(data):
    require(len(data) >= 28, "fewer than 28 bytes")
    magic, version, index_id, value_id, zero, dim, count = struct.unpack("<4s4B2Q", data[:24])
    require(magic == b"SWFR", "another magic")
    require(version == 1, "another version")
    require(struct.unpack("<I", data[-4:])[0] == crc32c(data[:-4]), "checksum does not match")
    require(index_id < len(INDEX_CODECS), "unknown index codec")
    packed = value_id >= 128
    value_id -= 128 * packed
    require(value_id < len(PACKED_CODECS if packed else VALUE_CODECS), "unknown value codec")
    require(zero == 0, "non-zero zero")
    require(dim < 2**32, "dim from 2^32 on")
    require(count <= dim, "count above dim")
    info = {"index_codec": INDEX_CODECS[index_id], "value_codec": VALUE_CODECS[value_id], "count": count,
            "packed": packed}

    section = Bytes(data[24:-4], "values")
    if packed:
        plain = Bytes(read_packed(section, info["value_codec"], count, info), "values")
        values = read_values(plain, info["value_codec"], count, info)
        plain.end()
    else:
        values = read_values(section, info["value_codec"], count, info)
    require(all(math.isfinite(value) for value in values), "values: not finite")
    section.what = info["index_codec"]
    read = {"full": read_full, "golomb": read_golomb, "bitmap": read_bitmap, "raw32": read_raw32, "seed": read_seed,
            "runs": read_runs, "adaptive": read_adaptive}[info["index_codec"]]
    indices = read(section, dim, count, info)
    section.end()
    return Vector(dim, indices, values, info)
