#!/usr/bin/env python3
"""What error feedback with Top-k costs in plain PyTorch on a GPU: add, abs, topk, gather, zero; and with a threshold.

    python3 bench/torch_step.py [entries ...]

Stream time by events, median of 21 steps after 40, a fresh gradient and a cold L2 cache each time, beside
`memory += gradient`. The same data and ratios as cuda_bench, so that the two can be compared.
"""
import statistics
import sys

import torch

WARM_UP = 40
REPEATS = 21


class Bench:
    def __init__(self, entries):
        self.entries = entries
        self.gradient = torch.empty(entries, device="cuda")
        self.cold = torch.empty(192 << 20, dtype=torch.uint8, device="cuda")

    def fresh(self):
        self.gradient.normal_()
        self.cold.zero_()

    def time(self, step):
        """Microseconds of the device, median."""
        times = []
        for i in range(WARM_UP + REPEATS):
            self.fresh()
            begin = torch.cuda.Event(enable_timing=True)
            end = torch.cuda.Event(enable_timing=True)
            begin.record()
            step(self.gradient)
            end.record()
            end.synchronize()
            if i >= WARM_UP:
                times.append(1e3 * begin.elapsed_time(end))
        return statistics.median(times)


def topk_step(memory, k):
    def step(gradient):
        memory.add_(gradient)
        indices = torch.topk(memory.abs(), k, sorted=False).indices
        values = memory[indices]
        memory[indices] = 0
        return indices, values

    return step


def threshold_step(memory, threshold):
    def step(gradient):
        memory.add_(gradient)
        indices = torch.nonzero(memory.abs() >= threshold).squeeze(1)
        values = memory[indices]
        memory[indices] = 0
        return indices, values

    return step


def main():
    if not torch.cuda.is_available():
        print("there is no GPU")
        return
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    for entries in [int(n) for n in sys.argv[1:]] or [25_000_000, 100_000_000]:
        bench = Bench(entries)
        memory = torch.zeros(entries, device="cuda")
        floor = bench.time(lambda gradient: memory.add_(gradient))
        print(f"{entries} entries; memory += gradient {floor:.1f} us")
        for ratio in (0.001, 0.01):
            k = int(ratio * entries + 0.5)
            memory.zero_()
            us = bench.time(topk_step(memory, k))
            print(f"topk {ratio:<9g} {us:9.1f} us {us / floor:7.2f}")
            threshold = torch.topk(memory.abs(), k, sorted=False).values.min()
            us = bench.time(threshold_step(memory, threshold))
            print(f"threshold {ratio:<4g} {us:9.1f} us {us / floor:7.2f}")


if __name__ == "__main__":
    main()
