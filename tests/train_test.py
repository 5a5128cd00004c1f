#!/usr/bin/env python3
"""Trainings as processes: killed at any moment and resumed, stopped by signals, on threads and under mpirun.

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
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import unittest
from pathlib import Path

import processes

PROGRAM = ""
MPIEXEC = ""

# Every kind of state: memories of workers and servers, momentum; small enough for hundreds of steps a second.
SMALL = ["--problem", "mlp:inputs=12,hidden=8,classes=3,samples=200,held_back=40,batch=8", "--sparsifier", "topk:ratio=0.05"]
SMALL += ["--downlink", "topk:ratio=0.1", "--optimiser", "sgd:momentum=0.9", "--lr", "0.05", "--seed", "3", "--eval-every", "10"]
THREADS = ["--workers", "3"]


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="sparsewire_train_"))
        self.addCleanup(shutil.rmtree, self.folder)
        open_mpi = tempfile.mkdtemp(prefix="sparsewire_train_mpi_")
        self.addCleanup(shutil.rmtree, open_mpi, ignore_errors=True)
        os.environ.update(processes.open_mpi_folder(open_mpi))

    def command(self, *arguments, ranks=0, command="train"):
        if not ranks:
            return [PROGRAM, command, *arguments]
        if not MPIEXEC:
            self.skipTest("no mpirun")
        return [MPIEXEC, "-n", str(ranks), PROGRAM, command, "--transport", "mpi", *arguments]

    def run_train(self, *arguments, ranks=0, command="train", **more):
        return self.run_command(self.command(*arguments, ranks=ranks, command=command), **more)

    def run_command(self, command, **more):
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return processes.run(command, cwd=self.folder, text=True, **{**pipes, **more})

    def train(self, *arguments, ranks=0, **more):
        """The report of a training that goes well."""
        done = self.run_train(*arguments, "--json", "report.json", ranks=ranks, **more)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.stderr = done.stderr
        return json.loads((self.folder / "report.json").read_text())

    def refuses(self, *arguments, says="", code=2, ranks=0, lines=1, command="train"):
        done = self.run_train(*arguments, "-q", ranks=ranks, command=command)
        ours = [line for line in done.stderr.splitlines() if line.startswith("sparsewire: ")]
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertEqual(len(ours), 1, done.stderr)
        if not ranks:
            self.assertEqual(len(done.stderr.splitlines()), lines, done.stderr)
        self.assertIn(says, ours[0])
        return ours[0]

    def start(self, *arguments, ranks=0):
        command = self.command(*arguments, "--json", "report.json", ranks=ranks)
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return processes.start(self, command, cwd=self.folder, text=True, **pipes)

    def metrics(self, name="m.jsonl"):
        """Whole lines only: the last one may be on its way."""
        path = self.folder / name
        text = path.read_text() if path.exists() else ""
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]

    def last_step(self):
        lines = self.metrics()
        return lines[-1]["step"] if lines else 0

    def wait_for_step(self, process, step):
        """Whether it got there before it ended."""
        while self.last_step() < step:
            try:
                process.wait(timeout=0.001)
                return False
            except subprocess.TimeoutExpired:
                pass
        return True


def without_times(lines):
    return [{key: value for key, value in line.items() if not key.startswith("ns_")} for line in lines]


def children(parent):
    """The processes that `parent` started."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # ended meanwhile
            if int(fields[1]) == parent:
                found.append(int(entry.name))
    return sorted(found)


def is_alive(pid):
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def kill_one_and_all(process, victim, others, leave_to_mpirun):
    """Kills the victim, then the others unless mpirun is to do that. No process of the run is left afterwards."""
    kill(victim)
    if not leave_to_mpirun:
        process.kill()
    process.wait()
    for pid in others:
        kill(pid)
    while any(is_alive(pid) for pid in others):
        pass


