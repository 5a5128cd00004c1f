"""Trains a GPT by several workers in one process, by one method, and prints JSON lines: what a method gives, against bytes.

    python3 bench/gpt/train.py input.txt --method local --every 30 --sparsifier topk:k=41,chunk=4096 --lr 1e-3 --seed 0

Methods: dense (every step, what DDP does), powersgd, sparse (sparsewire after every step), local (sparsewire after
--every steps; `--sparsifier dense --exchange dense --outer-lr 0.7 --outer-momentum 0.9` is DiLoCo). Text: characters, the
last tenth of the file is for validation. The loss of common weights is found every --eval-every inner steps.
"""

import argparse
import json
import math
import sys
import time

import methods
import model
import torch


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text")
    parser.add_argument("--method", choices=["dense", "powersgd", "sparse", "local"], default="local")
    parser.add_argument("--name", default="")
    parser.add_argument("--cell", default="", help="of a grid, for its rows")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--rows", type=int, default=32, help="of each worker's batch")
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--heads", type=int, default=6)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--every", type=int, default=30)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--warm-up", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--eval-every", type=int, default=60)
    parser.add_argument("--rank", type=int, default=4, help="of PowerSGD")
    parser.add_argument("--sparsifier", default="topk:k=41,chunk=4096,dense_below=4096")
    parser.add_argument("--feedback", default="ef:decay=0.95")
    parser.add_argument("--codec", default="auto:values=int2")
    parser.add_argument("--exchange", default="allgather")
    parser.add_argument("--downlink", default="")
    parser.add_argument("--downlink-codec", default="")
    parser.add_argument("--average", default="senders")
    parser.add_argument("--outer-lr", type=float, default=1.0)
    parser.add_argument("--outer-momentum", type=float, default=0.0)
    parser.add_argument("--out", help="a file to append the lines to")
    return parser.parse_args()


class Text:
    def __init__(self, path, device):
        text = open(path, encoding="utf-8").read()
        letters = sorted(set(text))
        numbers = torch.tensor([letters.index(letter) for letter in text], dtype=torch.int64)
        self.vocabulary = len(letters)
        cut = len(numbers) * 9 // 10
        self.training, self.validation = numbers[:cut].to(device), numbers[cut:].to(device)

    def batch(self, workers, rows, context, generator):
        starts = torch.randint(len(self.training) - context, (workers, rows), generator=generator)
        at = starts.to(self.training.device)[..., None] + torch.arange(context + 1, device=self.training.device)
        found = self.training[at]
        return found[..., :-1], found[..., 1:]


def lr_of(step, options):
    if step < options.warm_up:
        return options.lr * (step + 1) / options.warm_up
    done = (step - options.warm_up) / max(1, options.steps - options.warm_up)
    return options.lr * (0.1 + 0.45 * (1 + math.cos(math.pi * done)))


