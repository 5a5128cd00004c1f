#!/usr/bin/env python3
"""The program from outside: what it writes, what it refuses, and which files are left when it is interrupted.

    cli_test.py PROGRAM [SUITE]...     PROGRAM: the sparsewire to test; SUITE: some of the classes below
"""

import json
import math
import os
import random
import select
import shutil
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import processes

PROGRAM = ""
TOPK = ["--sparsifier", "topk:ratio=0.25"]


def npy(numbers, shape=None, descr="<f4", order="False"):
    shape = (len(numbers),) if shape is None else shape
    header = f"{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}"
    header += " " * (63 - (10 + len(header)) % 64) + "\n"
    letter = {"<f4": "f", "<f2": "e", "<f8": "d", "<i4": "i", ">f4": "f"}[descr]
    data = struct.pack(f"{'>' if descr[0] == '>' else '<'}{len(numbers)}{letter}", *numbers)
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + data


def parse_npy(content):
    """(descr, shape, numbers)"""
    assert content[:8] == b"\x93NUMPY\x01\x00", content[:8]
    end = 10 + struct.unpack("<H", content[8:10])[0]
    assert end % 64 == 0 and content[end - 1 : end] == b"\n"
    header = eval(content[10:end])  # our own output; numpy reads it with literal_eval
    assert header["fortran_order"] is False
    letter = {"<f4": "f", "<u4": "I"}[header["descr"]]
    count = math.prod(header["shape"])
    return header["descr"], header["shape"], list(struct.unpack(f"<{count}{letter}", content[end:]))


def f32(number):
    return struct.unpack("<f", struct.pack("<f", number))[0]


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def raw_frame(dim, entries):
    """A frame by hand, as docs/wire_format.md says: indices raw32, values f32."""
    frame = b"SWFR" + bytes([1, 3, 0, 0]) + struct.pack("<QQ", dim, len(entries))
    frame += b"".join(struct.pack("<f", value) for _, value in entries)
    frame += b"".join(struct.pack("<I", index) for index, _ in entries)
    return frame + struct.pack("<I", crc32c(frame))


def gaussians(count, seed=1):
    draw = random.Random(seed)
    return [f32(draw.gauss(0, 1)) for _ in range(count)]


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="sparsewire_cli_"))
        self.addCleanup(shutil.rmtree, self.folder)

    def put(self, name, content):
        (self.folder / name).write_bytes(content)
        return name

    def get(self, name):
        return (self.folder / name).read_bytes()

    def numbers(self, name):
        return parse_npy(self.get(name))[2]

    def start(self, *arguments, **more):
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return processes.start(self, [PROGRAM, *arguments], cwd=self.folder, **pipes, **more)

    def run_program(self, *arguments, stdin=b"", **more):
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return processes.run([PROGRAM, *arguments], cwd=self.folder, stdin=stdin, **{**pipes, **more})

    def run_ok(self, *arguments, **more):
        done = self.run_program(*arguments, **more)
        self.assertEqual((done.returncode, done.stderr), (0, b""), arguments)
        return done.stdout

    def snapshot(self):
        return {p.name: (p.lstat().st_ino, p.lstat().st_mode, p.read_bytes() if p.is_file() else None) for p in self.folder.iterdir()}

    def refuses(self, *arguments, code=2, says="", lines=1, **more):
        """One line on standard error, nothing else, and every file is as it was."""
        before = self.snapshot()
        done = self.run_program(*arguments, **more)
        message = done.stderr.decode()
        self.assertEqual(done.returncode, code, f"{arguments}: {message}")
        self.assertEqual(done.stdout, b"")
        self.assertRegex(message, r"\Asparsewire( \w+)?: .")
        self.assertEqual(message.count("\n"), lines, message)
        self.assertIn(says, message)
        self.assertEqual(self.snapshot(), before, f"{arguments} changed a file")
        return message

    def compress(self, *arguments, sparsifier="topk:ratio=0.25", name="in.npy"):
        return json.loads(self.run_ok("compress", name, "--sparsifier", sparsifier, "-o", "out.swf", "--json", "-", *arguments))

    def decompress(self):
        self.run_ok("decompress", "out.swf", "-o", "out.npy")
        return self.numbers("out.npy")


