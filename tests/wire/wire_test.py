"""Compares docs/reference/wire_format.md, the frames in tests/golden/ and the program with each other.

    wire_test.py [PROGRAM] [unittest's arguments]       or the program in SPARSEWIRE

Page: decoder.py reads the frames of encoder.py; both are written from the document. Golden: frames of the library that must
remain readable for ever. Program: `PROGRAM decompress` reads valid and broken frames of encoder.py.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import npy
from decoder import INDEX_CODECS, PACKED_CODECS, VALUE_CODECS, Refused, crc32c, decode, philox
from encoder import bf16_bits, change_bits, draw_indices, f16_bits, golomb_bits, number_parts, parameter_bits, with_checksum
from frames import BROKEN, WHOLE, f32_bits, mutants, edge_frames

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "golden" / "v1"
PROGRAM = os.environ.get("SPARSEWIRE")


class Page(unittest.TestCase):
    def test_known_answers(self):
        self.assertEqual(crc32c(b"123456789"), 0xE3069283)
        self.assertEqual(philox((0, 0, 0, 0), (0, 0)), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8))

    def test_codes_worked_by_hand(self):
        for x, m, code in [(0, 1, "1"), (3, 1, "0001"), (0, 2, "10"), (1, 2, "11"), (5, 2, "0011"), (0, 3, "10"), (1, 3, "110"),
                           (2, 3, "111"), (3, 3, "010"), (2, 4, "110"), (1, 4, "101"), (0, 5, "100"), (1, 5, "110"),
                           (2, 5, "101"), (3, 5, "1110"), (4, 5, "1111"),
                           (13, 5, "001110"), (6, 8, "1110"), (3, 8, "1101"), (1, 8, "1001")]:
            self.assertEqual("".join(map(str, golomb_bits(x, m))), code, (x, m))

    def test_numbers_worked_by_hand(self):
        for x, p, linear, c, rest in [(6, 2, 1, 1, "01"), (0, 2, 1, 0, "00"), (21, 2, 1, 3, "1010"), (0, 0, 0, 0, ""),
                                      (1, 0, 0, 1, "0"), (2, 0, 0, 1, "1"), (3, 0, 0, 2, "00"), (6, 0, 0, 2, "11"),
                                      (5, 0, 63, 5, ""), (63, 0, 63, 63, ""), (64, 0, 63, 64, "0"), (9, 1, 3, 4, "10")]:
            found, bits = number_parts(x, p, linear)
            self.assertEqual((found, "".join(map(str, bits))), (c, rest), (x, p, linear))
        for d, code in [(0, "0"), (1, "101"), (-1, "111"), (2, "1001"), (-3, "11001")]:
            self.assertEqual("".join(map(str, change_bits(d))), code, d)
        for blocks, code in [([0], "0"), ([2], "11001"), ([2, 2, 2, 2, 2], "110010000"), ([0] * 9, "000"),
                             ([0, 0, 0, 0, 0, 1], "010101"), ([1, 1, 1, 1, 1, 0], "1101000" "10111")]:
            self.assertEqual("".join(map(str, parameter_bits(blocks))), code, blocks)

    def test_a_frame_written_by_hand(self):
        # Entries 1 and 4 of 6: 1.5 and -2. M is 2, the gaps 1 and 2: 1 1, 0 1 0.
        data = bytes.fromhex("53574652 01 01 00 00 0600000000000000 0200000000000000 0000c03f 000000c0 02000000 0b")
        vector = decode(with_checksum(data))
        self.assertEqual((vector.dim, vector.indices, vector.values), (6, [1, 4], [1.5, -2.0]))

    def test_every_whole_frame_gives_back_what_went_in(self):
        for whole in WHOLE:
            with self.subTest(whole.name):
                vector = decode(whole.data)
                self.assertEqual((vector.dim, vector.indices), (whole.dim, whole.indices))
                self.assertEqual(f32_bits(vector.values), whole.bits)

    def test_every_broken_frame_is_refused_for_its_reason(self):
        for broken in BROKEN:
            with self.subTest(broken.name):
                with self.assertRaisesRegex(Refused, broken.reason):
                    decode(broken.data)

    def test_anything_else_is_read_or_refused(self):
        for name, data in [*mutants(2000), *edge_frames()]:
            with self.subTest(name):
                try:
                    decode(data)
                except Refused:
                    pass

    def test_every_prefix_is_refused(self):
        for whole in WHOLE[::7]:
            for length in range(0, len(whole.data) - 4, 1 + len(whole.data) // 20):
                with self.assertRaises(Refused):
                    decode(with_checksum(whole.data[:length]))

    def test_values_round_to_nearest_even(self):
        for value, pattern in [(2049.0, 0x6800), (2051.0, 0x6802), (65519.99609375, 0x7BFF), (65520.0, 0x7BFF), (-1e30, 0xFBFF),
                               (2.0**-24, 1), (2.0**-25, 0), (1.5 * 2.0**-25, 1), (-0.0, 0x8000)]:
            self.assertEqual(f16_bits(value), pattern, value)
        for value, pattern in [(1 + 2.0**-8, 0x3F80), (1 + 3 * 2.0**-8, 0x3F82), (3.4028234663852886e38, 0x7F7F),
                               (-0.0, 0x8000), (-3.4028234663852886e38, 0xFF7F), (2.0**-149, 0), (2.0**-134, 0),
                               (3 * 2.0**-134, 2)]:
            self.assertEqual(bf16_bits(value), pattern, value)

    def test_draws_worked_step_by_step(self):
        # Unit 2 of a server. Its seed wraps around, and bit 55 is the highest bit of the step that is used.
        seed, step, rank = 2**64 - 5, 2**55 + 2**32 + 7, 3
        of_unit = (seed + 0x9E3779B97F4A7C15 + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
        draws = []
        for block in range(40):
            c = philox((block, 7, 3, 0x01800001), (of_unit & 0xFFFFFFFF, of_unit >> 32))
            draws += [c[0] | c[1] << 32, c[2] | c[3] << 32]
        for n, k in [(10, 4), (10, 5), (10, 6), (11, 5), (11, 6)]:
            first = []
            for w in draws:
                if len(first) < min(k, n - k) and (w * n) >> 64 not in first:
                    first.append((w * n) >> 64)
            local = sorted(first if k + k <= n else set(range(n)) - set(first))
            self.assertEqual(draw_indices([(4, 0), (3, 3), (n, k)], seed, step, rank, 1), [4, 5, 6] + [7 + p for p in local])

    def test_draws_are_distinct_sorted_and_change_with_each_part(self):
        for k, n in [(1, 1), (3, 10), (5, 10), (6, 10), (10, 10), (0, 10), (40, 64)]:
            base = draw_indices([(n, k)], seed=1, step=2, rank=3, role=0)
            self.assertEqual(base, sorted(set(base)))
            self.assertEqual(len(base), k)
            self.assertTrue(all(0 <= i < n for i in base))
        start = dict(seed=1, step=2, rank=3, role=0)
        base = draw_indices([(10**6, 9)], **start)
        for change in [dict(seed=2), dict(seed=1 + 2**32), dict(step=3), dict(step=2 + 2**32), dict(rank=4), dict(role=1)]:
            self.assertNotEqual(draw_indices([(10**6, 9)], **{**start, **change}), base)


class Golden(unittest.TestCase):
    def test_frames_of_the_library_read_as_expected(self):
        frames = sorted(GOLDEN.glob("*.swf"))
        self.assertTrue(frames, f"no frames in {GOLDEN}: make them with tests/golden/make.py")
        self.assertEqual([path.stem for path in frames], sorted(path.stem for path in GOLDEN.glob("*.json")))
        seen = set()
        for path in frames:
            with self.subTest(path.name):
                vector = decode(path.read_bytes())
                expected = json.loads(path.with_suffix(".json").read_text())
                self.assertEqual((vector.dim, vector.indices), (expected["dim"], expected["indices"]))
                self.assertEqual(f32_bits(vector.values), expected["value_bits"])
                seen |= {vector.info["index_codec"], vector.info["value_codec"] + " packed" * vector.info["packed"]}
        packed = [codec + " packed" for codec in PACKED_CODECS]
        self.assertEqual(seen, set(INDEX_CODECS + VALUE_CODECS + packed), "every codec has a golden frame")


class Program(unittest.TestCase):
    """A new process reads each frame, so that a crash shows which frame caused it."""

    def setUp(self):
        self.assertTrue(PROGRAM and os.path.isfile(PROGRAM), "no program: give it as the first argument or in SPARSEWIRE")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def decompress(self, data):
        """(indices, value bits), or the error message if the program refuses the frame."""
        for old in self.folder.iterdir():
            old.unlink()
        (self.folder / "in.swf").write_bytes(data)
        done = subprocess.run([PROGRAM, "decompress", self.folder / "in.swf", "-o", self.folder / "out.npy", "--sparse"],
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=60, check=False)
        message = done.stderr.decode()
        if done.returncode == 0:
            return (npy.read(self.folder / "out.indices.npy", "I"), npy.read(self.folder / "out.values.npy", "f", bits=True))
        self.assertEqual(done.returncode, 2, message)
        self.assertEqual(message.count("\n"), 1, message)
        self.assertEqual([path.name for path in self.folder.iterdir()], ["in.swf"], "a refused frame leaves a file")
        return message

    def test_reads_every_whole_frame(self):
        for whole in WHOLE:
            with self.subTest(whole.name):
                self.assertEqual(self.decompress(whole.data), (expand(whole.indices, whole.dim), whole.bits))

    def test_reads_every_golden_frame(self):
        for path in sorted(GOLDEN.glob("*.swf")):
            with self.subTest(path.name):
                expected = json.loads(path.with_suffix(".json").read_text())
                self.assertEqual(self.decompress(path.read_bytes()),
                                 (expand(expected["indices"], expected["dim"]), expected["value_bits"]))

    def test_refuses_every_broken_frame(self):
        for broken in BROKEN:
            with self.subTest(broken.name):
                self.assertIsInstance(self.decompress(broken.data), str)

    def test_agrees_about_mutants(self):
        for name, data in [*mutants(200), *edge_frames()]:
            with self.subTest(name):
                try:
                    vector = decode(data)
                except Refused as refused:
                    self.assertIsInstance(self.decompress(data), str, refused)
                else:
                    self.assertEqual(self.decompress(data), (expand(vector.indices, vector.dim), f32_bits(vector.values)))


def expand(indices, dim):
    return list(range(dim)) if indices is None else indices


if __name__ == "__main__":
    if len(sys.argv) > 1 and os.path.isfile(sys.argv[1]):
        PROGRAM = sys.argv.pop(1)
    unittest.main()