class Training:
    def __init__(self, options):
        self.options = options
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        torch.backends.cuda.matmul.allow_tf32 = True
        self.text = Text(options.text, self.device)
        o = options
        self.shape = model.Shape(self.text.vocabulary, o.context, o.width, o.layers, o.heads)
        self.start = model.initial(self.shape, o.seed, self.device)
        # Equal weights need one model only: a batch of all rows gives the mean of all gradients.
        self.models = 1 if o.method == "dense" else o.workers
        self.weights = model.stack(self.start, self.models)
        self.layout = [(name, one.numel()) for name, one in self.start.items()]
        self.dim = sum(size for _, size in self.layout)
        decayed = [one for one in self.weights.values() if one.dim() > 2]
        others = [one for one in self.weights.values() if one.dim() <= 2]
        groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=o.lr, betas=(0.9, 0.99), fused=self.device.type == "cuda")
        self.generator = torch.Generator().manual_seed(1000 + o.seed)
        self.bytes_up = self.bytes_down = 0
        self.exchange = None
        if o.method in ("local", "sparse"):
            chosen = dict(sparsifier=o.sparsifier, exchange=o.exchange, codec=o.codec, average=o.average, seed=o.seed)
            if o.sparsifier == "dense":
                chosen = dict(sparsifier="dense", exchange="dense", feedback="none")
            else:
                chosen["feedback"] = o.feedback
            if o.downlink:
                chosen.update(downlink=o.downlink, downlink_codec=o.downlink_codec)
            self.exchange = methods.Exchange(self.layout, o.workers, **chosen)
        self.power = methods.PowerSGD(o.rank) if o.method == "powersgd" else None
        self.momentum = {name: torch.zeros_like(one) for name, one in self.start.items()}

    def flat(self, tensors):
        return torch.cat([one.reshape(one.shape[0], -1) for one in tensors], dim=1)

    def unflat(self, vector):
        at = 0
        for name, size in self.layout:
            yield name, vector[at : at + size].view(self.start[name].shape)
            at += size

    def clip(self):
        squares = sum(one.grad.float().square().flatten(1).sum(1) for one in self.weights.values())
        factor = (1.0 / (squares.sqrt() + 1e-6)).clamp(max=1.0)
        for one in self.weights.values():
            one.grad.mul_(factor.view(-1, *[1] * (one.dim() - 1)))

    def inner_step(self, step):
        o = self.options
        inputs, targets = self.text.batch(o.workers, o.rows, o.context, self.generator)
        if self.models == 1:
            inputs, targets = (one.reshape(1, -1, o.context) for one in (inputs, targets))
        loss = model.losses(self.shape, self.weights, inputs, targets)
        loss.sum().backward()
        if self.power is not None:
            self.bytes_up += self.power({name: one.grad for name, one in self.weights.items()})
        elif o.method == "sparse":
            update, sent, came = self.exchange(self.flat([one.grad for one in self.weights.values()]))
            self.count(sent, came)
            for name, part in self.unflat(update):
                self.weights[name].grad.copy_(part.unsqueeze(0).expand_as(self.weights[name]))
        elif o.method == "dense":
            self.bytes_up += 4 * self.dim
        self.clip()
        for group in self.optimizer.param_groups:
            group["lr"] = lr_of(step, o)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach().mean()

    def count(self, sent, came):
        dense = self.options.sparsifier == "dense"  # an all-reduce: its messages are counted as for DDP
        self.bytes_up += 4 * self.dim if dense else sent
        self.bytes_down += 0 if dense else came

    @torch.no_grad()
    def outer_step(self):
        o = self.options
        moved = self.flat([self.start[name].unsqueeze(0) - one for name, one in self.weights.items()])
        update, sent, came = self.exchange(moved)
        self.count(sent, came)
        for name, part in self.unflat(update):
            step = part
            if o.outer_momentum:
                self.momentum[name].mul_(o.outer_momentum).add_(part)
                step = part + o.outer_momentum * self.momentum[name]
            self.start[name].sub_(step, alpha=o.outer_lr)
            self.weights[name].copy_(self.start[name].unsqueeze(0).expand_as(self.weights[name]))

    @torch.no_grad()
    def validation_loss(self):
        weights = self.start if self.options.method == "local" else {n: one[0] for n, one in self.weights.items()}
        weights = {name: one.unsqueeze(0) for name, one in weights.items()}
        context = self.options.context
        data = self.text.validation
        rows = (len(data) - 1) // context
        inputs, targets = data[: rows * context].view(1, rows, -1), data[1 : rows * context + 1].view(1, rows, -1)
        parts = [(inputs[:, i : i + 64], targets[:, i : i + 64]) for i in range(0, rows, 64)]
        return sum(float(model.losses(self.shape, weights, *part)) * part[0].shape[1] for part in parts) / rows

    def run(self, write):
        o = self.options
        began = time.time()
        best = None
        for step in range(o.steps):
            loss = self.inner_step(step)
            is_round = o.method == "local" and (step + 1) % o.every == 0
            if is_round:
                self.outer_step()
            if (step + 1) % o.eval_every == 0 or step + 1 == o.steps:
                found = self.validation_loss()
                line = {"step": step + 1, "loss": round(float(loss), 4), "validation_loss": round(found, 4)}
                line |= {"bytes_up": round(self.bytes_up), "bytes_down": round(self.bytes_down)}
                write({**line, "seconds": round(time.time() - began, 1)})
                if not math.isfinite(found):
                    break
                if best is None or found < best["validation_loss"]:
                    best = line
        densities = self.exchange.densities if self.exchange else []
        density = round(sum(densities) / len(densities), 5) if densities else None
        seconds = round(time.time() - began, 1)
        write({"config": vars(o), "weights": self.dim, "best": best, "density": density, "seconds": seconds})


def main():
    options = parse()

    def write(line):
        text = json.dumps({"name": options.name or options.method, "cell": options.cell, "seed": options.seed, **line})
        print(text, flush=True)
        if options.out:
            with open(options.out, "a", encoding="utf-8") as file:
                file.write(text + "\n")

    Training(options).run(write)


if __name__ == "__main__":
    sys.exit(main())
