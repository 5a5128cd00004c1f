#!/usr/bin/env python3
"""How much longer a step of many workers takes than its passes in plain PyTorch.

    torch_loop.py PROGRAM --data-dir DIR [--workers 100] [--steps 20] [--rounds 3] [--threads N]

PyTorch: for each worker a batch of 10 images of Fashion-MNIST, forward and backward through the MLP of the downlink paper
(784-256-128-64-10); gradients are added up, and one step of SGD follows. No compression, one process, N threads (default:
as PyTorch chooses). PROGRAM (sparsewire) does the same passes, and all of its own work: `train --problem fashion_mlp` with
Top-k both ways. Both are measured in turn, and the best times of each are compared. On a machine that is busy otherwise,
compare the times that processors spent instead: PyTorch's loop with --threads 1 uses one of them, sparsewire all.
"""

import argparse
import gzip
import json
import resource
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

BATCH = 10


def read_idx(path, header):
    return np.frombuffer(gzip.open(path).read(), np.uint8, offset=header)


def load(folder):
    pixels = read_idx(folder / "train-images-idx3-ubyte.gz", 16).reshape(-1, 784)
    labels = read_idx(folder / "train-labels-idx1-ubyte.gz", 8)
    inputs = (torch.from_numpy(pixels.copy()).float() / 255 - 0.1307) / 0.3081
    return inputs, torch.from_numpy(labels.astype(np.int64))


def torch_steps(inputs, labels, workers, steps):
    torch.manual_seed(0)
    widths = [784, 256, 128, 64, 10]
    layers = []
    for i in range(4):
        layers += [nn.Linear(widths[i], widths[i + 1]), nn.ReLU()]
    model = nn.Sequential(*layers[:-1])
    criterion = nn.CrossEntropyLoss()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.08 / workers)
    order = torch.randperm(len(labels))
    at = 0
    for step in range(steps + 1):  # the first one is not measured
        if step == 1:
            began, spent = time.perf_counter(), time.process_time()
        optimiser.zero_grad(set_to_none=False)
        for _ in range(workers):
            batch = order[at : at + BATCH]
            at = (at + BATCH) % len(order)
            criterion(model(inputs[batch]), labels[batch]).backward()
        optimiser.step()
    return np.array([time.perf_counter() - began, time.process_time() - spent]) / steps


def spent_by_children():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def sparsewire_steps(program, data_dir, workers, steps):
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [program, "train", "--problem", f"fashion_mlp:batch={BATCH}", "--data-dir", data_dir, "--workers", str(workers)]
        command += ["--sparsifier", "topk:ratio=0.001", "--exchange", "server", "--downlink", "topk:ratio=0.001"]
        command += ["--feedback", "ef:scale=lr", "--lr", "0.08", "--steps", str(steps), "--eval-every", "0"]
        spent = spent_by_children()
        subprocess.run([*command, "--quiet", "--json", str(report)], check=True, stdout=subprocess.DEVNULL)
        return np.array([json.loads(report.read_text())["seconds"], spent_by_children() - spent])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--workers", type=int, default=100)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int)
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    inputs, labels = load(Path(arguments.data_dir) / "fashion-mnist")

    plain, ours = [], []
    for _ in range(arguments.rounds):
        plain.append(torch_steps(inputs, labels, arguments.workers, arguments.steps))
        # The start and the evaluation at the end are in both, and cancel.
        given = [arguments.program, arguments.data_dir, arguments.workers]
        ours.append((sparsewire_steps(*given, 3 * arguments.steps) - sparsewire_steps(*given, arguments.steps)) / (2 * arguments.steps))
        print("a step of {} workers, ms (of processors): PyTorch {:.1f} ({:.1f}), sparsewire {:.1f} ({:.1f})".format(
            arguments.workers, *(1e3 * plain[-1]), *(1e3 * ours[-1])))
    wall, spent = np.min(ours, axis=0) / np.min(plain, axis=0)
    print(f"best of {arguments.rounds}: sparsewire takes {wall:.2f} times as long; processors {spent:.2f} times")


if __name__ == "__main__":
    main()
