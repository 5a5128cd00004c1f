#!/usr/bin/env python3
"""Trainings that are killed at any moment or stopped by signals, and resumed, on threads and under mpirun.

    train_resume_test.py PROGRAM MPIEXEC [SUITE]...     MPIEXEC: "" where there is none; SUITE: some of the classes below
"""

import json
import os
import random
import re
import resource
import shutil
import signal
import time
import unittest
from pathlib import Path

from patience import DEADLINE_THAT_PASSES, patient
from train_case import Case, SMALL, THREADS, without_times


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
    end = time.monotonic() + patient(60)
    while any(is_alive(pid) for pid in others):
        assert time.monotonic() < end, f"one of {others} was killed and has not ended"


class Killed(Case):
    """kill -9 at random points, 20 times; the weights are those of a training that was not interrupted."""

    KILLS = 20
    STEPS = ["--steps", "150", "--metrics", "m.jsonl", "--metrics-every-step"]

    def kill_often(self, ranks):
        place = [] if ranks else THREADS
        whole = self.train(*SMALL, *place, *self.STEPS, ranks=ranks)
        expected = self.metrics()
        self.assertEqual([line["step"] for line in expected], list(range(1, 151)))
        (self.folder / "m.jsonl").unlink()
        draw = random.Random(20)
        resumed = [*SMALL, *place, *self.STEPS, "--checkpoint-dir", "c", "--checkpoint-every", "3", "--resume"]
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


class Full(Case):
    """A disk that is full in the middle of a line of the metrics, again and again."""

    def test_loses_no_line_of_the_metrics(self):
        steps = [*SMALL, *THREADS, "--steps", "60", "--metrics", "m.jsonl", "--metrics-every-step"]
        self.train(*steps)
        expected = self.metrics()
        for every in ("0", "3"):  # the checkpoint is of the step whose line is missing, or of the next one
            (self.folder / "m.jsonl").unlink()
            resumed = [*steps, "--checkpoint-dir", f"c{every}", "--checkpoint-every", every, "--resume"]
            fulls = 0
            for limit in range(9000, 1000000, 1500):
                done = self.run_train(*resumed, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
                if done.returncode == 0:
                    break
                self.assertIn("sparsewire: cannot write 'm.jsonl': File too large", done.stderr)
                fulls += 1
            self.assertGreater(fulls, 5)
            lines = self.metrics()
            for line in lines:
                line["flags"] = 0  # of the step in which all ranks heard of it
            self.assertEqual(without_times(lines), without_times(expected))
            seconds = [line["seconds"] for line in lines]
            self.assertEqual(seconds, sorted(seconds))


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


class Suspended(Case):
    """It runs beside nothing: a starved worker is silent, too."""

    def test_by_ctrl_z_for_longer_than_the_deadline_goes_on(self):
        steps = ["--steps", "1000000", "--metrics", "m.jsonl", "--metrics-every-step", "--deadline", str(DEADLINE_THAT_PASSES)]
        process = self.start(*SMALL, *THREADS, *steps)
        self.assertTrue(self.wait_for_step(process, 3))
        process.send_signal(signal.SIGSTOP)
        time.sleep(DEADLINE_THAT_PASSES + 1)  # what is tested is that time goes by
        step = self.last_step()
        process.send_signal(signal.SIGCONT)
        self.assertTrue(self.wait_for_step(process, step + 100))
        process.terminate()
        self.assertIn("stopped by a signal", process.communicate()[1])


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
        change = ["--lr", "0.01", "--change", "lr", "--steps", "20"]
        self.refuses(*resume, *change, says="'c/step-00000020' has no step left of --steps 20, so --change would change nothing")
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


class OldCheckpoints(Case):
    def test_of_0_1_0_continue_with_the_same_bits(self):
        """tests/golden/states: a checkpoint that 0.1.0 wrote, and the report of 0.1.0 after it had resumed from it."""
        golden = Path(__file__).resolve().parents[2] / "tests" / "golden" / "states"
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


if __name__ == "__main__":
    unittest.main()