class Compress(Case):
    def test_keeps_the_largest_and_leaves_the_rest_in_the_memory(self):
        self.put("in.npy", npy([1, -5, 3, 0.5, 2, 7, -1, 0]))
        out = self.run_ok("compress", "in.npy", *TOPK, "--memory", "mem.npy", "-o", "out.swf")
        self.assertRegex(out.decode(), r"\Akept 2 of 8 entries in \d+ bytes: \d+\.\d bits per entry\n\Z")
        self.assertEqual(self.decompress(), [0, -5, 0, 0, 0, 7, 0, 0])
        self.assertEqual(parse_npy(self.get("mem.npy")), ("<f4", (8,), [1, 0, 3, 0.5, 2, 0, -1, 0]))

    def test_adds_the_gradient_to_the_memory(self):
        self.put("in.npy", npy([1, 0, 0, 0]))
        self.put("mem.npy", npy([1, 1.5, 0, 0]))
        self.compress("--memory", "mem.npy")
        self.assertEqual(self.decompress(), [2, 0, 0, 0])
        self.assertEqual(self.numbers("mem.npy"), [0, 1.5, 0, 0])

    def test_loses_nothing_whatever_the_values_travel_as(self):
        draw = random.Random(3)
        for size in (0, 1, 17, 1000):
            for codec in ("auto", "golomb:values=f16", "raw32:values=bf16", "bitmap:values=f16", "runs:values=bf16"):
                memory = [0.0] * size
                (self.folder / "mem.npy").unlink(missing_ok=True)
                for step in range(3):
                    gradient = [f32(draw.randrange(-(1 << 20), 1 << 20) / 1024 + draw.gauss(0, 1)) for _ in range(size)]
                    self.put("in.npy", npy(gradient))
                    self.compress("--memory", "mem.npy", "--codec", codec)
                    total = [f32(a + b) for a, b in zip(memory, gradient)]
                    memory = self.numbers("mem.npy")
                    sent = self.decompress()
                    self.assertEqual([a + b for a, b in zip(sent, memory)], total, (size, codec, step))
                    self.assertEqual(len(sent), size)

    def test_clips_what_f16_cannot_hold_and_keeps_the_rest(self):
        self.put("in.npy", npy([100000, 1]))
        self.compress("--memory", "mem.npy", "--codec", "auto:values=f16", sparsifier="topk:k=1")
        self.assertEqual((self.decompress(), self.numbers("mem.npy")), ([65504, 0], [100000 - 65504, 1]))

    def test_reads_halves(self):
        self.put("in.npy", npy([1, -2.5, 0.125, 3], descr="<f2"))
        self.compress("--memory", "mem.npy")
        self.assertEqual((self.decompress(), self.numbers("mem.npy")), ([0, 0, 0, 3], [1, -2.5, 0.125, 0]))

    def test_keeps_the_shape_in_the_memory(self):
        for shape, size in (((2, 4), 8), ((), 1), ((0,), 0), ((3, 0), 0), ((1, 17, 1), 17)):
            with self.subTest(shape=shape):
                self.put("in.npy", npy(gaussians(size), shape))
                self.put("mem.npy", npy([0.5] * size))  # another shape, as many entries
                self.assertEqual(self.compress("--memory", "mem.npy")["dim"], size)
                self.assertEqual(parse_npy(self.get("mem.npy"))[:2], ("<f4", shape))
                self.assertEqual(len(self.decompress()), size)

    def test_reports_in_json(self):
        self.put("in.npy", npy(gaussians(20000)))
        for sparsifier in ("topk:ratio=0.01", "dense"):
            for codec in ("auto", "golomb:values=int8", "bitmap:values=int2,block=16", "raw32"):
                report = self.compress("--codec", codec, sparsifier=sparsifier)
                self.assertEqual(
                    list(report),
                    ["dim", "kept", "frame_bytes", "bits_per_entry", "index_bits_per_entry", "value_bits_per_entry"]
                    + ["header_bits", "entropy_bound_index_bits", "codec", "step"],
                )
                self.assertEqual(report["frame_bytes"], len(self.get("out.swf")))
                self.assertEqual((report["dim"], report["kept"]), (20000, 200 if sparsifier != "dense" else 20000))
                bits = (report["index_bits_per_entry"] + report["value_bits_per_entry"]) * report["kept"] + report["header_bits"]
                self.assertAlmostEqual(bits, 8 * report["frame_bytes"], places=6)
                self.assertAlmostEqual(report["bits_per_entry"] * report["kept"], 8 * report["frame_bytes"], places=6)
                inspected = json.loads(self.run_ok("inspect", "out.swf", "--json", "-"))
                self.assertEqual({**report, "version": 1}, {**inspected, "step": 0})
        report = self.compress(sparsifier="topk:ratio=0.01")
        bound = (math.lgamma(20001) - math.lgamma(201) - math.lgamma(19801)) / math.log(2) / 200
        self.assertAlmostEqual(report["entropy_bound_index_bits"], bound, places=6)
        self.assertEqual(report["codec"], "golomb:values=f32")

    def test_reports_frames_without_entries(self):
        for numbers in ([], [0.0] * 100):
            self.put("in.npy", npy(numbers))
            report = self.compress(sparsifier="threshold:lambda=1")
            self.assertEqual((report["kept"], report["bits_per_entry"]), (0, 0))
            self.assertEqual(report["header_bits"], 8 * report["frame_bytes"])
            self.run_ok("inspect", "out.swf")
            self.assertEqual(self.decompress(), numbers)

    def test_writes_the_report_beside_the_text(self):
        self.put("in.npy", npy(gaussians(100)))
        out = self.run_ok("compress", "in.npy", *TOPK, "-o", "out.swf", "--json", "report.json")
        self.assertIn(b"kept 25 of 100", out)
        self.assertEqual(json.loads(self.get("report.json"))["kept"], 25)

    def test_scales_by_the_learning_rate(self):
        self.put("in.npy", npy([4, 1]))
        self.compress("--memory", "mem.npy", "--feedback", "ef:scale=lr", "--lr", "0.5", sparsifier="topk:k=1")
        self.assertEqual((self.decompress(), self.numbers("mem.npy")), ([2, 0], [0, 0.5]))
        self.refuses("compress", "in.npy", *TOPK, "-o", "out.swf", "--lr", "0.5", says="scale=lr")

    def test_drops_the_rest_without_feedback(self):
        self.put("in.npy", npy([4, 1]))
        self.compress("--memory", "mem.npy", "--feedback", "none", sparsifier="topk:k=1")
        self.assertEqual(self.numbers("mem.npy"), [0, 0])

    def test_draws_by_step_seed_and_rank(self):
        self.put("in.npy", npy(gaussians(5000)))
        spec = ["--codec", "seed"]
        frames = set()
        for place in (["--step", "7", "--seed", "3", "--rank", "1"], ["--step", "8", "--seed", "3", "--rank", "1"],
                      ["--step", "7", "--seed", "4", "--rank", "1"], ["--step", "7", "--seed", "3", "--rank", "2"]):  # fmt: skip
            report = self.compress(*spec, *place, sparsifier="randomk:ratio=0.01")
            self.assertEqual((report["kept"], report["codec"]), (50, "seed:values=f32"))
            self.assertEqual(report["step"], int(place[1]))
            frame = self.get("out.swf")
            frames.add(frame)
            dense = self.decompress()
            self.assertEqual(sum(number != 0 for number in dense), 50)
            self.compress(*spec, *place, "--ranks", "5", sparsifier="randomk:ratio=0.01")
            self.assertEqual(self.get("out.swf"), frame, "the same draw twice")
            self.compress("--codec", "golomb", *place, sparsifier="randomk:ratio=0.01")
            self.assertEqual(self.decompress(), dense, "seed and golomb carry the same entries")
        self.assertEqual(len(frames), 4)
        self.refuses("compress", "in.npy", *TOPK, *spec, "-o", "out.swf", says="seed")

    def test_names_wrong_options(self):
        self.put("in.npy", npy(gaussians(8)))
        self.put("mem.npy", npy(gaussians(8)))
        base = ["compress", "in.npy", "-o", "out.swf", "--memory", "mem.npy"]
        self.refuses(*base, "--sparsifier", "topk:ratio=7", says="[topk] ratio=7 is not in (0, 1]")
        self.refuses(*base, "--sparsifier", "nosuch", says="nosuch")
        self.refuses(*base, *TOPK, "--codec", "nosuch", says="nosuch")
        self.refuses(*base, *TOPK, "--codec", "auto:values=f64", says="f64")
        self.refuses(*base, *TOPK, "--feedback", "nosuch", says="nosuch")
        self.refuses(*base, *TOPK, "--rank", "3", "--ranks", "3", says="--rank 3 is not below --ranks 3")
        for option in ("--step=-1", "--step=1.5", "--step=0x10", "--seed=x", "--seed=18446744073709551616", "--rank=2147483647"):
            self.refuses(*base, *TOPK, option, lines=2, says=option.split("=")[0])
        self.refuses(*base, *TOPK, "--lr", "nan", lines=2, says="--lr")
        self.refuses(*base, lines=2, says="--sparsifier")
        self.refuses("compress", "in.npy", *TOPK, lines=2, says="--output")
        self.refuses("compress", *TOPK, "-o", "out.swf", lines=2, says="IN.npy")
        self.refuses(*base, *TOPK, "--nosuch", lines=2, says="--nosuch")
        self.assertEqual(self.compress("--step", "010")["step"], 10)


