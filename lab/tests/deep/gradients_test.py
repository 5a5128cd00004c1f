#!/usr/bin/env python3
"""Gradients of every deep network against PyTorch's, for the same weights and batch.

    gradients_test.py DEEP_GRADIENT MODULE     gradient.cc as a program; libsparsewire_torch.so
"""

import copy
import os
import sys
import tempfile
import unittest
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional as F

import networks

sys.path[:0] = [str(Path(__file__).parent.parent), str(Path(__file__).parents[3] / "tests" / "wire")]
import decoder  # noqa: E402
import processes  # noqa: E402

if len(sys.argv) < 3:
    print(__doc__)
    sys.exit(2)
PROGRAM, MODULE = sys.argv.pop(1), sys.argv.pop(1)

SEED, WORKER, STEP, DROPOUT = 5, 2, 7, 24  # as in gradient.cc and data/random.h


def dropout_masks(count):
    """0 where a random word is below a quarter of 2^32, else 1/0.75."""
    words = []
    for block in range((count + 3) // 4):
        words += decoder.philox((block, STEP, WORKER, DROPOUT * 2**24), (SEED, 0))
    return torch.tensor([0 if word < 2**30 else 1 / 0.75 for word in words[:count]], dtype=torch.float64)


def without_flips(make, inputs, targets):
    """A network that has nearly the same loss and gradient in floats and in double, by PyTorch alone.

    With few images, one activation that rounding moves across zero changes the gradient by percents. Which networks
    have one depends on the processor: of six vgg19 one had, and of 25 resnet18 eleven, on an AMD EPYC.
    """
    for seed in range(20):
        torch.manual_seed(seed)
        network = make()
        losses, firsts = [], []
        for kind in (torch.float32, torch.float64):
            copied = copy.deepcopy(network).to(kind).train()
            loss = F.cross_entropy(copied(inputs.to(kind)), targets)
            loss.backward()
            losses.append(loss.item())
            firsts.append(next(copied.parameters()).grad.double())
        same_loss = abs(losses[0] - losses[1]) < 1e-6 * losses[1]
        if same_loss and (firsts[0] - firsts[1]).norm() < 5e-5 * firsts[1].norm():
            return network
    raise AssertionError("floats are too coarse for all of these networks")


class Gradients(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)  # the weights

    def run_program(self, model, sizes, arrays):
        with tempfile.TemporaryDirectory() as folder:
            for name, array in arrays.items():
                np.save(Path(folder) / f"{name}.npy", np.ascontiguousarray(array, dtype=np.float32))
            command = [os.path.abspath(PROGRAM), model, *map(str, sizes)]
            environment = {**os.environ, "SPARSEWIRE_TORCH": os.path.abspath(MODULE)}
            done = processes.run(command, cwd=folder, text=True, stdout=-1, stderr=-1, env=environment)
            self.assertEqual(done.returncode, 0, done.stderr)
            lines = done.stdout.splitlines()
            tensors = [(line.split()[1], int(line.split()[0])) for line in lines[1:]]
            return float(lines[0]), tensors, np.load(Path(folder) / "gradient.npy"), np.load(Path(folder) / "state.npy")

    def check(self, model, reference, inputs, targets, dim, sizes=(0, 0, 0, 0, 0), rounding=2e-5):
        """In double, PyTorch's gradient hardly has rounding errors of its own."""
        named = list(reference.named_parameters())
        flat = torch.cat([p.detach().flatten() for _, p in named])
        self.assertEqual(len(flat), dim)
        loss, tensors, gradient, state = self.run_program(
            model, sizes, {"weights": flat, "inputs": inputs.flatten(), "targets": targets.flatten()}
        )
        self.assertEqual(tensors, [(name, p.numel()) for name, p in named])

        reference.double().train()
        expected_loss = F.cross_entropy(reference(inputs if inputs.dtype == torch.int64 else inputs.double()), targets)
        expected_loss.backward()
        self.assertAlmostEqual(loss, expected_loss.item(), delta=2e-6 * expected_loss.item())
        begin = 0
        scale = max(p.grad.norm().item() for _, p in named)
        for name, p in named:
            mine = torch.from_numpy(gradient[begin : begin + p.numel()]).double()
            begin += p.numel()
            # A bias before a BatchNorm has no gradient but rounding errors, so the largest tensor counts too.
            most = rounding * (p.grad.norm().item() + 0.01 * scale)
            self.assertLessEqual((mine - p.grad.flatten()).norm().item(), most, name)
        statistics = [b.flatten() for name, b in reference.named_buffers() if "running" in name]
        self.assertEqual(len(state), sum(map(len, statistics)))
        if statistics:
            np.testing.assert_allclose(state, torch.cat(statistics).numpy(), rtol=1e-4, atol=1e-6)

    def images(self, *shape):
        torch.manual_seed(1)
        return torch.randn(*shape), torch.randint(10, shape[:1])

    def test_mnist_mlp(self):
        self.check("mnist_mlp", networks.Mlp(784, 64, 10), *self.images(10, 1, 28, 28), dim=50890)

    def test_fashion_mlp(self):
        self.check("fashion_mlp", networks.Mlp(784, 256, 128, 64, 10), *self.images(10, 1, 28, 28), dim=242762)

    def test_mnist_cnn_with_dropout(self):
        inputs, targets = self.images(2, 1, 28, 28)
        reference = networks.MnistCnn()
        reference.masks = dropout_masks(2 * (9216 + 128))
        self.check("mnist_cnn", reference, inputs, targets, dim=1199882)

    def test_fashion_cnn(self):
        self.check("fashion_cnn", networks.FashionCnn(), *self.images(10, 1, 28, 28), dim=29034)

    # Through many BatchNorms over few images rounding grows.
    def test_resnet18(self):
        inputs, targets = self.images(3, 3, 32, 32)
        reference = without_flips(lambda: networks.ResNet([64, 128, 256, 512], 2, zeros=False), inputs, targets)
        self.check("resnet18", reference, inputs, targets, dim=11173962, rounding=2e-4)

    def test_resnet20(self):
        inputs, targets = self.images(4, 3, 32, 32)
        reference = without_flips(lambda: networks.ResNet([16, 32, 64], 3, zeros=True), inputs, targets)
        self.check("resnet20", reference, inputs, targets, dim=269722, rounding=2e-4)

    def test_vgg19(self):
        inputs, targets = self.images(3, 3, 32, 32)
        self.check("vgg19", without_flips(networks.Vgg19, inputs, targets), inputs, targets, dim=20040522, rounding=2e-4)

    def text(self, alphabet, length):
        torch.manual_seed(1)
        return torch.randint(alphabet, (3, length)), torch.randint(alphabet, (3 * length,))

    def test_lstm(self):
        reference = networks.CharLstm(11, 32, 2)
        self.check("lstm", reference, *self.text(11, 9), dim=14275, sizes=(11, 9, 32, 2, 0))

    def test_gpt(self):
        reference = networks.Gpt(11, 9, 32, 2, 4)
        self.check("gpt", reference, *self.text(11, 9), dim=26112, sizes=(11, 9, 32, 2, 4))


if __name__ == "__main__":
    unittest.main()
