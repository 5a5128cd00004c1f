#!/usr/bin/env python3
"""Trainings as processes: their options and data, and pilots.

    train_test.py PROGRAM MPIEXEC [SUITE]...     MPIEXEC: "" where there is none; SUITE: some of the classes below
"""

import fcntl
import gzip
import json
import math
import os
import random
import re
import resource
import struct
import signal
import subprocess
import termios
import unittest
from pathlib import Path

import processes
from train_case import Case, MPIEXEC, PROGRAM, SMALL, THREADS


class Data(Case):
    """Data of one's own: compressed, with test data and several labels."""

    def setUp(self):
        super().setUp()
        drawn = random.Random(7)
        for name, rows in (("train", 90), ("test", 30)):
            lines = []
            for _ in range(rows):
                label = drawn.choice([-4, 2, 7])
                entries = [f"{i}:{drawn.gauss(label if i == 3 else 0, 1):.4f}" for i in range(1, 9) if drawn.random() < 0.7 or i == 8]
                lines.append(f"{label} {' '.join(entries)}\n")
            (self.folder / name).write_text("".join(lines))
            (self.folder / f"{name}.gz").write_bytes(gzip.compress("".join(lines).encode()))

    def options(self, data="train", test="test"):
        return ["--problem", "logreg:intercept=true,batch=4", "--data", data, "--test-data", test, "--validation", "0.1", "--lr", "0.2",
                "--steps", "40", "--split", "shards:per_worker=2", "--worker-weights", "1,2,0.5", "--sparsifier", "topk:ratio=0.2"]  # fmt: skip

    def test_are_the_same_compressed_and_under_mpirun(self):
        keys = ["weights_crc32c", "train_loss", "train_objective", "train_accuracy", "validation_loss", "validation_accuracy", "test_loss"]
        keys += ["test_accuracy", "bytes_up", "bytes_down", "bytes_served", "paper_bits_up", "paper_bits_down"]
        plain = self.train(*self.options(), *THREADS, "--eval-train")
        for report in (
            self.train(*self.options("train.gz", "test.gz"), *THREADS, "--eval-train"),
            self.train(*self.options("train.gz"), "--eval-train", ranks=3),
        ):
            self.assertEqual([report[key] for key in keys], [plain[key] for key in keys])
        self.assertGreater(plain["test_accuracy"], 0.5)
        self.assertGreater(plain["train_objective"], plain["train_loss"])
        self.assertNotIn("train_loss", self.train(*self.options(), *THREADS))

    def test_weights_are_numpy_files(self):
        """The loss on the test data, from the file of weights by the formula."""
        report = self.train(*self.options(), *THREADS, "--save-weights", "w.npy")
        self.assertEqual(report["tensors"], [{"name": "weight", "size": 24}, {"name": "intercept", "size": 3}])
        content = (self.folder / "w.npy").read_bytes()
        start = 10 + struct.unpack("<H", content[8:10])[0]
        self.assertIn(b"'descr': '<f4'", content[:start])
        self.assertIn(b"'shape': (27,)", content[:start])
        weights = struct.unpack("<27f", content[start:])
        losses = []
        for line in (self.folder / "test").read_text().splitlines():
            label, *entries = line.split()
            outputs = list(weights[24:])
            for entry in entries:
                index, value = entry.split(":")
                for c in range(3):
                    outputs[c] += float(value) * weights[3 * (int(index) - 1) + c]
            right = outputs[["-4", "2", "7"].index(label)]
            losses.append(math.log(sum(math.exp(output - right) for output in outputs)))
        self.assertAlmostEqual(report["test_loss"], sum(losses) / len(losses), places=12)
        self.train("--problem", "logreg:dim=5", *THREADS, "--steps", "1", "--save-weights", "x.npy")
        tensors = json.loads((self.folder / "report.json").read_text())["tensors"]
        self.assertEqual(tensors, [{"name": "weight", "size": 5}], "also where the model is a single tensor")
        again = self.train(*self.options(), *THREADS, "--init-weights", "w.npy", "--steps", "0")
        self.assertEqual(again["weights_crc32c"], report["weights_crc32c"])
        self.assertIsNone(again["loss"])
        shown = self.run_train(*self.options(), *THREADS, "--init-weights", "w.npy", "--steps", "0", "-q").stdout
        self.assertIn("(before the first step)", " ".join(shown.split()))
        self.assertNotIn("nan", shown)
        if MPIEXEC:
            self.assertEqual(self.train(*self.options(), "--init-weights", "w.npy", "--steps", "0", ranks=3)["test_loss"], report["test_loss"])
        self.refuses(*SMALL, "--init-weights", "w.npy", says="has the shape (27,), but the model has 131 weights")
        self.refuses(*SMALL, "--save-weights", "none/w.npy", code=1, says="cannot write 'none/w.npy'")
        self.refuses(*SMALL, "--save-weights", "x", "--metrics", "x", says="same file")
        self.refuses(*SMALL, "--save-weights", "-", says="--save-weights -")

    def test_of_tests_stay_the_same_when_resumed(self):
        (self.folder / "other").write_text((self.folder / "test").read_text() + "2 1:1\n")
        (self.folder / "copy").write_text((self.folder / "test").read_text())
        train = [*self.options(), *THREADS, "--checkpoint-dir", "c"]
        self.train(*train)
        resume = [*train, "--resume", "--steps", "50"]
        self.refuses(*resume, "--test-data", "other", says="'c/step-00000040' was evaluated on other test data (")
        self.refuses(*resume, "--test-data", "other", says="bytes, CRC-32C ")
        self.train(*resume, "--test-data", "copy")

    def test_that_are_wrong_are_named(self):
        self.refuses(*self.options(test="none"), *THREADS, says="cannot read 'none'")
        (self.folder / "one").write_text("2 1:1\n2.0 2:1\n")
        self.refuses(*self.options("one"), *THREADS, says="all 2 samples of 'one' have the label '2'")
        star = ["--problem", "logreg:star=true", "--data", "train"]
        self.refuses(*star, *THREADS, says="star=true needs a problem whose optimum is known: linreg, or logreg with two labels")
        self.refuses(*self.options(), "--workers", "2", says="--worker-weights 1,2,0.5 has 3 numbers, and there are 2 workers")
        self.refuses(*self.options(), "--workers", "60", says="81 samples cannot be cut into 120 shards")
        self.refuses(*self.options(), *THREADS, "--validation", "1", says="--validation 1 is not a number in [0, 1)")
        self.refuses(*self.options(), *THREADS, "--split", "dirichlet:beta=1", says="[dirichlet] unknown key 'beta'")
        self.refuses(*SMALL, "--test-data", "test", says="[mlp] takes no data")
        if MPIEXEC:
            self.refuses(*self.options(), ranks=2, says="--worker-weights 1,2,0.5 has 3 numbers, and there are 2 workers")


