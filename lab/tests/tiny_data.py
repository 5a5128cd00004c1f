"""Tiny data sets in the formats of the real ones, for tests of deep networks."""

import random
import struct


def images(count, size, seed):
    """Each class is bright in other pixels, with noise."""
    draws = random.Random(seed)
    labels = [i % 10 for i in range(count)]
    pixels = [bytes(min(255, (150 if p % 10 == label else 20) + draws.randrange(60)) for p in range(size)) for label in labels]
    return labels, pixels


def write_mnist(folder, train, test):
    folder.mkdir(parents=True)
    for name, count, seed in [("train", train, 1), ("t10k", test, 2)]:
        labels, pixels = images(count, 784, seed)
        header = struct.pack(">IIII", 0x803, count, 28, 28)
        (folder / f"{name}-images-idx3-ubyte").write_bytes(header + b"".join(pixels))
        (folder / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 0x801, count) + bytes(labels))


def write_cifar(folder, count=2):
    folder.mkdir(parents=True)
    for i, name in enumerate(["data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"]):
        labels, pixels = images(count, 3072, i)
        (folder / f"{name}.bin").write_bytes(b"".join(bytes([label]) + image for label, image in zip(labels, pixels)))


def write_text(folder, times=12):
    folder.mkdir(parents=True)
    (folder / "input.txt").write_text("a gradient takes this path, and the sieve keeps what is large; " * times)