class BadFiles(Case):
    """Each is one line, exit code 2, and leaves everything as it was."""

    def bad_npy(self):
        whole = npy(gaussians(8))
        for size in (0, 1, 5, 6, 7, 8, 9, 10, 50, 127, 128, 129, 131, len(whole) - 1):
            yield f"cut to {size}", whole[:size], "cut short" if size else "not a .npy file"
        yield "too long", whole + b"\0", "more than"
        yield "foreign", b"PK\x03\x04" + whole, "not a .npy file"
        yield "double", npy(gaussians(8), descr="<f8"), "'<f8'"
        yield "integers", npy([1] * 8, descr="<i4"), "'<i4'"
        yield "big-endian", npy(gaussians(8), descr=">f4"), "'>f4'"
        yield "Fortran", npy(gaussians(8), (2, 4), order="True"), "Fortran"
        yield "huge", npy([], (1 << 62,)), "more numbers"
        yield "large", npy([], (1 << 40,)), "cut short"

    def test_as_the_gradient(self):
        self.put("mem.npy", npy(gaussians(8)))
        self.put("out.swf", b"an older frame")
        for name, content, why in self.bad_npy():
            with self.subTest(name):
                self.put("in.npy", content)
                self.assertIn("'in.npy'", self.refuses("compress", "in.npy", *TOPK, "--memory", "mem.npy", "-o", "out.swf", says=why))

    def test_as_the_memory(self):
        self.put("in.npy", npy(gaussians(8)))
        half = ("half", npy([1] * 8, descr="<f2"), "float16")
        other = ("other size", npy([1] * 9), "9 entries")
        nan = ("nan", npy([0, 1, math.nan] + [0] * 5), "nan at index 2")
        infinite = ("infinite", npy([-math.inf] + [0] * 7), "-inf at index 0")
        for name, content, why in [*self.bad_npy(), half, other, nan, infinite]:
            with self.subTest(name):
                self.put("mem.npy", content)
                self.assertIn("'mem.npy'", self.refuses("compress", "in.npy", *TOPK, "--memory", "mem.npy", "-o", "out.swf", says=why))

    def test_with_numbers_that_are_not_finite(self):
        self.put("mem.npy", npy([3e38] * 4))
        for numbers in ([0, math.nan, 0, 0], [0, 0, 0, math.inf], [0, 0, 3e38, 0]):
            for sparsifier in ("topk:k=1", "dense", "randomk:k=2", "threshold:lambda=1"):
                self.put("in.npy", npy(numbers))
                self.refuses("compress", "in.npy", "--sparsifier", sparsifier, "--memory", "mem.npy", "-o", "out.swf", says="'in.npy'")

    def test_as_a_frame(self):
        good = raw_frame(10, [(2, 1.5), (7, -3)])
        self.put("good.swf", good)
        self.put("out.npy", b"older")
        self.run_ok("inspect", "good.swf")
        broken = [good[:size] for size in range(len(good))]
        broken += [good[:i] + bytes([good[i] ^ 4]) + good[i + 1 :] for i in range(len(good))]
        broken += [good + b"\0", npy(gaussians(8)), raw_frame(2, [(2, 1.5)]), raw_frame(10, [(7, 1), (2, 1)])]
        for i, content in enumerate(broken):
            self.put("bad.swf", content)
            if i % 7 == 0:
                self.refuses("inspect", "bad.swf", says="cannot read 'bad.swf': ")
            self.refuses("decompress", "bad.swf", "-o", "out.npy", says="cannot read 'bad.swf': ")

    def test_that_are_missing_or_not_files(self):
        self.put("in.npy", npy(gaussians(8)))
        self.put("mem.npy", npy(gaussians(8)))
        (self.folder / "sub").mkdir()
        (self.folder / "loop").symlink_to("loop")
        self.refuses("compress", "no.npy", *TOPK, "--memory", "mem.npy", "-o", "out.swf", says="cannot read 'no.npy': No such file")
        self.refuses("compress", "sub", *TOPK, "--memory", "mem.npy", "-o", "out.swf", says="cannot read 'sub': Is a directory")
        self.refuses("compress", "in.npy", *TOPK, "--memory", "sub", "-o", "out.swf", says="--memory 'sub' is not a file")
        self.refuses("compress", "in.npy", *TOPK, "--state", "/dev/null", "-o", "out.swf", says="--state '/dev/null' is not a file")
        self.refuses("compress", "in.npy", *TOPK, "--memory", "loop", "-o", "out.swf", says="'loop'")
        for command in (["inspect"], ["decompress", "-o", "out.npy"]):
            self.refuses(*command, "no.swf", says="cannot read 'no.swf': No such file")
            self.refuses(*command, "sub", says="cannot read 'sub': Is a directory")
        if os.geteuid() != 0:
            (self.folder / "in.npy").chmod(0)
            done = self.run_program("compress", "in.npy", *TOPK, "-o", "out.swf")
            self.assertEqual((done.returncode, done.stderr), (2, b"sparsewire: cannot read 'in.npy': Permission denied\n"))

    def feed_without_end(self, *arguments, first=b""):
        """How many bytes it read before it gave up, and what it said. Nobody has to wait: it gets 64 MiB at most."""
        process = self.start(*arguments, stdin=subprocess.PIPE, bufsize=0)
        fed = 0
        try:
            process.stdin.write(first)
            while fed < 64 << 20:
                fed += process.stdin.write(bytes(65536))
        except BrokenPipeError:
            pass
        process.stdin.close()
        process.stdin = None  # so that communicate() does not flush it
        message = process.communicate()[1].decode()
        self.assertEqual((process.returncode, message.count("\n")), (2, 1), message)
        return fed, message

    def test_that_never_end(self):
        header = raw_frame(1000, [(2, 1.5)])[:24]
        for arguments, first, why in (
            (["inspect", "-"], b"", "not a frame"),
            (["decompress", "-", "-o", "out.npy"], b"", "not a frame"),
            (["inspect", "-"], header, "the checksum does not match"),
            (["train", "--config", "/dev/stdin"], b"", "longer than"),
            (["train", "--problem", "logreg", "--data", "/dev/stdin"], b"", "not a text file"),
            (["reproduce", "threshold-logreg", "--data", "/dev/stdin"], b"+1 1:1\n", "not a text file"),
            (["compress", "-", *TOPK, "-o", "out.swf"], b"", "is not a .npy file"),
        ):
            with self.subTest(arguments):
                fed, message = self.feed_without_end(*arguments, first=first)
                self.assertIn(why, message)
                self.assertLess(fed, 4 << 20)
        self.assertEqual(self.snapshot(), {})

    def test_with_line_breaks_in_their_names_are_reported_in_one_line(self):
        self.put("in.npy", npy(gaussians(8)))
        self.refuses("inspect", "no\nsuch\x1b[1m", says="'no\\nsuch\\x1b[1m'")
        self.refuses("compress", "in.npy", "--sparsifier", "a\nb", "-o", "out.swf", says="a\\nb")
        self.refuses("compress", "in.npy", *TOPK, "-o", "no\n/out.swf", code=1, says="no\\n/out.swf")
        self.refuses("compress", "in.npy", *TOPK, "-o", "out.swf", "--step", "1\n2", lines=2, says="1\\n2")
        self.refuses("compress", "in.npy", *TOPK, "-o", "out.swf", "--no\nsuch", lines=2, says="--no\\nsuch")
        self.refuses("no\nsuch", lines=2, says="'no\\nsuch'")
        self.refuses("train", "--problem", "a\tb\u009bc", says="a\\tb\\xc2\\x9bc")
        done = self.run_program("train", "--metrics", "m\n.jsonl", "--steps", "1")
        self.assertEqual(done.stderr.count(b"\n"), 2, done.stderr)  # the configuration and one step

    def test_that_cannot_be_written(self):
        self.put("in.npy", npy(gaussians(8)))
        self.put("mem.npy", npy(gaussians(8)))
        self.put("out.swf", raw_frame(10, [(2, 1.5)]))
        step = ["compress", "in.npy", *TOPK, "--memory", "mem.npy", "-o"]
        self.refuses(*step, "no/out.swf", code=1, says="cannot write 'no/out.swf': No such file or directory")
        self.refuses(*step, "/dev/full", code=1, says="cannot write '/dev/full': No space left on device")
        self.refuses(*step, ".", code=1, says="cannot write '.': Is a directory")
        self.refuses(*step, "new.swf", "--json", "no/report", code=1, says="'no/report'")
        self.refuses(*step, "new.swf", "--json", "/dev/full", code=1, says="'/dev/full'")
        self.refuses(*step, "new.swf", "--state", "no/state", code=1, says="'no/state'")
        self.refuses("compress", "in.npy", *TOPK, "--memory", "no/mem.npy", "-o", "new.swf", code=1, says="'no/mem.npy'")
        self.refuses("decompress", "out.swf", "-o", "no/out.npy", code=1, says="'no/out.npy'")
        self.refuses("decompress", "out.swf", "-o", "/dev/full", code=1, says="'/dev/full'")
        self.refuses("inspect", "out.swf", "--json", "no/report", code=1, says="'no/report'")

    def test_that_are_the_same(self):
        for name in ("in.npy", "mem.npy"):
            self.put(name, npy(gaussians(8)))
        self.put("frame.swf", raw_frame(10, [(2, 1.5)]))
        (self.folder / "sub").mkdir()
        (self.folder / "link").symlink_to("in.npy")
        (self.folder / "future").symlink_to("sub/new")
        def step(*more):
            return ["compress", "in.npy", *TOPK, *more]  # fmt: skip
        for arguments in (
            step("-o", "in.npy"), step("-o", "./sub/../in.npy"), step("-o", "link"), step("-o", str(self.folder / "in.npy")),
            step("-o", "o", "--memory", "in.npy"), step("-o", "o", "--memory", "link"), step("-o", "mem.npy", "--memory", "mem.npy"),
            step("-o", "o", "--memory", "o"), step("-o", "future", "--memory", "sub/new"), step("-o", "o", "--memory", "s", "--state", "s"),
            step("-o", "o", "--json", "./o"), step("-o", "o", "--json", "in.npy"), step("-o", "-", "--json", "-"),
            ["decompress", "frame.swf", "-o", "frame.swf"], ["decompress", "frame.swf", "-o", "x", "--json", "x"],
            ["decompress", "frame.swf", "-o", "x.npy", "--sparse", "--json", "x.values.npy"], ["inspect", "frame.swf", "--json", "frame.swf"],
        ):  # fmt: skip
            with self.subTest(arguments):
                self.refuses(*arguments, says="are the same file")