class Deterministic(Case):
    def test_on_threads_and_processes_and_one_core(self):
        methods = (
            [],
            ["--exchange", "server", "--codec", "auto:values=int8"],
            ["--exchange", "allgather", "--downlink", "", "--sparsifier", "regtopk:ratio=0.05"],
            ["--sparsifier", "randomk:ratio=0.1", "--downlink", "", "--feedback", "momentum:m=0.5", "--optimiser", "sgd"],
            ["--local-steps", "3", "--optimiser", "adam", "--lr", "0.01"],
            ["--split", "dirichlet:alpha=0.3,sizes=3/2/1", "--worker-weights", "size", "--validation", "0.2", "--exchange", "server"],
        )
        for method in methods:
            with self.subTest(method=method):
                common = [*SMALL, "--steps", "30", *method]
                threads = self.train(*common, *THREADS)
                one_core = lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
                keys = ("weights_crc32c", "loss", "test_loss", "test_accuracy", "bytes_up", "bytes_down", "bytes_served", "paper_bits_up", "paper_bits_down", "total_error")
                for other in (self.train(*common, *THREADS, preexec_fn=one_core), self.train(*common, ranks=3)):
                    self.assertEqual([other[key] for key in keys], [threads[key] for key in keys])
                seed = self.train(*common, *THREADS, "--seed", "4")
                self.assertNotEqual(seed["weights_crc32c"], threads["weights_crc32c"])


