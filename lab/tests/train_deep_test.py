#!/usr/bin/env python3
"""Trainings of deep networks, on tiny data sets in the formats of the real ones.

    train_deep_test.py PROGRAM MPIEXEC [SUITE]
"""

import json
import os
import shutil
import struct
import unittest
from pathlib import Path

import train_case
from tiny_data import write_cifar, write_mnist, write_text
from train_case import PROGRAM

HAS_MODULE = Path(PROGRAM).with_name("libsparsewire_torch.so").exists()


class Case(train_case.Case):
    def setUp(self):
        super().setUp()
        self.data = self.folder / "data"
        write_mnist(self.data / "mnist", 24, 10)
        write_mnist(self.data / "fashion-mnist", 24, 10)
        write_cifar(self.data / "cifar10")
        write_text(self.data / "tinyshakespeare")

    def deep(self, problem, *arguments, ranks=0, **more):
        if not HAS_MODULE:
            self.skipTest("this build has no deep networks: -DSPARSEWIRE_TORCH=ON")
        data = ["--problem", problem, "--data-dir", str(self.data)]
        return self.train(*data, *arguments, "--eval-every", "0", "-q", ranks=ranks, **more)

    def same(self, one, other):
        for key in ["weights_crc32c", "test_loss", "loss"]:
            self.assertEqual(one[key], other[key], key)


class DeepNetworks(Case):
    """Each family trains; workers together are one worker with all samples."""

    def learns(self, problem, *arguments, steps=12):
        every_step = ["--metrics", "m.jsonl", "--metrics-every-step", "--sparsifier", "topk:ratio=0.1"]
        self.deep(problem, "--workers", "2", "--steps", str(steps), *every_step, *arguments)
        losses = [line["loss"] for line in self.metrics()]
        self.assertEqual(len(losses), steps)
        self.assertLess(losses[-1], 0.9 * losses[0])
        (self.folder / "m.jsonl").unlink()

    def test_perceptrons_learn(self):
        self.learns("mnist_mlp:batch=0")
        self.learns("fashion_mlp:batch=0", "--lr", "0.3", steps=20)

    def test_convolutions_learn(self):
        self.learns("mnist_cnn:batch=4", "--lr", "0.05", steps=16)
        self.learns("fashion_cnn:batch=0")

    def test_residual_networks_learn(self):
        self.learns("resnet20:batch=0,augment=false", steps=8)

    def test_language_models_learn(self):
        self.learns("lstm:length=8,width=32,batch=0", "--optimiser", "adam", "--lr", "0.02")
        self.learns("gpt:length=8,width=32,heads=2,layers=2,batch=0", "--optimiser", "adam", "--lr", "0.01")

    def test_workers_with_dense_gradients_are_one_with_the_joint_batch(self):
        dense = ["--sparsifier", "dense", "--exchange", "dense", "--steps", "5", "--save-weights", "w.npy"]
        # 84 rows of text and 24 images: as many for each of three workers.
        for problem in ["fashion_mlp:batch=0", "gpt:length=8,width=32,heads=2,layers=1,batch=0", "lstm:length=8,width=16,batch=0"]:
            weights = []
            for workers in ["1", "3"]:
                report = self.deep(problem, *dense, "--workers", workers)
                raw = (self.folder / "w.npy").read_bytes()
                count = sum(tensor["size"] for tensor in report["tensors"])
                weights.append(struct.unpack(f"<{count}f", raw[-4 * count :]))
            largest = max(map(abs, weights[0]))
            self.assertLess(max(abs(a - b) for a, b in zip(*weights)), 1e-5 * largest, problem)

    def test_no_more_samples_than_there_are(self):
        self.deep("mnist_mlp:samples=24,batch=4", "--workers", "2", "--steps", "1")
        data = ["--data-dir", str(self.data), "--workers", "2", "--steps", "1"]
        self.refuses("--problem", "mnist_mlp:samples=25,batch=4", *data, says="samples=25 is more than the 24 training images of mnist")
        self.refuses("--problem", "resnet20:samples=11", *data, says="samples=11 is more than the 10 training images of cifar10")

    def test_bits_per_character_are_the_loss_in_bits(self):
        report = self.deep("lstm:length=8,width=16,batch=2", "--workers", "1", "--steps", "1")
        for part in ["validation", "test"]:
            self.assertAlmostEqual(report[f"{part}_bits_per_character"] * 0.6931471805599453, report[f"{part}_loss"], places=12)