class Killed(Case):
    """kill -9 at random points, 20 times; the weights are those of a training that was not interrupted."""

    KILLS = 20
    STEPS = ["--steps", "150", "--checkpoint-every", "3", "--metrics", "m.jsonl", "--metrics-every-step"]

    def kill_often(self, ranks):
        place = [] if ranks else THREADS
        whole = self.train(*SMALL, *place, *self.STEPS, ranks=ranks)
        expected = self.metrics()
        self.assertEqual([line["step"] for line in expected], list(range(1, 151)))
        (self.folder / "m.jsonl").unlink()
        draw = random.Random(20)
        resumed = [*SMALL, *place, *self.STEPS, "--checkpoint-dir", "c", "--resume"]
        kills = 0
        for attempt in range(10 * self.KILLS):
            if kills == self.KILLS:
                break
            process = self.start(*resumed, ranks=ranks)
            begun_at = self.last_checkpoint()
            target = begun_at + draw.randrange(0, 12)
            files = draw.randrange(-1, 6)
            # The metrics may still be those of the last run, so wait until this one has started.
            self.assertTrue(self.wait_for_begin(process))
            if not self.wait_for_step(process, target) or not self.wait_for_files(process, files):
                self.assertEqual(process.wait(), 0)  # too late
                shutil.rmtree(self.folder / "c")
                continue
            started = children(process.pid) if ranks else []
            victim = draw.choice([process.pid, *started])
            kill_one_and_all(process, victim, started, leave_to_mpirun=draw.randrange(4) == 0)
            kills += 1
            if self.last_checkpoint() >= 140:  # before it runs out of steps: start again
                shutil.rmtree(self.folder / "c")
        self.assertEqual(kills, self.KILLS)
        report = self.train(*resumed, ranks=ranks)
        for key in ("weights_crc32c", "loss", "test_loss", "bytes_up", "bytes_down", "bytes_served", "paper_bits_up", "paper_bits_down", "total_error"):
            self.assertEqual(report[key], whole[key], key)
        self.assertEqual(without_times(self.metrics()), without_times(expected))
        self.assertEqual(sorted(os.listdir(self.folder / "c")), ["step-00000147", "step-00000150"])
        for checkpoint in (self.folder / "c").iterdir():
            self.assertEqual(len(os.listdir(checkpoint)), 5)

    def last_checkpoint(self):
        steps = [int(path.parent.name[5:]) for path in (self.folder / "c").glob("step-*/manifest.json")]
        return max(steps, default=0)

    def wait_for_files(self, process, count):
        """Until a checkpoint that is being written has so many files, temporary ones included; -1: do not wait."""
        while count >= 0 and process.poll() is None:
            newest = max((self.folder / "c").glob("step-*"), default=None)
            try:
                names = os.listdir(newest) if newest else []
            except FileNotFoundError:
                continue  # it was an old one
            if newest and len(names) >= count and (count == 5 or "manifest.json" not in names):
                return True
        return process.poll() is None

    def wait_for_begin(self, process):
        """Until it says where it starts, which is before it removes lines of the metrics."""
        for line in process.stderr:
            if "resuming from" in line or "no checkpoint" in line:
                return True
        return False

    def test_on_threads(self):
        self.kill_often(0)

    def test_under_mpirun(self):
        self.kill_often(3)


class Stopped(Case):
    STEPS = ["--steps", "1000000", "--checkpoint-dir", "c", "--checkpoint-every", "0", "--metrics", "m.jsonl", "--metrics-every-step"]

    def stop(self, ranks, signal_number, whom):
        place = [] if ranks else THREADS
        process = self.start(*SMALL, *place, *self.STEPS, ranks=ranks)
        self.assertTrue(self.wait_for_step(process, 7))
        os.kill(whom(process.pid), signal_number)
        out, err = process.communicate()
        self.assertEqual(process.returncode, 1, err)
        stopped = re.search(r"^sparsewire: stopped by a signal after step (\d+) of 1000000; to continue from 'c/step-(\d+)', add --resume", err, re.M)
        self.assertTrue(stopped, err)
        self.assertEqual(err.count("sparsewire: "), 1, err)
        step = int(stopped[1])
        self.assertEqual((int(stopped[2]), self.last_step(), out), (step, step, ""))
        self.assertFalse((self.folder / "report.json").exists())
        more = ["--steps", str(step + 10)]
        resumed = self.train(*SMALL, *place, *self.STEPS[2:], *more, "--resume", ranks=ranks)
        whole = self.train(*SMALL, *place, *more, ranks=ranks)
        self.assertEqual(resumed["weights_crc32c"], whole["weights_crc32c"])

    def test_by_sigterm(self):
        self.stop(0, signal.SIGTERM, lambda main: main)

    def test_by_ctrl_c(self):
        self.stop(0, signal.SIGINT, lambda main: main)

    def test_under_mpirun_by_a_signal_to_one_rank(self):
        for rank in (0, 2):
            with self.subTest(rank=rank):
                self.stop(3, signal.SIGTERM, lambda main: children(main)[rank])
                shutil.rmtree(self.folder / "c")
                for name in ("m.jsonl", "report.json"):
                    (self.folder / name).unlink()

    def test_at_once_by_a_second_signal(self):
        process = self.start(*SMALL, *THREADS, *self.STEPS)
        self.assertTrue(self.wait_for_step(process, 3))
        for number in (signal.SIGSTOP, signal.SIGTERM, signal.SIGINT, signal.SIGCONT):  # both wait when it wakes up
            process.send_signal(number)
        process.communicate()
        self.assertIn(process.returncode, (-signal.SIGTERM, -signal.SIGINT))

    def test_without_a_folder_for_checkpoints(self):
        process = self.start(*SMALL, *THREADS, "--steps", "1000000", "--metrics", "m.jsonl", "--metrics-every-step")
        self.assertTrue(self.wait_for_step(process, 3))
        process.terminate()
        _, err = process.communicate()
        self.assertEqual(process.returncode, 1)
        self.assertRegex(err, r"stopped by a signal after step \d+ of 1000000; without --checkpoint-dir")