class Options(Case):
    def test_a_report_is_a_config_file(self):
        first = self.train(*SMALL, *THREADS, "--steps", "12", "--metrics", "m.jsonl", "--checkpoint-dir", "c")
        lines = (self.folder / "m.jsonl").read_bytes()
        os.rename(self.folder / "report.json", self.folder / "first.json")
        again = self.train("--config", "first.json")
        self.assertEqual(again["weights_crc32c"], first["weights_crc32c"])
        self.assertEqual(again["config"]["metrics"], "")
        self.assertEqual((self.folder / "m.jsonl").read_bytes(), lines)
        done = self.run_train("--config", "first.json", "--methods", "topk", "--ratio", "0.05", "--json", "compared.json", command="compare")
        self.assertEqual(done.returncode, 0, done.stderr)
        compared = json.loads((self.folder / "compared.json").read_text())
        self.assertEqual(compared["config"]["steps"], 12)
        alone = self.train("--config", "compared.json", "--sparsifier", "topk:ratio=0.05")
        self.assertEqual(alone["weights_crc32c"], compared["methods"][0]["weights_crc32c"])

    def test_metrics_never_replace_another_file(self):
        (self.folder / "notes.txt").write_text("mine\n")
        self.refuses(*SMALL, *THREADS, "--steps", "3", "--metrics", "notes.txt", says="'notes.txt' does not begin with a line of metrics")
        self.assertEqual((self.folder / "notes.txt").read_text(), "mine\n")

    def test_metrics_of_a_training_that_runs_are_left_to_it(self):
        settings = [*SMALL, "--steps", "20", "--metrics", "m.jsonl"]
        self.train(*settings, *THREADS, "--checkpoint-dir", "c")
        before = (self.folder / "m.jsonl").read_text()
        says = "'m.jsonl' is being written by another training"
        with open(self.folder / "m.jsonl") as other:
            fcntl.flock(other, fcntl.LOCK_EX)  # as a training does
            self.refuses(*settings, *THREADS, says=says)
            resumed = self.run_train(*settings, *THREADS, "--checkpoint-dir", "c", "--resume", "--steps", "30", "-q")
            self.assertEqual((resumed.returncode, resumed.stdout), (2, ""), resumed.stderr)
            self.assertIn(says, resumed.stderr)
            self.refuses(*settings, ranks=2, says=says)
            self.assertEqual((self.folder / "m.jsonl").read_text(), before)
        process = self.start(*SMALL, *THREADS, "--steps", "1000000", "--metrics", "m.jsonl", "--metrics-every-step")
        self.assertTrue(self.wait_for_step(process, 25))
        self.refuses(*settings, *THREADS, says=says)
        process.send_signal(signal.SIGTERM)
        process.communicate()
        self.assertEqual([line["step"] for line in self.metrics()], list(range(1, self.last_step() + 1)))
        self.train(*settings, ranks=2)
        self.assertEqual([line["step"] for line in self.metrics()], [10, 20])

    def test_several_may_write_metrics_to_one_pipe(self):
        os.mkfifo(self.folder / "p")
        reader = processes.start(self, ["cat", "p"], cwd=self.folder, stdout=subprocess.PIPE, text=True)
        with open(self.folder / "p", "r+b", buffering=0) as pipe:  # r+: opening does not wait for the reader
            fcntl.flock(pipe, fcntl.LOCK_EX)
            self.train(*SMALL, *THREADS, "--steps", "20", "--metrics", "p")
        self.assertEqual([json.loads(line)["step"] for line in reader.communicate()[0].splitlines()], [10, 20])

    def test_metrics_may_go_to_the_standard_output(self):
        """Before the result; also where that is a file, and has something already."""
        printed = [*SMALL, *THREADS, "--steps", "20", "--metrics", "/dev/stdout", "-q"]
        expected = self.run_train(*printed).stdout.splitlines()
        self.assertEqual([json.loads(line)["step"] for line in expected[:2]], [10, 20])
        self.assertTrue(expected[2].startswith("step 20: "), expected)
        (self.folder / "out").write_text("before\n")
        with open(self.folder / "out", "a") as file:
            self.run_train(*printed, stdout=file)
        lines = (self.folder / "out").read_text().splitlines()
        self.assertEqual([lines[0], *(line[:10] for line in lines[1:])], ["before", *(line[:10] for line in expected)])

    def test_come_from_a_file_and_the_command_line_counts_more(self):
        report = self.train(*SMALL, *THREADS, "--steps", "12", "--local-steps", "2")
        config = report["config"]
        self.assertEqual((config["local_steps"], config["workers"], config["lr"]), (2, 3, 0.05))
        (self.folder / "c.json").write_text(json.dumps({**config, "json": "", "steps": 99}))
        again = self.train("--config", "c.json", "--steps", "12")
        self.assertEqual(again["weights_crc32c"], report["weights_crc32c"])
        self.assertEqual(again["config"], config)
        (self.folder / "c.json").write_text('{"local-steps": 2, "no-such": 1}')
        self.refuses("--config", "c.json", says="'c.json': 'no-such' is not an option")
        self.refuses("--config", "none.json", says="'none.json'")
        (self.folder / "c.json").write_text('{"lr": ' + "[" * 100000 + "]" * 100000 + "}")
        self.refuses("--config", "c.json", says="'c.json': nested more than 64 levels deep")
        (self.folder / "c.json").write_text("{" + " " * (1 << 20) + "}")
        self.refuses("--config", "c.json", says="'c.json' is longer than 1 MiB")

    def test_that_are_wrong_are_named(self):
        for option, value in (("--lr", "-1"), ("--lr", "nan"), ("--steps", "1.5"), ("--workers", "1025"), ("--keep", "0"),
                              ("--transport", "pigeons"), ("--scope", "x"), ("--deadline", "0"), ("--clip", "-1")):  # fmt: skip
            self.refuses(option, value, says=f"{option} ")
        for option in ("--problem", "--sparsifier", "--feedback", "--exchange", "--downlink", "--codec", "--optimiser", "--schedule"):
            self.refuses(*SMALL, option, "nosuch", says="nosuch")
        self.refuses("--no-such", says="no-such", lines=2)
        self.refuses(*SMALL, "--feedback", "ef:scale=lr", "--optimiser", "adam", says="needs plain sgd")
        self.refuses(*SMALL, "--feedback", "momentum", says="momentum would be applied twice")
        self.refuses("--resume", says="--checkpoint-dir")
        self.refuses("--metrics", "x", "--json", "x", says="same file")
        self.refuses("--data", "nosuch.txt", "--problem", "logreg", says="nosuch.txt")
        self.refuses("--problem", "mlp:batch=1000000000000000000", says="batch=1000000000000000000")
        self.refuses("--problem", "mlp:samples=100,batch=101", says="batch=101 is more than the 100 training samples")

    def test_that_do_nothing_without_another_name_it(self):
        for option, value, needs in (("--checkpoint-every", "5", "--checkpoint-dir DIR"), ("--keep", "3", "--checkpoint-dir DIR"),
                                     ("--measure-every", "5", "--metrics FILE"), ("--metrics-every-step", None, "--metrics FILE")):  # fmt: skip
            given = [option] if value is None else [option, value]
            says = f"{' '.join(given)} does nothing without {needs.split()[0]}: add {needs}"
            self.refuses(*SMALL, *given, says=says)
        self.train(*SMALL, "--steps", "3", "--measure-every", "0")

    def test_that_are_wrong_are_named_once_under_mpirun(self):
        self.refuses(*SMALL, "--workers", "4", ranks=2, says="--workers 4 with --transport mpi, but mpirun started 2 processes")
        self.refuses(*SMALL, "--sparsifier", "topk:k=0", ranks=2, says="k=0")
        self.refuses(*SMALL, "--metrics", "/dev/full", ranks=2, code=1, says="cannot write '/dev/full'")
        self.refuses(*SMALL, "--save-weights", "none/w.npy", ranks=2, code=1, says="cannot write 'none/w.npy'")
        self.refuses(*SMALL, "--metrics", "x", "--json", "x", ranks=2, says="same file")

    def test_for_files_that_cannot_be_written(self):
        (self.folder / "file").write_text("x")
        self.refuses(*SMALL, "--checkpoint-dir", "file", code=1, says="cannot write 'file")
        self.refuses(*SMALL, "--checkpoint-dir", "/proc/nosuch", code=1, says="cannot write '/proc/nosuch")
        self.refuses(*SMALL, "--metrics", "/dev/full", "--steps", "5", code=1, says="cannot write '/dev/full': No space left")
        self.refuses(*SMALL, "--metrics", "none/m.jsonl", code=1, says="cannot write 'none/m.jsonl'")
        self.refuses(*SMALL, "--json", "none/r.json", code=1, says="cannot write 'none/r.json'")

    def test_for_a_disk_that_is_full_at_a_checkpoint(self):
        full = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        checkpoints = [*SMALL, *THREADS, "--checkpoint-dir", "c", "--checkpoint-every", "5", "--steps", "15", "-q"]
        done = self.run_train(*checkpoints, preexec_fn=full)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"\Asparsewire: cannot write 'c/step-00000005/[a-z0-9.-]+': File too large\n\Z")
        self.assertEqual(list(self.folder.glob("c/*/*")), [])  # nothing half-written
        self.train(*checkpoints, "--resume")
        self.assertIn("no checkpoint in 'c' yet", self.stderr)
        done = self.run_train(*checkpoints, "--resume", "--steps", "25", preexec_fn=full)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(self.train(*checkpoints, "--resume", "--steps", "25")["step"], 25)
        self.assertIn("resuming from 'c/step-00000015'", self.stderr)

    def test_for_pipes(self):
        os.mkfifo(self.folder / "p")
        self.refuses(*SMALL, "--metrics", "p", code=1, says="cannot write 'p'")  # nobody reads it
        reader = processes.start(self, ["cat", "p"], cwd=self.folder, stdout=subprocess.PIPE, text=True)
        done = self.run_train(*SMALL, *THREADS, "--steps", "3", "--json", "p")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(reader.communicate()[0])["step"], 3)
        self.refuses(*SMALL, "--metrics", "-", says="--metrics -")

    def test_that_differ_between_ranks_are_noticed_before_the_first_step(self):
        for more in (["--lr", "0.2"], ["--steps", "30"], ["--optimiser", "adam"], ["--checkpoint-dir", "c"]):
            common = [PROGRAM, "train", "--transport", "mpi", *SMALL, "--steps", "20", "--metrics", "m.jsonl"]
            if not MPIEXEC:
                self.skipTest("no mpirun")
            command = [MPIEXEC, "-n", "1", *common, ":", "-n", "1", *common, *more]
            done = self.run_command(command)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("sparsewire: rank 1 was started with other options than rank 0", done.stderr)
            self.assertEqual(self.metrics(), [])

    def test_data_that_differ_between_ranks_are_noticed_before_the_first_step(self):
        if not MPIEXEC:
            self.skipTest("no mpirun")
        (self.folder / "a").write_text("+1 1:1 2:3\n-1 2:1\n+1 1:2\n")
        (self.folder / "copy").write_text("+1 1:1 2:3\n-1 2:1\n+1 1:2\n")
        (self.folder / "other").write_text("+1 1:1 2:4\n-1 2:1\n+1 1:2\n")
        (self.folder / "wider").write_text("+1 1:1 2:3\n-1 2:1\n+1 9:2\n")
        common = [PROGRAM, "train", "--transport", "mpi", "--problem", "logreg", "--sparsifier", "topk:k=1", "--steps", "3"]
        common += ["--metrics", "m.jsonl", "--data"]
        for name in ("other", "wider", "copy"):
            done = self.run_command([MPIEXEC, "-n", "1", *common, "a", ":", "-n", "2", *common, name])
            if name == "copy":
                self.assertEqual(done.returncode, 0, done.stderr)
                continue
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertRegex(done.stderr, "sparsewire: the data of ranks 1 and 2 differ from those of rank 0 .*: give every rank the same")
            self.assertEqual(self.metrics(), [])

    def test_that_load_a_library_on_one_rank_only(self):
        if not MPIEXEC:
            self.skipTest("no mpirun")
        plugin = str(Path(PROGRAM).parents[2] / "examples" / "libevery.so")
        rank = ["-n", "1", PROGRAM, "train", "--transport", "mpi", *SMALL, "--steps", "3", "-q"]
        environment = {**os.environ, "ASAN_OPTIONS": "detect_odr_violation=0:" + os.environ.get("ASAN_OPTIONS", "")}
        done = self.run_command([MPIEXEC, *rank, "--load", plugin, ":", *rank], env=environment)
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(done.stderr.count("sparsewire: rank 1 has other libraries of --load than rank 0"), 1, done.stderr)

    def test_transport_mpi_without_mpirun_is_said(self):
        if not MPIEXEC:
            self.skipTest("no mpirun")
        done = self.run_train(*SMALL, "--steps", "3", "--transport", "mpi", "-q")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, r"\Asparsewire: --transport mpi: this is the only process, so one worker trains alone; .*mpirun -n N .*\n\Z")
        self.refuses(*SMALL, "--steps", "3", "--transport", "mpi", "--workers", "4", says="start it with 'mpirun -n 4 sparsewire train")
        done = self.run_train(*SMALL, "--steps", "3", "--transport", "mpi", "--workers", "1", "-q")
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_without_transport_mpi_under_mpirun(self):
        if not MPIEXEC:
            self.skipTest("no mpirun")
        done = self.run_command([MPIEXEC, "-n", "2", PROGRAM, "train", *SMALL])
        self.assertEqual(done.returncode, 2)
        self.assertIn("add --transport mpi", done.stderr)

    def test_show_a_bar_as_wide_as_the_terminal(self):
        for columns, width in ((30, 12), (200, 24)):
            ours, theirs = os.openpty()
            fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
            done = self.run_train(*SMALL, *THREADS, "--steps", "40", stderr=theirs)
            os.close(theirs)
            shown = b""
            try:
                while piece := os.read(ours, 10000):
                    shown += piece
            except OSError:  # Linux's end of a terminal
                pass
            os.close(ours)
            self.assertEqual(done.returncode, 0)
            bars = re.findall(rf"\r\x1b\[K(\[[#.]{{{width}}}\][^\r\n]*)", shown.decode())
            self.assertTrue(bars)
            self.assertLess(max(map(len, bars)), columns)
            if columns == 200:
                self.assertRegex(bars[-1], r"#{24}\] step 40/40  batch loss .* steps/s  1/[\d.]+ of dense \(.* less per worker\)")

    def test_a_sparsifier_that_saves_nothing_is_said(self):
        for exchange, sparsifier, is_said in (("dense", "topk:k=3", True), ("dense", "dense", False), ("sharded", "topk:k=3", False)):
            done = self.run_train(*SMALL[:2], *THREADS, "--steps", "2", "--exchange", exchange, "--sparsifier", sparsifier)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(f"--sparsifier {sparsifier} saves no bytes" in done.stderr, is_said, done.stderr)

    def test_the_faster_exchange_for_whole_vectors_is_named(self):
        for exchange, sparsifier, codec, is_said in (
            ("sharded", "dense", "auto", True),
            ("server", "dense", "golomb:values=bf16", True),
            ("sharded", "dense", "golomb:values=int8", False),  # which --exchange dense does not take
            ("auto", "dense", "auto", False),
            ("dense", "dense", "auto", False),
            ("server", "topk:k=3", "auto", False),
        ):
            done = self.run_train(*SMALL[:2], *THREADS, "--steps", "2", "--exchange", exchange, "--sparsifier", sparsifier, "--codec", codec)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual("--exchange dense is faster" in done.stderr, is_said, done.stderr)

    def test_diverge(self):
        self.refuses("--problem", "downlink_toy", "--lr", "1e9", code=1, says="diverged in step ")
        says = self.refuses("--problem", "downlink_toy", "--lr", "3", "--checkpoint-dir", "c", "--checkpoint-every", "5",
                            "--sparsifier", "dense", ranks=2, code=1, says="diverged in step ")  # fmt: skip
        self.assertRegex(says, r"the last checkpoint is 'c/step-00000\d\d\d'")

    def test_quiet_leaves_only_results(self):
        done = self.run_train(*SMALL, "--steps", "3", "-q")
        self.assertEqual(done.stderr, "")
        self.assertRegex(done.stdout, r"\Astep 3: test loss .*, test accuracy .* \(loss of the last batches .*\)\n4 workers sent [\d,]+ bytes up and received [\d,]+ down\nCRC-32C of the weights: [0-9a-f]{8}\n\Z")
        done = self.run_train(*SMALL, "--steps", "3")
        self.assertRegex(done.stderr, r"\Aproblem=mlp:\S+ .*workers=4 .*\nstep 3/3 .*\n\Z")
        self.assertEqual(json.loads(self.run_train(*SMALL, "--steps", "3", "--json", "-").stdout)["step"], 3)