class State(Case):
    def step(self, numbers, sparsifier, *more):
        self.put("in.npy", npy(numbers))
        report = self.compress("--state", "s", *more, sparsifier=sparsifier)
        return report, self.decompress()

    def test_is_needed_by_what_remembers_more_than_the_memory(self):
        self.put("in.npy", npy(gaussians(100)))
        for more in (["--sparsifier", "regtopk:ratio=0.1"], ["--sparsifier", "threshold:ratio=0.1"],
                     [*TOPK, "--feedback", "momentum"]):  # fmt: skip
            for memory in ([], ["--memory", "mem.npy"]):
                self.refuses("compress", "in.npy", "-o", "out.swf", *more, *memory, says="it needs --state FILE")
        self.compress(sparsifier="threshold:lambda=0.5")  # remembers nothing
        self.compress(sparsifier="threshold:ratio=0.1,rule=sqrt")

    def test_carries_a_velocity(self):
        momentum = ["--feedback", "momentum:m=0.5"]
        _, sent = self.step([4, 1], "topk:k=1", *momentum)
        self.assertEqual(sent, [4, 0])
        report, sent = self.step([0, 0], "topk:k=1", *momentum)
        self.assertEqual(sent, [0, 1.5])  # the memory's 1 and half the velocity's
        self.assertEqual(report["step"], 1)

    def test_carries_a_calibration(self):
        spec = "threshold:ratio=0.1,calibrate=2"
        for i in range(2):
            report, _ = self.step(gaussians(100, seed=i), spec, "--memory", "mem.npy")
            self.assertEqual((report["step"], report["kept"]), (i, 10))
        report, _ = self.step([0] * 100, spec, "--memory", "mem.npy")
        self.assertEqual(report["kept"], 0)  # all that is left lies below the threshold measured
        report, sent = self.step([1000] + [0] * 99, spec, "--memory", "mem.npy")
        self.assertEqual(report["kept"], 1)

    def test_carries_the_memory_of_regtopk(self):
        memory = [0.0] * 50
        for i in range(4):
            gradient = gaussians(50, seed=i)
            report, sent = self.step(gradient, "regtopk:ratio=0.1", "--memory", "mem.npy", "--rank", "1", "--ranks", "4")
            total = [f32(a + b) for a, b in zip(memory, gradient)]
            memory = self.numbers("mem.npy")
            self.assertEqual([a + b for a, b in zip(sent, memory)], total)
            self.assertEqual((report["step"], report["kept"]), (i, 5))

    def test_holds_the_memory_too(self):
        self.step([4, 3, 2, 1], "topk:k=1")
        _, sent = self.step([0] * 4, "topk:k=1")
        self.assertEqual(sent, [0, 3, 0, 0])

    def test_refuses_a_memory_file_that_is_not_its_own(self):
        self.step([4, 3, 2, 1], "topk:k=1", "--memory", "mem.npy")
        good = self.get("mem.npy")
        self.put("mem.npy", npy([0, 0, 0, 9]))
        base = ["compress", "in.npy", "--sparsifier", "topk:k=1", "--state", "s", "--memory", "mem.npy", "-o", "out.swf"]
        self.refuses(*base, says="to continue from the state, remove the memory")
        self.put("mem.npy", good)
        _, sent = self.step([0] * 4, "topk:k=1", "--memory", "mem.npy")
        self.assertEqual(sent, [0, 3, 0, 0])

    def test_stands_in_for_a_memory_file_that_is_missing(self):
        self.step([4, 3, 2, 1], "topk:k=1", "--memory", "mem.npy")
        (self.folder / "mem.npy").unlink()
        _, sent = self.step([0] * 4, "topk:k=1", "--memory", "mem.npy")
        self.assertEqual(sent, [0, 3, 0, 0])
        self.assertEqual(self.numbers("mem.npy"), [0, 0, 2, 1])

    def test_knows_its_step(self):
        self.step(gaussians(8), "topk:k=1", "--step", "5")
        report, _ = self.step(gaussians(8), "topk:k=1")
        self.assertEqual(report["step"], 6)
        report, _ = self.step(gaussians(8), "topk:k=1", "--step", "7")
        self.assertEqual(report["step"], 7)
        base = ["compress", "in.npy", "--sparsifier", "topk:k=1", "--state", "s", "-o", "out.swf"]
        self.refuses(*base, "--step", "7", says="'s' is at step 8")

    def test_that_does_not_fit_is_refused(self):
        self.step(gaussians(8), "topk:k=1", "--memory", "mem.npy")
        good = self.get("s")
        base = ["compress", "in.npy", "--memory", "mem.npy", "--state", "s", "-o", "out.swf", "--sparsifier"]
        self.refuses(*base, "topk:k=2", says="'s': [state] was saved by 'topk:k=1'")
        self.refuses(*base, "topk:k=1", "--feedback", "none", says="'s': [state]")
        for content in (b"", b"SWST", good[:-1], good + b"\0", good[:50] + b"\xff" + good[51:], npy(gaussians(8))):
            self.put("s", content)
            self.refuses(*base, "topk:k=1", says="'s': [state]")
        self.put("s", good)
        self.put("in.npy", npy(gaussians(9)))
        (self.folder / "mem.npy").unlink()
        self.refuses(*base, "topk:k=1", says="'s': ")