class Resumed(Case):
    def checkpoint(self, *arguments):
        self.train(*SMALL, *THREADS, "--steps", "20", "--checkpoint-dir", "c", "--checkpoint-every", "10", *arguments)

    def test_with_another_number_of_workers(self):
        for workers in (1, 2, 3, 5):
            with self.subTest(workers=workers):
                self.checkpoint()
                report = self.train(*SMALL, "--steps", "40", "--checkpoint-dir", "c", "--resume", "--workers", str(workers))
                self.assertEqual("divided among the new ones" in self.stderr, workers != 3, self.stderr)
                self.assertEqual(report["config"]["workers"], workers)
                self.assertGreater(report["test_accuracy"], 1 / 3)
                shutil.rmtree(self.folder / "c")

    def test_on_threads_what_began_under_mpirun(self):
        whole = self.train(*SMALL, *THREADS, "--steps", "40")
        self.train(*SMALL, "--steps", "20", "--checkpoint-dir", "c", ranks=3)
        self.assertEqual(self.train(*SMALL, *THREADS, "--steps", "30", "--checkpoint-dir", "c", "--resume")["step"], 30)
        report = self.train(*SMALL, "--steps", "40", "--checkpoint-dir", "c", "--resume", ranks=3)
        self.assertEqual(report["weights_crc32c"], whole["weights_crc32c"])

    def test_from_an_older_one_where_the_newest_is_damaged(self):
        whole = self.train(*SMALL, *THREADS, "--steps", "30")
        nested = b'{"crc32c": "0", "x": ' + b"[" * 100000 + b"]" * 100000 + b"}"
        for name in ("model.state", "rank-0.state", "rank-2.state", "manifest.json", "manifest.json nested"):
            with self.subTest(name):
                self.checkpoint()
                name, _, is_nested = name.partition(" ")
                path = self.folder / "c/step-00000020" / name
                path.write_bytes(nested if is_nested else path.read_bytes()[:-5])
                report = self.train(*SMALL, *THREADS, "--steps", "30", "--checkpoint-dir", "c", "--resume")
                self.assertRegex(self.stderr, rf"damaged: .*{name}.*; going back to step 10")
                self.assertEqual(report["weights_crc32c"], whole["weights_crc32c"])
                shutil.rmtree(self.folder / "c")

    def test_not_from_another_training(self):
        self.checkpoint()
        resume = [*SMALL, *THREADS, "--checkpoint-dir", "c", "--resume", "--steps", "30"]
        self.refuses(*resume, "--sparsifier", "randomk:k=3", says="--sparsifier was \"topk:ratio=0.05\" and is \"randomk:k=3\"")
        self.refuses(*resume, "--sparsifier", "randomk:k=3", says="add --change sparsifier")
        self.refuses(*resume, "--steps", "19", says="beyond --steps 19")
        self.refuses(*resume[:-3], says="has checkpoints of an earlier training")
        for path in (self.folder / "c").glob("*/model.state"):
            path.write_bytes(b"")
        self.refuses(*resume, says="all checkpoints in 'c' are damaged")

    def test_with_other_options_if_asked(self):
        """On threads and under mpirun with the same bits; also if it is stopped after the change and continued."""
        changed = ["--lr", "0.01", "--sparsifier", "topk:ratio=0.2", "--change", "sparsifier,lr", "--resume", "--metrics", "m.jsonl"]
        weights = set()
        for ranks, steps in ((0, ["40"]), (3, ["40"]), (0, ["30", "40"]), (3, ["30", "40"])):
            self.checkpoint("--metrics", "m.jsonl")
            for one in steps:
                more = [] if ranks else THREADS
                report = self.train(*SMALL, *more, "--checkpoint-dir", "c", *changed, "--steps", one, ranks=ranks)
            weights.add(report["weights_crc32c"])
            self.assertEqual([(one["step"], sorted(one["changed"])) for one in report["changes"]], [(20, ["lr", "sparsifier"])])
            self.assertEqual([line["step"] for line in self.metrics() if "changed" in line], [20])
            shutil.rmtree(self.folder / "c")
        self.assertEqual(len(weights), 1)

    def test_where_the_metrics_were_cut_in_a_line(self):
        self.checkpoint("--metrics", "m.jsonl", "--metrics-every-step")
        whole = self.metrics()
        text = (self.folder / "m.jsonl").read_text()
        shutil.rmtree(self.folder / "c/step-00000020")
        for cut in (len(text) - 1, len(text) - 30, len("".join(text.splitlines(True)[:12])) + 7):
            (self.folder / "m.jsonl").write_text(text[:cut])
            shutil.copytree(self.folder / "c", self.folder / "d")
            self.train(*SMALL, *THREADS, "--steps", "20", "--checkpoint-dir", "d", "--metrics", "m.jsonl", "--metrics-every-step", "--resume")
            self.assertEqual(without_times(self.metrics()), without_times(whole))
            shutil.rmtree(self.folder / "d")


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
        again = self.train(*self.options(), *THREADS, "--init-weights", "w.npy", "--steps", "0")
        self.assertEqual(again["weights_crc32c"], report["weights_crc32c"])
        if MPIEXEC:
            self.assertEqual(self.train(*self.options(), "--init-weights", "w.npy", "--steps", "0", ranks=3)["test_loss"], report["test_loss"])
        self.refuses(*SMALL, "--init-weights", "w.npy", says="has the shape (27,), but the model has 131 weights")
        self.refuses(*SMALL, "--save-weights", "none/w.npy", code=1, says="cannot write 'none/w.npy'")
        self.refuses(*SMALL, "--save-weights", "x", "--metrics", "x", says="same file")
        self.refuses(*SMALL, "--save-weights", "-", says="--save-weights -")

    def test_that_are_wrong_are_named(self):
        self.refuses(*self.options(test="none"), *THREADS, says="cannot read 'none'")
        self.refuses(*self.options(), "--workers", "2", says="--worker-weights 1,2,0.5 has 3 numbers, and there are 2 workers")
        self.refuses(*self.options(), "--workers", "60", says="81 samples cannot be cut into 120 shards")
        self.refuses(*self.options(), *THREADS, "--validation", "1", says="--validation 1 is not a number in [0, 1)")
        self.refuses(*self.options(), *THREADS, "--split", "dirichlet:beta=1", says="[dirichlet] unknown key 'beta'")
        self.refuses(*SMALL, "--test-data", "test", says="[mlp] takes no data")
        if MPIEXEC:
            self.refuses(*self.options(), ranks=2, says="--worker-weights 1,2,0.5 has 3 numbers, and there are 2 workers")