class DeepNetworksAgain(Case):
    """The same bits: after a checkpoint, under mpirun, on fewer processors."""

    # BatchNorm has running statistics, dropout draws random numbers, and the optimiser has a state.
    SETTINGS = ["--optimiser", "sgd:momentum=0.9", "--lr", "0.02", "--downlink", "topk:ratio=0.1", "--seed", "5"]

    def test_resumed_trainings_end_with_the_same_bits(self):
        for problem in ["fashion_cnn:batch=4", "mnist_cnn:batch=2", "resnet20:batch=2", "lstm:length=8,width=8,batch=2"]:
            settings = [*self.SETTINGS, "--workers", "2"]
            whole = self.deep(problem, *settings, "--steps", "6")
            self.deep(problem, *settings, "--steps", "3", "--checkpoint-dir", "ck")
            resumed = self.deep(problem, *settings, "--steps", "6", "--checkpoint-dir", "ck", "--resume")
            self.same(whole, resumed)
            # At the end of a training that has no step left, evaluations use the statistics of the checkpoint.
            self.same(whole, self.deep(problem, *settings, "--steps", "6", "--checkpoint-dir", "ck", "--resume"))
            shutil.rmtree(self.folder / "ck")

    def test_another_number_of_workers_continues_with_the_mean_of_the_statistics(self):
        settings = [*self.SETTINGS, "--steps", "3", "--checkpoint-dir", "ck"]
        before = self.deep("fashion_cnn:batch=4", *settings, "--workers", "2")
        # No step is left, so what is evaluated is the same.
        after = self.deep("fashion_cnn:batch=4", *settings, "--workers", "3", "--resume")
        self.assertEqual(before["weights_crc32c"], after["weights_crc32c"])
        self.assertAlmostEqual(before["test_loss"], after["test_loss"], delta=1e-5)

    def test_processes_have_the_bits_of_threads(self):
        settings = [*self.SETTINGS, "--steps", "4"]
        on_threads = self.deep("fashion_cnn:batch=4", *settings, "--workers", "2")
        self.same(on_threads, self.deep("fashion_cnn:batch=4", *settings, ranks=2))

    def test_one_processor_has_the_bits_of_all(self):
        settings = [*self.SETTINGS, "--steps", "4", "--workers", "3"]
        processor = min(os.sched_getaffinity(0))
        alone = {"preexec_fn": lambda: os.sched_setaffinity(0, {processor})}
        self.same(self.deep("fashion_mlp", *settings), self.deep("fashion_mlp", *settings, **alone))


