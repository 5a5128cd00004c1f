"""What the tests of the program from outside share: .npy files, frames, and a folder of their own."""

import json
import math
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import processes

# The first argument of the test that imports this.
if len(sys.argv) < 2:
    print(sys.modules["__main__"].__doc__)
    sys.exit(2)
PROGRAM = os.path.abspath(sys.argv.pop(1))


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
    """A frame by hand, as docs/reference/wire_format.md says: indices raw32, values f32."""
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