class Pilot(Case):
    SMALL = [*SMALL[:2], "--lr", "0.05", "--steps", "30", "--workers", "3"]

    def test_measures_a_threshold_for_another_training(self):
        options = [*self.SMALL, "--ratio", "0.1", "--seed", "7", "--downlink", "threshold:ratio=0.2", "--exchange", "server"]
        done = self.run_train(*options, "-q", command="pilot")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"\Athreshold:lambda=[\d.e-]+\nthreshold:lambda=[\d.e-]+\n\Z")
        up, down = done.stdout.split()
        report = json.loads(self.run_train(*options, "--json", "-", command="pilot").stdout)
        self.assertEqual((report["sparsifier"], report["downlink"], report["pilot_steps"]), (up, down, 10))
        self.assertAlmostEqual(report["lambda"] / float(up.split("=")[1]), 1, places=6)
        self.assertIn(f"{report['bytes_up']:,} bytes up", " ".join(self.run_train(*options, command="pilot").stdout.split()))
        # As many bytes as ten steps of Top-k take.
        topk = self.train(*self.SMALL[:-4], "--workers", "3", "--steps", "10", "--seed", "7", "--exchange", "server",
                          "--sparsifier", "topk:ratio=0.1", "--downlink", "topk:ratio=0.2")  # fmt: skip
        self.assertEqual(report["bytes_up"], topk["bytes_up"])
        self.assertEqual(report["bytes_down"], topk["bytes_down"])
        self.train(*self.SMALL, "--sparsifier", up, "--downlink", down, "--exchange", "server", "--metrics", "m.jsonl")
        entries = [line["entries_sent"] for line in self.metrics("m.jsonl")]
        self.assertGreater(sum(entries), 0)

    def test_has_the_data_of_the_training(self):
        options = ["--problem", "logreg:dim=20,samples=100", "--workers", "4", "--lr", "0.1", "--ratio", "0.1", "-q"]
        found = {self.run_train(*options, *more, command="pilot").stdout
                 for more in ([], ["--split", "iid"], ["--validation", "0.5"], ["--split", "iid", "--worker-weights", "5,1,1,1"])}
        self.assertEqual(len(found), 4, found)

    def test_has_the_config_file_of_the_training_and_writes_nothing_but_its_report(self):
        """What a pilot does not do is ignored in the file."""
        options = [*self.SMALL, "--ratio", "0.1", "-q"]
        plain = self.run_train(*options, command="pilot")
        config = {"problem": SMALL[1], "lr": 0.05, "steps": 30, "workers": 3, "sparsifier": "randomk:k=3", "json": "x.json"}
        config.update({"save_weights": "w.npy", "metrics": "m.jsonl", "metrics_every_step": True, "checkpoint_dir": "c"})
        config.update({"resume": True, "change": "lr", "eval_train": True, "transport": "mpi"})
        (self.folder / "c.json").write_text(json.dumps(config))
        done = self.run_train("--config", "c.json", "--ratio", "0.1", "--json", "r.json", "-q", command="pilot")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout, plain.stdout)
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["c.json", "r.json"])

    def test_refuses_what_it_cannot_do(self):
        self.refuses(*self.SMALL, "--ratio", "7", command="pilot", says="--ratio 7 is not a number in (0, 1]")
        for option in ("--sparsifier=topk:k=1", "--eval-train", "--metrics-every-step", "--change=lr", "--save-weights=w.npy"):
            self.refuses(*self.SMALL, option, command="pilot", lines=2, says=f"unknown option {option.split('=')[0]}")