class OldCheckpoints(Case):
    def test_of_0_1_0_continue_with_the_same_bits(self):
        """tests/golden/states: a checkpoint that 0.1.0 wrote, and the report of 0.1.0 after it had resumed from it."""
        golden = Path(__file__).resolve().parent / "golden" / "states"
        before = json.loads((golden / "resumed.json").read_text())
        shutil.copytree(golden / "checkpoint", self.folder / "checkpoint")
        options = ["problem", "workers", "sparsifier", "downlink", "optimiser", "lr", "seed", "steps", "keep"]
        options += ["checkpoint_dir", "checkpoint_every"]
        arguments = [f"--{name.replace('_', '-')}={before['config'][name]}" for name in options]
        now = self.train(*arguments, "--resume")
        for key in ["step", "weights_crc32c", "loss"]:
            self.assertEqual(now[key], before[key], key)
        self.assertEqual(now["train_loss"], before["test_loss"])  # as it was called
        # Since 0.4.0 the trailers are counted: in 10 steps each of 3 workers sent 2 of 52 bytes to the others.
        for key, trailers in [("bytes_up", 6), ("bytes_down", 6), ("bytes_served", 12)]:
            self.assertEqual(now[key], before[key] + 10 * trailers * 52, key)
        # Norms are not added up in the same order as in 0.1.0.
        # 0.1.0 did not count what the servers owe.
        self.assertAlmostEqual((now["total_error"] - now["server_error"]) / before["total_error"], 1, places=12)


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

    def test_that_are_wrong_are_named_once_under_mpirun(self):
        self.refuses(*SMALL, "--workers", "4", ranks=2, says="--workers 4 with --transport mpi, but mpirun started 2 processes")
        self.refuses(*SMALL, "--sparsifier", "topk:k=0", ranks=2, says="k=0")
        self.refuses(*SMALL, "--metrics", "/dev/full", ranks=2, code=1, says="cannot write '/dev/full'")

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
        self.assertIn(f"{report['bytes_up']:,} bytes up", self.run_train(*options, command="pilot").stdout)
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

    def test_writes_nothing_but_its_report(self):
        done = self.run_train(*self.SMALL, "--steps", "5", "--ratio", "0.1", "--save-weights", "w.npy", "--json", "r.json",
                              command="pilot")  # fmt: skip
        self.assertIn(done.returncode, (0, 2))
        self.assertNotIn("w.npy", [path.name for path in self.folder.iterdir()])

    def test_refuses_what_it_cannot_do(self):
        self.refuses(*self.SMALL, "--ratio", "7", command="pilot", says="--ratio 7 is not a number in (0, 1]")
        self.refuses(*self.SMALL, "--sparsifier", "topk:k=1", command="pilot", lines=2, says="unknown option --sparsifier")


