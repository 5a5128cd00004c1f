#!/usr/bin/env python3
"""The program from outside: what its commands print and write, and which options they refuse.

    cli_test.py PROGRAM [SUITE]...     PROGRAM: the sparsewire to test; SUITE: some of the classes below
"""

import json
import os
import shutil
import struct
import subprocess
import unittest
from pathlib import Path

import processes
from cli_case import Case, gaussians, npy, parse_npy, raw_frame


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
        for mode in ("wb", "ab"):
            with open(self.folder / "redirected", mode) as file:
                self.assertEqual(self.run_program("decompress", "f.swf", "-o", "-", stdout=file).returncode, 0)
        twice = (self.folder / "redirected").stat()
        self.assertEqual(twice.st_size, 2 * written.st_size)
        self.assertLess(twice.st_blocks, 20000)
        with open(self.folder / "redirected", "rb") as file:
            file.seek(written.st_size + 128 + 4 * 16)
            self.assertEqual(struct.unpack("<3f", file.read(12)), (0, 1.5, 0))
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
        for command in ("compare", "compress", "data", "decompress", "inspect", "list", "pilot", "reproduce", "train"):
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
            (["train", "--steps"], "--steps needs a value: N\n"),
            (["compress", "in.npy", "-o", "x", "--sparsifier"], "--sparsifier needs a value: SPEC\n"),
            (["inspect", "in.npy", "b", "c"], "unexpected argument 'b'\n"),
            (["trian"], "there is no command 'trian'; did you mean 'train'?"),
            (["--verson"], "there is no option '--verson'; did you mean '--version'?"),
        ):
            with self.subTest(arguments):
                self.refuses(*arguments, lines=2, says=says)

    def test_refuses_unknown_values_of_environment_variables_whatever_the_command(self):
        for name, allowed in (("SPARSEWIRE_SIMD", "auto, "), ("SPARSEWIRE_SIFT", "device, host\n"), ("SPARSEWIRE_GRAPHS", "on, off\n")):
            self.refuses("list", env={**os.environ, name: "abacus"}, says=f"{name}=abacus is not one of {allowed}")
            for value in (allowed.split(",")[0], ""):
                self.assertEqual(self.run_program("list", env={**os.environ, name: value}).returncode, 0)

    def test_gpu_pack_says_what_is_missing(self):
        pack = Path(__file__).resolve().parents[2] / "tools/gpu_pack.sh"
        done = processes.run([pack, self.folder, self.folder / "packed"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        missing = f"'{self.folder}/tests/cuda_tests' is not there"
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertEqual(done.stderr, f"gpu_pack.sh: {missing}: configure with -DSPARSEWIRE_CUDA=ON and build cuda_tests\n")

    def test_run_sh_refuses_an_unknown_option_before_it_builds(self):
        """A copy that has nothing beside it, so that it could not build."""
        shutil.copy(Path(__file__).resolve().parents[2] / "run.sh", self.folder)
        done = processes.run([self.folder / "run.sh", "--nope"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual((done.returncode, done.stderr), (2, "run.sh: unknown option --nope (see --help)\n"))


if __name__ == "__main__":
    unittest.main()