class DeepText(Case):
    """Rows of text begin elsewhere in every pass, and never reach into text that is held back."""

    def test_rows_differ_from_pass_to_pass(self):
        # A step is a pass, and the weights stay as they are: the same rows in another order would have the same loss.
        rows = (63 * 12 * 9 // 10 - 1) // 8
        self.deep(f"lstm:length=8,width=16,batch={rows}", "--workers", "1", "--steps", "3", "--lr", "1e-30", "--metrics", "m.jsonl", "--metrics-every-step")
        losses = [line["loss"] for line in self.metrics()]
        for one, other in zip(losses, losses[1:]):
            self.assertGreater(abs(one - other), 1e-5 * one, losses)

    def test_what_is_held_back_is_not_read(self):
        # Each row has a character of its own, whose row of the embedding changes if it is ever read.
        alphabet = [chr(code) for code in range(33, 127)]
        (self.data / "tinyshakespeare/input.txt").write_text("".join(one * 8 for one in alphabet))
        settings = ["--workers", "2", "--validation", "0.5", "--lr", "1", "--sparsifier", "dense", "--exchange", "dense", "--save-weights", "w.npy"]
        weights = []
        for steps in ("0", "40"):
            report = self.deep("lstm:length=8,width=8,batch=8", *settings, "--steps", steps)
            first = report["tensors"][0]
            self.assertEqual(first["size"], 2 * len(alphabet), first)  # the embedding has a quarter of the width
            raw = (self.folder / "w.npy").read_bytes()
            count = sum(tensor["size"] for tensor in report["tensors"])
            weights.append(struct.unpack(f"<{count}f", raw[-4 * count :])[: first["size"]])
        read = sum(weights[0][2 * i : 2 * i + 2] != weights[1][2 * i : 2 * i + 2] for i in range(len(alphabet)))
        training_rows = (len(alphabet) * 8 * 9 // 10 - 1) // 8
        self.assertEqual(read, training_rows - round(training_rows * 0.5))

    def test_fewer_bits_are_better(self):
        study = ["study", "--problem", "lstm:length=8,width=8,batch=4", "--data-dir", str(self.data), "--workers", "2", "--methods", "topk | lr=3", "topk | lr=0.001 name=slow"]
        study += ["--tune-seeds", "0", "--validation", "0", "--seeds", "2", "--steps", "10", "--primary", "metric", "--baseline", "slow", "-q"]
        if not HAS_MODULE:
            self.skipTest("this build has no deep networks: -DSPARSEWIRE_TORCH=ON")
        done = self.run_command([PROGRAM, *study])
        self.assertEqual(done.returncode, 0, done.stderr)
        fast, slow = json.loads((self.folder / "study-out/summary.json").read_text())["methods"]
        self.assertLess(fast["measures"]["metric"]["mean"], slow["measures"]["metric"]["mean"])
        self.assertEqual(fast["vs_baseline"]["wins"], 2)


class Presets(Case):
    def test_a_preset_sets_options_that_others_override(self):
        problem = ["--problem", "mlp:inputs=12,hidden=8,classes=3,samples=200,held_back=40,batch=8", "--workers", "2", "--steps", "2", "-q"]
        config = self.train("--preset", "sparseloco", *problem, "--lr", "0.01")["config"]
        expected = {"sparsifier": "topk:k=64,chunk=4096", "feedback": "ef:decay=0.95", "codec": "auto:values=int2", "average": "senders", "local_steps": 30, "optimiser": "adamw", "lr": 0.01, "exchange": "allgather"}
        self.assertEqual({key: config[key] for key in expected}, expected)
        self.assertEqual(self.train("--preset", "sparseloco", *problem)["config"]["lr"], 0.001)
        config = self.train("--preset", "diloco", *problem)["config"]
        expected = {"sparsifier": "dense", "exchange": "dense", "local_steps": 30, "outer_lr": 0.7, "outer_momentum": 0.9}
        self.assertEqual({key: config[key] for key in expected}, expected)
        self.refuses("--preset", "loco", says="--preset 'loco' is not a preset; there are sparseloco and diloco")


class WithoutLibtorch(Case):
    def setUp(self):
        super().setUp()
        self.alone = self.folder / "sparsewire"  # nothing is beside it
        shutil.copy(PROGRAM, self.alone)

    def run_alone(self, *arguments, **environment):
        variables = {key: value for key, value in os.environ.items() if key != "SPARSEWIRE_TORCH"}
        return self.run_command([str(self.alone), *arguments], env={**variables, **environment})

    def refuses(self, says, **environment):
        done = self.run_alone("train", "--problem", "resnet18", "--data-dir", str(self.data), "-q", **environment)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        self.assertIn(says, done.stderr)

    def test_the_program_says_what_is_missing_and_how_to_get_it(self):
        self.refuses("needs libtorch")
        self.refuses("-DSPARSEWIRE_TORCH=ON")

    def test_a_module_that_is_none_is_refused(self):
        self.refuses("which is not a file", SPARSEWIRE_TORCH=str(self.folder / "nothing.so"))
        (self.folder / "text.so").write_text("no library")
        self.refuses("cannot be loaded", SPARSEWIRE_TORCH=str(self.folder / "text.so"))

    def test_other_problems_train_and_the_list_names_it(self):
        self.assertEqual(self.run_alone("train", "--problem", "downlink_toy", "--steps", "2", "-q").returncode, 0)
        self.assertEqual(self.run_alone("list", "--json", "list.json").returncode, 0)
        problems = json.loads((self.folder / "list.json").read_text())["problems"]
        deep = [one["name"] for one in problems if "needs libtorch" in one["is"]]
        self.assertIn("resnet18", deep)
        self.assertNotIn("mlp", deep)


class DeepDevices(Case):
    def test_a_problem_that_needs_no_libtorch_computes_on_the_processor(self):
        self.refuses("--problem", "downlink_toy", "--device", "cuda", says="leave --device cuda out")

    def test_a_problem_without_a_data_set_takes_no_folder_of_them(self):
        self.refuses("--problem", "downlink_toy", "--data-dir", str(self.data), says="uses no data set: leave --data-dir")

    def test_a_device_that_is_not_there_is_named(self):
        if not HAS_MODULE or Path("/dev/nvidiactl").exists():
            self.skipTest("no deep networks in this build, or there is a GPU")
        self.refuses("--problem", "mnist_mlp", "--data-dir", str(self.data), "--device", "cuda", says="--device cuda cannot be used")


class DeepData(Case):
    def test_images_of_another_size_are_refused(self):
        if not HAS_MODULE:
            self.skipTest("this build has no deep networks: -DSPARSEWIRE_TORCH=ON")
        for name, header in [("train", (0x803, 2, 8, 8)), ("t10k", (0x803, 2, 8, 8))]:
            (self.data / f"mnist/{name}-images-idx3-ubyte").write_bytes(struct.pack(">IIII", *header) + bytes(128))
            (self.data / f"mnist/{name}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 0x801, 2) + bytes(2))
        self.refuses("--problem", "mnist_mlp", "--data-dir", str(self.data), says="has images of 8x8 pixels")


if __name__ == "__main__":
    unittest.main()