class Columns(Case):
    """Everything that is printed fits a terminal of 80 columns."""

    def shown(self, *arguments, until=None):
        """What a terminal shows, line by line; lines that were written over too. `until`: Ctrl-C when it has appeared."""
        shown = processes.on_terminal(self, [PROGRAM, *arguments], until=until, cwd=self.folder)
        return [line.rstrip() for line in re.split(r"\r\n|\r\x1b\[K", shown)]

    def fits(self, lines):
        for line in lines:
            self.assertLessEqual(len(line), 80, line)

    def test_hold_help_and_lists(self):
        for command in ("compare", "compress", "decompress", "inspect", "list", "pilot", "reproduce", "study", "train"):
            self.fits(self.shown(command, "--help"))
        self.fits(self.shown("--help"))
        self.fits(self.shown("list"))
        self.fits(self.shown("reproduce", "--list"))

    def test_hold_the_result_of_a_pilot(self):
        self.fits(self.shown("pilot", *SMALL[:2], "--workers", "200"))

    def test_hold_the_progress_of_a_training_whole_words_only(self):
        lines = self.shown("train", *SMALL, *THREADS, "--steps", "1200", "--validation", "0.2", "--eval-train")
        self.fits(lines)
        bars = [line for line in lines if line.startswith("[")]
        self.assertTrue(bars)
        self.assertLess(max(map(len, bars)), 80, "a full line would wrap")
        number = r"[-+.e\d]+"
        speed = r"([\d.]+|\d{1,3}(,\d{3})+)"
        piece = rf"\d+ (s|min) left|batch loss {number}|[a-z]+ (loss|accuracy) {number}|{speed} steps/s|1/{number} of dense( \(.* less per worker\))?"
        for one in bars:
            self.assertRegex(one, rf"^\[[#.]{{12}}\] step \d+/1200(  ({piece}))*$")
        self.assertNotIn("left", bars[-1])
        lines = self.shown("train", *SMALL, *THREADS, "--steps", "100000000", until=b" left")
        self.assertTrue(any(re.match(r"\[\.{12}\] step \d+/100000000  [\d hmind]+ left  batch loss", one) for one in lines), lines)

    def test_hold_the_table_of_a_comparison(self):
        small = ["--steps", "30", "--workers", "3", "--ratio", "0.05", "--validation", "0.2", "--data", "d", "--problem", "logreg"]
        (self.folder / "d").write_text("+1 1:1 2:1\n-1 1:2\n+1 2:2\n-1 1:1\n" * 10)
        lines = self.shown("compare", *small)
        self.fits(lines)
        self.assertTrue(any(re.match(r"topk_both_ways +\d", line) for line in lines), lines)
        self.assertTrue(any("accuracy" in line for line in lines))


if __name__ == "__main__":
    unittest.main()