class Files(Case):
    def test_are_not_written_to_a_closed_output(self):
        """A closed standard output must not become the lock of the memory, or any other file."""
        self.put("in.npy", npy(gaussians(8)))
        for output in ("-", "out.swf"):
            with self.subTest(output):
                command = ["compress", "in.npy", "--sparsifier", "topk:k=2", "--memory", "mem.npy", "-o", output]
                done = processes.run(["sh", "-c", 'exec "$0" "$@" >&-', PROGRAM, *command], cwd=self.folder,
                                     stderr=subprocess.PIPE)
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertFalse((self.folder / "mem.npy").exists(), "the entries of the frame would be lost")

    def test_have_locks_of_their_own_even_if_their_names_begin_alike(self):
        self.put("in.npy", npy(gaussians(8)))
        self.compress("--memory", "a" * 205 + "m", "--state", "a" * 205 + "s")

    def test_are_reached_through_links_and_keep_their_mode(self):
        (self.folder / "sub").mkdir()
        self.put("in.npy", npy(gaussians(8)))
        self.put("sub/mem.npy", npy([0] * 8))
        (self.folder / "sub/mem.npy").chmod(0o640)
        (self.folder / "mem.npy").symlink_to("sub/mem.npy")
        (self.folder / "out.swf").symlink_to("sub/frame")
        self.compress("--memory", "mem.npy")
        self.assertTrue((self.folder / "mem.npy").is_symlink() and (self.folder / "out.swf").is_symlink())
        self.assertEqual(stat.S_IMODE((self.folder / "sub/mem.npy").stat().st_mode), 0o640)
        self.assertEqual(sum(number != 0 for number in self.numbers("sub/mem.npy")), 6)
        self.assertEqual(sorted(p.name for p in (self.folder / "sub").iterdir()), ["frame", "mem.npy"])

    def test_that_are_new_have_the_usual_mode(self):
        self.put("in.npy", npy(gaussians(8)))
        self.run_ok("compress", "in.npy", *TOPK, "--memory", "mem.npy", "-o", "out.swf", umask=0o027)
        for name in ("mem.npy", "out.swf"):
            self.assertEqual(stat.S_IMODE((self.folder / name).stat().st_mode), 0o640)
        self.assertEqual(len(self.snapshot()), 3, "nothing else is left")

    def test_can_be_standard_input_and_output(self):
        gradient = npy(gaussians(30000))
        self.put("in.npy", gradient)
        self.compress()
        frame = self.get("out.swf")
        for names in (("-", "-"), ("/dev/stdin", "/dev/stdout")):
            self.assertEqual(self.run_ok("compress", names[0], *TOPK, "-o", names[1], stdin=gradient), frame)
            self.decompress()
            self.assertEqual(self.run_ok("decompress", names[0], "-o", names[1], stdin=frame), self.get("out.npy"))
            self.assertIn(b"golomb", self.run_ok("inspect", names[0], stdin=frame))
        with open(self.folder / "log", "wb") as log:
            log.write(b"before ")
            log.flush()
            self.assertEqual(self.run_program("compress", "in.npy", *TOPK, "-o", "-", stdout=log).returncode, 0)
            log.seek(0, os.SEEK_END)
            log.write(b" after")
        self.assertEqual(self.get("log"), b"before " + frame + b" after")
        self.refuses("decompress", "out.swf", "-o", "-", "--sparse", says="--sparse")

    def test_may_be_null_devices(self):
        self.put("in.npy", npy(gaussians(8)))
        self.run_ok("compress", "in.npy", *TOPK, "-o", "/dev/null", "--json", "/dev/null")

    def stop_in_the_middle(self):
        """A step that cannot end: its frame is longer than the pipe holds. Its first byte has been read."""
        self.put("in.npy", npy(gaussians(100000)))
        self.put("mem.npy", npy([0] * 100000))
        os.mkfifo(self.folder / "pipe")
        pipe = os.fdopen(os.open(self.folder / "pipe", os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0)
        process = self.start("compress", "in.npy", "--sparsifier", "dense", "--memory", "mem.npy", "--state", "s", "-o", "pipe")
        self.assertTrue(select.select([pipe], [], [], 60)[0], "no frame came")
        os.set_blocking(pipe.fileno(), True)
        return process, pipe, pipe.read(1)

    def test_survive_a_kill_before_the_frame_is_complete(self):
        before = npy([0] * 100000)
        process, pipe, _ = self.stop_in_the_middle()
        self.assertEqual(self.get("mem.npy"), before)
        self.assertFalse((self.folder / "s").exists())
        process.send_signal(signal.SIGKILL)
        process.communicate()
        pipe.close()
        self.assertEqual(self.get("mem.npy"), before)
        self.compress("--memory", "mem.npy", "--state", "s", sparsifier="dense")
        self.assertEqual(self.decompress(), gaussians(100000))

    def locks(self):
        return list(self.folder.glob("*.lock")) + list(self.folder.glob(".*.lock"))

    def test_are_for_one_compress_at_a_time(self):
        process, pipe, _ = self.stop_in_the_middle()
        (self.folder / "link").symlink_to("mem.npy")
        other = ["compress", "in.npy", *TOPK, "-o", "other.swf"]
        for option, name in (("--memory", "mem.npy"), ("--memory", "link"), ("--state", "s")):
            self.refuses(*other, option, name, says=f"{option} '{name}' is in use by another 'sparsewire compress'")
        self.run_ok(*other, "--memory", "other.npy", "--state", "t")  # others in the same folder are free
        pipe.readall()
        pipe.close()
        self.assertEqual(process.wait(), 0)
        self.run_ok(*other, "--memory", "mem.npy")
        self.assertEqual(self.locks(), [])

    def test_are_free_again_after_a_kill(self):
        process, pipe, _ = self.stop_in_the_middle()
        process.kill()
        process.communicate()
        pipe.close()
        self.compress("--memory", "mem.npy", "--state", "s", sparsifier="dense")
        self.assertEqual(self.locks(), [])

    def test_are_tidied_up_after_ctrl_c(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            process, pipe, _ = self.stop_in_the_middle()
            process.send_signal(number)
            process.communicate()
            pipe.close()
            self.assertEqual(process.returncode, -number)
            self.assertEqual(self.get("mem.npy"), npy([0] * 100000))
            self.assertEqual(sorted(self.snapshot()), ["in.npy", "mem.npy", "pipe"])
            (self.folder / "pipe").unlink()

    def test_do_not_change_if_nothing_can_be_printed(self):
        self.put("in.npy", npy(gaussians(8)))
        self.put("mem.npy", npy([0] * 8))
        before = self.snapshot()
        for more in ([], ["--json", "-"]):
            with open("/dev/full", "wb") as full:
                done = self.run_program("compress", "in.npy", *TOPK, "--memory", "mem.npy", "-o", "out.swf", *more, stdout=full)
            self.assertEqual((done.returncode, done.stderr), (1, b"sparsewire: cannot write standard output\n"))
            self.assertEqual(self.snapshot(), before)

    def test_are_not_the_standard_output(self):
        self.put("in.npy", npy(gaussians(8)))
        self.put("mem.npy", npy([0] * 8))
        with open(self.folder / "mem.npy", "ab") as log:
            done = self.run_program("compress", "in.npy", *TOPK, "--memory", "mem.npy", "-o", "out.swf", stdout=log)
        self.assertEqual((done.returncode, done.stderr.count(b"\n")), (2, 1))
        self.assertEqual(self.get("mem.npy"), npy([0] * 8))
        self.refuses("compress", "in.npy", *TOPK, "-o", "-", "--json", "/dev/stdout", says="the same file")

    def test_may_have_names_that_are_not_text(self):
        self.put("in.npy", npy(gaussians(8)))
        self.compress()
        done = self.run_program("decompress", "out.swf", "-o", b"\xff.npy", "--json", "j")
        self.assertEqual((done.returncode, done.stderr), (0, b""))

    def test_survive_a_reader_that_leaves(self):
        process, pipe, _ = self.stop_in_the_middle()
        pipe.close()
        self.assertEqual(process.communicate()[1], b"sparsewire: cannot write 'pipe': Broken pipe\n")
        self.assertEqual(process.returncode, 1)
        self.assertEqual(self.get("mem.npy"), npy([0] * 100000))
        self.assertEqual(sorted(self.snapshot()), ["in.npy", "mem.npy", "pipe"])

    def test_change_after_the_frame_is_complete(self):
        process, pipe, frame = self.stop_in_the_middle()
        (self.folder / "mem.npy").unlink()
        (self.folder / "mem.npy").mkdir()  # so that it cannot be replaced
        frame += pipe.readall()
        pipe.close()
        self.assertEqual(process.communicate()[1], b"sparsewire: cannot write 'mem.npy': Is a directory\n")
        self.assertEqual(process.returncode, 1)
        self.put("out.swf", frame)
        self.assertEqual(self.decompress(), gaussians(100000))
        self.assertEqual(sorted(self.snapshot()), ["in.npy", "mem.npy", "out.npy", "out.swf", "pipe", "s"])

    def stop_before_the_first_rename(self, spoil):
        """Waits for a reader of its report, when the temporary file of the memory is written; then `spoil` becomes a folder."""
        self.put("in.npy", npy([4, 1]))
        self.put("mem.npy", npy([0, 0]))
        os.mkfifo(self.folder / "report")
        process = self.start("compress", "in.npy", "--sparsifier", "topk:k=1", "--memory", "mem.npy", "-o", "out.swf", "--json", "report")
        while not list(self.folder.glob(".sparsewire-*.tmp")):
            self.assertEqual((process.poll(), self.get("mem.npy")), (None, npy([0, 0])))
        (self.folder / spoil).unlink(missing_ok=True)
        (self.folder / spoil).mkdir()
        report = os.open(self.folder / "report", os.O_RDONLY | os.O_NONBLOCK)  # now it continues
        self.addCleanup(os.close, report)
        self.assertEqual(process.communicate(timeout=60)[1].decode(), f"sparsewire: cannot write '{spoil}': Is a directory\n")
        self.assertEqual(process.returncode, 1)
        self.assertEqual(list(self.folder.glob(".sparsewire-*")), [])

    def test_leave_the_memory_where_the_frame_fails(self):
        self.stop_before_the_first_rename("out.swf")
        self.assertEqual(self.get("mem.npy"), npy([0, 0]))

    def test_leave_the_frame_where_the_memory_fails(self):
        self.stop_before_the_first_rename("mem.npy")
        self.assertEqual(self.decompress(), [4, 0])


class Decompress(Case):
    def test_reads_a_frame_made_by_hand(self):
        self.put("out.swf", raw_frame(10, [(2, 1.5), (7, -3)]))
        self.assertEqual(self.decompress(), [0, 0, 1.5, 0, 0, 0, 0, -3, 0, 0])
        self.assertEqual(parse_npy(self.get("out.npy"))[:2], ("<f4", (10,)))

    def test_writes_indices_and_values(self):
        self.put("f.swf", raw_frame(10, [(2, 1.5), (7, -3)]))
        for output, stem in (("a.npy", "a"), ("b", "b"), ("c.npy.npy", "c.npy")):
            report = json.loads(self.run_ok("decompress", "f.swf", "-o", output, "--sparse", "--json", "-"))
            self.assertEqual(report["files"], [f"{stem}.indices.npy", f"{stem}.values.npy"])
            self.assertEqual(parse_npy(self.get(f"{stem}.indices.npy")), ("<u4", (2,), [2, 7]))
            self.assertEqual(parse_npy(self.get(f"{stem}.values.npy")), ("<f4", (2,), [1.5, -3]))
            self.assertFalse((self.folder / output).exists())
        self.put("in.npy", npy([1, 2, 3]))
        self.compress(sparsifier="dense")
        self.run_ok("decompress", "out.swf", "-o", "d.npy", "--sparse")
        self.assertEqual((self.numbers("d.indices.npy"), self.numbers("d.values.npy")), ([0, 1, 2], [1, 2, 3]))

    def test_reports_in_json(self):
        self.put("f.swf", raw_frame(10, [(2, 1.5), (7, -3)]))
        out = self.run_ok("decompress", "f.swf", "-o", "out.npy", "--json", "report.json")
        self.assertEqual(out, b"wrote 10 entries, 2 of them from the frame, to 'out.npy'\n")
        wanted = {"dim": 10, "kept": 2, "frame_bytes": 44, "codec": "raw32:values=f32", "files": ["out.npy"]}
        self.assertEqual(json.loads(self.get("report.json")), wanted)

    def test_of_a_small_frame_takes_little_memory_and_disk(self):
        dim = 4_000_000_000
        self.put("f.swf", raw_frame(dim, [(17, 1.5), (dim - 2, -3)]))
        process = self.start("decompress", "f.swf", "-o", "out.npy")
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = status
        process.communicate()
        self.assertEqual(status, 0)
        self.assertLess(usage.ru_maxrss, 500_000)  # KiB; 16 GB of numbers would be 30 times that
        written = (self.folder / "out.npy").stat()
        self.assertEqual(written.st_size, 128 + 4 * dim)
        self.assertLess(written.st_blocks, 10000)
        with open(self.folder / "out.npy", "rb") as file:
            file.seek(128 + 4 * 16)
            self.assertEqual(struct.unpack("<3f", file.read(12)), (0, 1.5, 0))
            file.seek(-12, os.SEEK_END)
            self.assertEqual(struct.unpack("<3f", file.read(12)), (0, -3, 0))


class Inspect(Case):
    def test_shows_every_field(self):
        self.put("f.swf", raw_frame(1000000, [(i * 500, 1.5) for i in range(2000)]))
        lines = self.run_ok("inspect", "f.swf").decode().splitlines()
        fields = {line[:17].strip(): line[17:] for line in lines}
        self.assertEqual(fields["version"], "1")
        self.assertEqual(fields["codec"], "raw32:values=f32")
        self.assertEqual(fields["dim"], "1,000,000")
        self.assertEqual(fields["kept"], "2,000 (0.2 %)")
        self.assertEqual(fields["frame"], "16,028 bytes, 64.112 bits per entry")
        self.assertEqual(fields["indices"], "8,000 bytes, 32.000 bits per entry")
        self.assertEqual(fields["values"], "8,000 bytes, 32.000 bits per entry")
        self.assertEqual(fields["header"], "28 bytes, 224 bits")
        self.assertRegex(fields["entropy bound"], r"^10\.40\d bits per entry for random indices; these take 207\.\d\d % more$")

    def test_knows_frames_that_need_no_indices(self):
        self.put("in.npy", npy([1, 2, 3]))
        self.compress(sparsifier="dense")
        self.assertIn(b"no indices are needed", self.run_ok("inspect", "out.swf"))
        self.put("in.npy", npy(gaussians(1000)))
        self.compress("--codec", "seed", sparsifier="randomk:ratio=0.1")
        self.assertIn(b"% less", self.run_ok("inspect", "out.swf"))


class Program(Case):
    def test_lists_what_there_is(self):
        text = self.run_ok("list").decode()
        listed = json.loads(self.run_ok("list", "--json", "-"))
        self.assertEqual(list(listed), ["sparsifiers", "codecs", "value_formats", "exchanges", "problems", "optimisers", "schedules", "splits"])
        kinds = dict(sparsifiers="keeps", codecs="how", value_formats="what", exchanges="moves", problems="is", optimisers="does", schedules="gives")
        for kind, key in kinds.items():
            for row in listed[kind]:
                self.assertEqual(list(row), ["name", key, "example"])
                self.assertIn(row["example"], text)
        self.assertEqual(listed["codecs"][0]["name"], "auto")
        self.put("in.npy", npy(gaussians(1000)))
        for row in listed["codecs"] + listed["value_formats"]:
            self.compress("--codec", row["example"], sparsifier="randomk:ratio=0.01")

    def test_explains_itself(self):
        overview = self.run_ok("--help").decode()
        for command in ("compare", "compress", "decompress", "inspect", "list", "pilot", "reproduce", "train"):
            text = self.run_ok(command, "--help").decode()
            self.assertIn(f"Examples:\n  sparsewire {command}", text)
            self.assertLessEqual(max(map(len, (text + overview).splitlines())), 80, text)
            self.assertIn(f"\n  {command} ", overview)
        self.refuses(lines=2, says="no command was given")
        self.refuses("nosuch", lines=2, says="'nosuch'")

    def test_names_the_option_that_was_mistyped(self):
        self.put("in.npy", npy(gaussians(8)))
        for arguments, says in (
            (["train", "--sparsifer", "topk"], "unknown option --sparsifer; did you mean --sparsifier?"),
            (["train", "--sparsifer=topk"], "unknown option --sparsifer; did you mean --sparsifier?"),
            (["train", "--optimzer", "sgd", "--stps", "3"], "unknown option --optimzer; did you mean --optimizer?"),
            (["compress", "in.npy", "--sparsifer", "topk", "-o", "out.swf"], "unknown option --sparsifer; did you mean"),
            (["inspect", "--jsn", "x", "in.npy"], "unknown option --jsn; did you mean --json?"),
            (["train", "--learning-rate", "1"], "unknown option --learning-rate\n"),
            (["train", "-x"], "unknown option -x\n"),
            (["inspect", "in.npy", "b", "c"], "unexpected argument 'b'\n"),
            (["trian"], "there is no command 'trian'; did you mean 'train'?"),
            (["--verson"], "there is no option '--verson'; did you mean '--version'?"),
        ):
            with self.subTest(arguments):
                self.refuses(*arguments, lines=2, says=says)

    def test_refuses_an_unknown_simd_level_whatever_the_command(self):
        environment = {**os.environ, "SPARSEWIRE_SIMD": "abacus"}
        self.refuses("list", env=environment, says="SPARSEWIRE_SIMD=abacus is not one of auto, ")

    def test_run_sh_refuses_an_unknown_option_before_it_builds(self):
        """A copy that has nothing beside it, so that it could not build."""
        shutil.copy(Path(__file__).resolve().parent.parent / "run.sh", self.folder)
        done = processes.run([self.folder / "run.sh", "--nope"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual((done.returncode, done.stderr), (2, "run.sh: unknown option --nope (see --help)\n"))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        print(__doc__)
        sys.exit(2)
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main()