class Compare(Case):
    SMALL = [*SMALL[:2], "--lr", "0.05", "--steps", "30", "--workers", "3", "--ratio", "0.05"]
    NAMES = ["dense", "topk", "randomk", "rtopk", "threshold", "regtopk", "topk_both_ways"]

    def test_runs_every_method_on_the_same_problem(self):
        done = self.run_train(*self.SMALL, "--json", "r.json", command="compare")
        self.assertEqual(done.returncode, 0, done.stderr)
        report = json.loads((self.folder / "r.json").read_text())
        self.assertEqual([row["method"] for row in report["methods"]], self.NAMES)
        self.assertEqual(json.loads((self.folder / "compare-out/summary.json").read_text()), report)
        self.assertEqual(report["ratio"], 0.05)
        self.assertIn("the same for all methods", done.stdout)
        rows = dict(zip(self.NAMES, report["methods"]))
        trailers = 4 * 3 * 52 * 30  # each of 3 workers sends 2 in a step, and receives 2
        weights = 12 * 8 + 8 + 8 * 3 + 3
        self.assertAlmostEqual(rows["dense"]["ratio_to_dense"], 1 + trailers / (30 * 4 * 4 * weights), places=2)
        self.assertEqual(rows["dense"]["total_error"], 0)
        self.assertLess(rows["topk_both_ways"]["bytes_down"], rows["topk"]["bytes_down"])
        for name, row in rows.items():
            lines = self.metrics(f"compare-out/{name}.jsonl")
            self.assertEqual([line["step"] for line in lines], [30])
            self.assertEqual([lines[-1]["total_" + key] for key in ("bytes_up", "bytes_down")], [row["bytes_up"], row["bytes_down"]])
            self.assertEqual(lines[-1]["test_loss"], row["test_loss"])
            self.assertRegex(done.stdout, rf"(?m)^{name} +\d")
            alone = self.train(*self.SMALL[:-2], "--sparsifier", row["sparsifier"], "--downlink", row.get("downlink", ""),
                               "--exchange", row["exchange"])  # fmt: skip
            self.assertEqual(alone["weights_crc32c"], row["weights_crc32c"], "as train does it")

    def test_takes_some_of_the_methods(self):
        done = self.run_train(*self.SMALL, "--methods", "topk,dense", "--out", "x", "-q", "--json", "-", command="compare")
        self.assertEqual([row["method"] for row in json.loads(done.stdout)["methods"]], ["topk", "dense"])
        self.assertEqual(sorted(os.listdir(self.folder / "x")), ["dense.jsonl", "summary.json", "topk.jsonl"])
        self.refuses(*self.SMALL, "--methods", "topk,best", command="compare", says="'best' is not a method; there are dense, topk")
        self.refuses(*self.SMALL[:-2], "--ratio", "7", command="compare", says="--ratio 7 is not a number in (0, 1]")
        self.refuses(*self.SMALL, "--exchange", "nosuch", "--out", "y", command="compare", says="nosuch")
        self.assertFalse((self.folder / "y").exists(), "refused before anything ran")
        self.refuses(*self.SMALL, "--exchange", "allgather", command="compare", says="topk_both_ways: ")
        self.refuses(*self.SMALL, "--json", "none/r.json", "--out", "z", code=1, command="compare", says="cannot write 'none/r.json'")
        self.assertEqual(os.listdir(self.folder / "z"), [])

    def test_shows_who_diverges_and_goes_on(self):
        toy = ["--problem", "downlink_toy", "--lr", "1e9", "--json", "r.json", "--methods", "topk"]
        done = self.run_train(*toy, "dense | clip=1e-30 name=careful", command="compare")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"(?m)^topk +diverged ")
        self.assertRegex(done.stdout, r"(?m)^- topk: diverged in step \d+")
        self.assertRegex(done.stdout, r"(?m)^careful +\d")
        rows = json.loads((self.folder / "r.json").read_text())["methods"]
        self.assertIn("diverged", rows[0]["failure"])
        self.assertNotIn("failure", rows[1])
        done = self.run_train(*toy, "dense", command="compare")
        self.assertEqual(done.returncode, 1)
        self.assertIn("sparsewire: every method diverged", done.stderr)
        self.assertEqual(len(json.loads((self.folder / "r.json").read_text())["methods"]), 2)

    def test_leaves_nothing_of_an_earlier_comparison(self):
        out = self.folder / "compare-out"
        self.assertEqual(self.run_train(*self.SMALL, "--methods", "topk,dense", "rtopk:r=4", command="compare").returncode, 0)
        self.assertEqual(sorted(os.listdir(out)), ["dense.jsonl", "rtopk_r=4.jsonl", "summary.json", "topk.jsonl"])
        (out / "mine.jsonl").write_text("mine")
        (out / "randomk.jsonl").write_text("not metrics")
        self.assertEqual(self.run_train(*self.SMALL, "--methods", "regtopk", command="compare").returncode, 0)
        self.assertEqual(sorted(os.listdir(out)), ["mine.jsonl", "randomk.jsonl", "regtopk.jsonl", "summary.json"])
        self.refuses(*self.SMALL, "--methods", "randomk", command="compare", says="randomk.jsonl' does not begin with a line of metrics")
        (out / "summary.json").write_text('{"methods": []}')
        self.refuses(*self.SMALL, command="compare", says="summary.json' is not of a comparison")
        self.assertEqual((out / "randomk.jsonl").read_text(), "not metrics")

    def test_a_signal_keeps_the_methods_that_are_done(self):
        long = [*self.SMALL, "--steps", "300", "--eval-every", "1", "--json", "r.json"]
        process = processes.start(self, self.command(*long, command="compare"), cwd=self.folder, text=True, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip
        while not self.metrics("compare-out/randomk.jsonl"):
            try:
                process.wait(timeout=0.001)
                break
            except subprocess.TimeoutExpired:
                pass
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate()
        self.assertEqual(process.returncode, 1, stderr)
        rows = json.loads((self.folder / "compare-out/summary.json").read_text())["methods"]
        names = [row["method"] for row in rows]
        self.assertEqual(names, self.NAMES[: len(names)])
        self.assertGreaterEqual(len(names), 2)
        self.assertLess(len(names), 7)
        self.assertIn(f"sparsewire: stopped by a signal; {len(names)} of 7 methods are done and in 'compare-out'", stderr)
        self.assertEqual(json.loads((self.folder / "r.json").read_text())["methods"], rows)
        for name in names:
            self.assertRegex(stdout, rf"(?m)^{name} +\d")
        self.assertEqual(sorted(os.listdir(self.folder / "compare-out")), sorted([f"{name}.jsonl" for name in names] + ["summary.json"]))

    def test_takes_methods_as_a_study_does(self):
        specs = ["rtopk:r=4", "topk | codec=golomb:values=bf16 name=small"]
        done = self.run_train(*self.SMALL, "--json", "-", "-q", "--methods", "dense", *specs, command="compare")
        rows = json.loads(done.stdout)["methods"]
        self.assertEqual([row["method"] for row in rows], ["dense", "rtopk:r=4", "small"])
        self.assertEqual(rows[1]["sparsifier"], "rtopk:r=4,ratio=0.05")
        self.assertEqual([row["metrics"] for row in rows], ["dense.jsonl", "rtopk_r=4.jsonl", "small.jsonl"])
        self.refuses(*self.SMALL, "--methods", "regtopk:mu=1/4", command="compare", says="a list of values is for 'sparsewire study'")
        self.refuses(*self.SMALL, "--methods", "topk", "topk", command="compare", says="'topk' is given twice")


class Columns(Case):
    """Everything that is printed fits a terminal of 80 columns."""

    def shown(self, *arguments, until=None):
        """What a terminal shows, line by line; lines that were written over too. `until`: Ctrl-C when it has appeared."""
        ours, theirs = os.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        process = processes.start(self, [PROGRAM, *arguments], cwd=self.folder, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs)
        os.close(theirs)
        shown = b""
        is_stopped = False
        try:
            while piece := os.read(ours, 10000):
                shown += piece
                if until and until in shown and not is_stopped:
                    process.send_signal(signal.SIGINT)
                    is_stopped = True
        except OSError:  # Linux's end of a terminal
            pass
        os.close(ours)
        self.assertEqual(process.wait(), 1 if until else 0, shown)
        return [line.rstrip() for line in re.split(r"\r\n|\r\x1b\[K", shown.decode())]

    def fits(self, lines):
        for line in lines:
            self.assertLessEqual(len(line), 80, line)

    def test_hold_help_and_lists(self):
        for command in ("compare", "compress", "decompress", "inspect", "list", "pilot", "reproduce", "study", "train"):
            self.fits(self.shown(command, "--help"))
        self.fits(self.shown("--help"))
        self.fits(self.shown("list"))
        self.fits(self.shown("reproduce", "--list"))

    def test_hold_the_progress_of_a_training_whole_words_only(self):
        lines = self.shown("train", *SMALL, *THREADS, "--steps", "1200", "--validation", "0.2", "--eval-train")
        self.fits(lines)
        bars = [line for line in lines if line.startswith("[")]
        self.assertTrue(bars)
        self.assertLess(max(map(len, bars)), 80, "a full line would wrap")
        number = r"[-+.e\d]+"
        piece = rf"\d+ (s|min) left|batch loss {number}|[a-z]+ (loss|accuracy) {number}|{number} steps/s|1/{number} of dense( \(.* less per worker\))?"
        for one in bars:
            self.assertRegex(one, rf"^\[[#.]{{12}}\] step \d+/1200(  ({piece}))*$")
        self.assertNotIn("left", bars[-1])
        lines = self.shown("train", *SMALL, *THREADS, "--steps", "100000000", until=b" left")
        self.assertTrue(any(re.match(r"\[\.{12}\] step \d+/100000000  [\d hmind]+ left  batch loss", one) for one in lines), lines)

    def test_hold_the_table_of_a_comparison(self):
        small = [*Compare.SMALL, "--validation", "0.2", "--data", "d", "--problem", "logreg"]
        (self.folder / "d").write_text("+1 1:1 2:1\n-1 1:2\n+1 2:2\n-1 1:1\n" * 10)
        lines = self.shown("compare", *small)
        self.fits(lines)
        self.assertTrue(any(re.match(r"topk_both_ways +\d", line) for line in lines), lines)
        self.assertTrue(any("accuracy" in line for line in lines))


if __name__ == "__main__":
    PROGRAM, MPIEXEC = sys.argv[1:3]
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
