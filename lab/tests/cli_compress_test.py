#!/usr/bin/env python3
"""compress from outside: what is kept, what stays in the memory, and what a state carries.

    cli_compress_test.py PROGRAM [SUITE]...     PROGRAM: the sparsewire to test; SUITE: some of the classes below
"""

import json
import math
import random
import unittest

from cli_case import Case, TOPK, f32, gaussians, npy, parse_npy


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
                parts = inspected.pop("value_parts", None)
                self.assertEqual(parts is not None, codec == "auto" and sparsifier != "dense")
                if parts:  # and 18 bytes of fields
                    self.assertEqual(8 * (18 + sum(parts.values())), report["value_bits_per_entry"] * report["kept"])
                self.assertEqual({**report, "version": 1}, {**inspected, "step": 0})
        report = self.compress(sparsifier="topk:ratio=0.01")
        bound = (math.lgamma(20001) - math.lgamma(201) - math.lgamma(19801)) / math.log(2) / 200
        self.assertAlmostEqual(report["entropy_bound_index_bits"], bound, places=6)
        self.assertEqual(report["codec"], "golomb:values=f32,pack=yes")

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


if __name__ == "__main__":
    unittest.main()
