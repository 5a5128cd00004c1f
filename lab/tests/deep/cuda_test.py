#!/usr/bin/env python3
"""Trainings on a GPU: the same bits with and without CUDA graphs, sifted there and on the host, and continued.

    cuda_test.py PROGRAM [TEST ...]

Skipped where there is no GPU. SPARSEWIRE_TORCH may name the module with the networks.
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from tiny_data import write_cifar, write_mnist, write_text  # noqa: E402

if len(sys.argv) < 2:
    print(__doc__)
    sys.exit(2)
PROGRAM = os.path.abspath(sys.argv.pop(1))

NETWORKS = ["mnist_mlp:batch=4", "mnist_cnn:batch=4", "fashion_cnn:batch=4", "resnet20:batch=4", "resnet18:batch=4", "vgg19:batch=4",
            "lstm:length=8,width=16,batch=4", "gpt:length=8,width=16,layers=2,heads=2,batch=4"]  # fmt: skip
METHODS = [
    ["--sparsifier", "topk:ratio=0.01", "--exchange", "server"],
    ["--sparsifier", "topk:ratio=0.01", "--exchange", "server", "--downlink", "topk:ratio=0.01", "--feedback", "ef:scale=lr"],
    ["--sparsifier", "regtopk:ratio=0.01", "--exchange", "sharded", "--downlink", "topk:ratio=0.02", "--codec", "auto:values=bf16"],
    ["--sparsifier", "rtopk:ratio=0.01", "--scope", "layer", "--optimiser", "sgd:momentum=0.9,nesterov=true,weight_decay=0.001"],
    ["--sparsifier", "threshold:ratio=0.01,calibrate=2", "--feedback", "momentum:m=0.9,clip=1"],
    ["--sparsifier", "randomk:ratio=0.01", "--feedback", "none", "--optimiser", "adam", "--lr", "0.001"],
    ["--sparsifier", "topk:k=64,chunk=4096", "--feedback", "ef:decay=0.95", "--codec", "auto:values=int2", "--local-steps", "3",
     "--optimiser", "adamw", "--lr", "0.001", "--exchange", "allgather"],
    ["--sparsifier", "dense", "--exchange", "dense"],
]  # fmt: skip


def has_gpu():
    try:
        return subprocess.run(["nvidia-smi", "-L"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout.startswith(b"GPU")
    except OSError:
        return False


class OnAGpu(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.place = tempfile.TemporaryDirectory(prefix="sparsewire_cuda_")
        cls.addClassCleanup(cls.place.cleanup)
        cls.data = Path(cls.place.name)
        write_mnist(cls.data / "mnist", 24, 10)
        write_mnist(cls.data / "fashion-mnist", 24, 10)
        write_cifar(cls.data / "cifar10", 10)
        write_text(cls.data / "tinyshakespeare")

    def train(self, problem, *arguments, graphs="on", sift="device", steps=6, device="cuda", code=0):
        with tempfile.TemporaryDirectory(dir=self.data) as folder:
            command = [PROGRAM, "train", "--problem", problem, "--data-dir", str(self.data), "--workers", "3", "--steps", str(steps)]
            command += ["--lr", "0.05", "--eval-every", "3", "--device", device, "-q", "--json", f"{folder}/report.json", *arguments]
            environment = {**os.environ, "SPARSEWIRE_GRAPHS": graphs, "SPARSEWIRE_SIFT": sift}
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            self.assertEqual(done.returncode, code, f"{' '.join(command)}\n{done.stdout[-2000:]}")
            return json.loads(Path(f"{folder}/report.json").read_text()) if code == 0 else done.stdout

    def same(self, one, other, what):
        for key in ("weights_crc32c", "test_loss", "loss", "bytes_up", "bytes_down", "total_error"):
            self.assertEqual(one.get(key), other.get(key), f"{what}: {key}")

    def for_all(self, work, inputs):
        """At the same time: each training takes seconds to start."""
        with ThreadPoolExecutor(min(12, os.cpu_count())) as pool:
            list(pool.map(work, inputs))

    def test_graphs_and_sifting_on_the_device_change_no_bit(self):
        def compare(problem):
            expected = self.train(problem, graphs="off", sift="host")
            self.assertEqual(expected["sifted_on"], "host")
            for graphs, sift in (("on", "host"), ("on", "device"), ("off", "device"), ("on", "device")):
                found = self.train(problem, graphs=graphs, sift=sift)
                self.assertEqual(found["sifted_on"], "cuda" if sift == "device" else "host")
                self.same(found, expected, f"{problem}, graphs {graphs}, {sift}")

        self.for_all(compare, NETWORKS)

    def test_every_method_has_the_bits_of_the_host(self):
        def compare(method):
            self.same(self.train("resnet20:batch=4", *method), self.train("resnet20:batch=4", *method, sift="host"), method)

        self.for_all(compare, METHODS)

    def test_checkpoints_continue_there_and_on_the_host(self):
        def compare(method):
            expected = self.train("fashion_cnn:batch=4", *method, steps=9)
            for first, second in (("device", "device"), ("device", "host"), ("host", "device")):
                with tempfile.TemporaryDirectory(dir=self.data) as folder:
                    checkpoints = ["--checkpoint-dir", folder, *method]
                    self.train("fashion_cnn:batch=4", *checkpoints, steps=5, sift=first)
                    found = self.train("fashion_cnn:batch=4", *checkpoints, "--resume", steps=9, sift=second)
                    self.same(found, expected, f"{method}, {first} then {second}")

        self.for_all(compare, METHODS)

    def test_the_result_is_that_of_the_processor_to_rounding(self):
        there = self.train("fashion_mlp:batch=4")
        here = self.train("fashion_mlp:batch=4", device="cpu")
        self.assertAlmostEqual(there["test_loss"], here["test_loss"], places=4)

    def test_clipped_gradients_are_sifted_on_the_host(self):
        self.assertEqual(self.train("mnist_mlp:batch=4", "--clip", "0.1")["sifted_on"], "host")

    def test_a_training_that_diverges_says_so(self):
        self.assertIn("diverged in step", self.train("mnist_mlp:batch=4", "--lr", "1e30", steps=20, code=1))


if __name__ == "__main__":
    if not has_gpu():
        print("skipped: there is no GPU")
        sys.exit(0)
    unittest.main()
