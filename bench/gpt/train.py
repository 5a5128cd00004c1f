"""Trains a GPT by several workers in one process, by one method, and prints JSON lines: what a method gives, against bytes.

    python3 bench/gpt/train.py input.txt --method local --every 30 --sparsifier topk:k=41,chunk=4096 --lr 1e-3 --seed 0
    python3 bench/gpt/train.py corpus/ --rows 8 --context 512 --width 640 --layers 12 --heads 10 --steps 2000

Methods: dense (every step, what DDP does), powersgd, sparse (sparsewire after every step), local (sparsewire after
--every steps; with `--sparsifier dense --outer-lr 0.7 --outer-momentum 0.9` DiLoCo). The data are a file of text, of whose
characters the last tenth is for validation, or a folder of corpus.py. Common weights are judged after the first exchange from
each --eval-every inner steps on. --out gets one line for the whole run.
"""

import argparse
import hashlib
import json
import lzma
import math
import os
import sys
import tempfile
import time

import methods
import model
import numpy
import torch

import sparsewire


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", help="a file of text, or a folder of corpus.py")
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
    parser.add_argument("--beta2", type=float, default=0.99)
    parser.add_argument("--warm-up", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--eval-every", type=int, default=60)
    parser.add_argument("--eval-windows", type=int, default=0, help="0: all that there are")
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
    parser.add_argument("--sift-on-host", action="store_true", help="also where the package can work on the GPU")
    parser.add_argument("--compile", action="store_true", help="with torch.compile")
    parser.add_argument("--cudnn", action="store_true", help="attention of cuDNN, whatever PyTorch would choose")
    parser.add_argument("--out", help="a file to append the line of the run to")
    return parser.parse_args(arguments)


class Text:
    """Characters; a batch begins anywhere."""

    def __init__(self, path, context, device, seed):
        text = open(path, encoding="utf-8").read()
        letters = {letter: i for i, letter in enumerate(sorted(set(text)))}
        numbers = torch.tensor([letters[letter] for letter in text], device=device)
        self.vocabulary = len(letters)
        cut = len(numbers) * 9 // 10
        self.training, self.validation, self.test = numbers[:cut], windows_of(numbers[cut:], context), None
        self.context, self.generator = context, torch.Generator().manual_seed(1000 + seed)

    def batch(self, _, rows):
        starts = torch.randint(len(self.training) - self.context, (rows, 1), generator=self.generator)
        return self.training[starts.to(self.training.device) + torch.arange(self.context + 1, device=self.training.device)]


class Corpus:
    """Tokens of corpus.py; windows that do not overlap, in the order of a permutation."""

    def __init__(self, folder, context, device, seed):
        with open(os.path.join(folder, "corpus.json"), encoding="utf-8") as file:
            about = json.load(file)
        self.vocabulary = about["vocabulary"]
        tokens = torch.from_numpy(unpacked(folder, about["sha256"]).view(numpy.int16)).to(device)
        sizes = [about[part]["tokens"] for part in ("validation", "test", "training")]
        self.validation, self.test, self.training = (windows_of(part, context) for part in tokens.split(sizes))
        order = torch.Generator().manual_seed(1000 + seed)
        self.order = torch.randperm(len(self.training), generator=order).to(device)

    def batch(self, step, rows):
        at = (torch.arange(step * rows, (step + 1) * rows, device=self.order.device)) % len(self.order)
        return self.training[self.order[at]].long()


def unpacked(folder, sha256):
    """The tokens; kept beside other temporary files, for later runs on this machine."""
    kept = os.path.join(tempfile.gettempdir(), f"sparsewire-corpus-{sha256[:16]}")
    if not os.path.exists(kept):
        with lzma.open(os.path.join(folder, "tokens.xz")) as file:
            numbers = file.read()
        if hashlib.sha256(numbers).hexdigest() != sha256:
            raise SystemExit(f"{folder}/tokens.xz is not what its corpus.json says")
        with open(f"{kept}.{os.getpid()}", "wb") as file:
            file.write(numbers)
        os.replace(f"{kept}.{os.getpid()}", kept)
    return numpy.fromfile(kept, numpy.uint16)


def windows_of(tokens, context):
    """context + 1 tokens each, of which the last is the first of the next."""
    return tokens.unfold(0, context + 1, context)


def lr_of(step, options):
    if step < options.warm_up:
        return options.lr * (step + 1) / options.warm_up
    done = (step - options.warm_up) / max(1, options.steps - options.warm_up)
    return options.lr * (0.1 + 0.45 * (1 + math.cos(math.pi * done)))


class TooSlow(Exception):
    """A run would not end in time."""


class Training:
    def __init__(self, options):
        self.options = o = options
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        torch.set_float32_matmul_precision("high")
        if o.cudnn:
            torch.backends.cuda.enable_flash_sdp(False)
            torch.backends.cuda.enable_mem_efficient_sdp(False)
        data = Corpus if os.path.isdir(o.text) else Text
        self.text = data(o.text, o.context, self.device, o.seed)
        self.shape = model.Shape(self.text.vocabulary, o.context, o.width, o.layers, o.heads)
        # The weights that all have in common, and how far all went in the last exchanges.
        self.start = model.initial(self.shape, o.seed).to(self.device)
        self.momentum = torch.zeros_like(self.start) if o.outer_momentum else None
        # Where the mean of all gradients is all that is needed, one model has it, from the rows of all.
        self.models = model.Models(
            self.shape,
            self.start,
            1 if o.method in ("dense", "powersgd") else o.workers,
            o.method == "local",
            self.device,
            o.compile,
        )
        self.optimizer = model.AdamW(self.models, self.shape.matrix_dim, o.beta2, o.compile)
        self.is_dense = o.method == "dense" or (o.method == "local" and o.sparsifier == "dense")
        self.dense_bytes = methods.all_reduce(o.workers, 4 * self.shape.dim)
        self.exchange = self.power = None
        if o.method == "powersgd":
            self.power = methods.PowerSGD(self.shape, o.workers, o.rank, self.device)
        elif not self.is_dense:
            chosen = dict(sparsifier=o.sparsifier, exchange=o.exchange, codec=o.codec, average=o.average, seed=o.seed)
            chosen |= dict(feedback=o.feedback, downlink=o.downlink, downlink_codec=o.downlink_codec)
            on_host = o.sift_on_host or not sparsewire.has_cuda()
            self.exchange = methods.Exchange(self.shape.layout(), o.workers, self.device, on_host, **chosen)
        self.sent = self.moved = 0
        self.seconds = {"training": 0.0, "exchange": 0.0}
        self.exchanges = 0

    def now(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    def exchanged(self, rows, lr):
        """The update of sparsewire's Workers, or the mean."""
        began = self.now()
        update, (sent, moved) = self.exchange(rows, lr) if self.exchange else (rows.mean(0), self.dense_bytes)
        self.seconds["exchange"] += self.now() - began
        self.exchanges += 1
        self.sent, self.moved = self.sent + sent, self.moved + moved
        return update

    def inner_step(self, step):
        o = self.options
        batch = self.text.batch(step, o.workers * o.rows).view(len(self.models.used), -1, o.context + 1)
        loss, gradients = self.models.gradients(batch[..., :-1], batch[..., 1:])
        lr = lr_of(step, o)
        if self.power:
            update, (sent, moved) = self.power(gradients)
        elif o.method == "sparse":
            update, sent, moved = self.exchanged(gradients, lr), 0, 0
        else:
            update, (sent, moved) = gradients, self.dense_bytes if o.method == "dense" else (0, 0)
        self.sent, self.moved = self.sent + sent, self.moved + moved
        self.optimizer.step(update.view(len(self.models.weights), -1), lr)
        return loss

    def outer_step(self, step):
        o = self.options
        update = self.exchanged(self.start - self.models.weights, lr_of(step, o))
        if self.momentum is not None:
            self.momentum.mul_(o.outer_momentum).add_(update)
            update = update + o.outer_momentum * self.momentum
        self.start.sub_(update, alpha=o.outer_lr)
        self.models.weights.copy_(self.start.expand_as(self.models.weights))
        self.models.refresh()

    def validation_loss(self):
        weights = self.start if self.options.method == "local" else self.models.weights[0]
        windows = self.text.validation
        if self.options.eval_windows:
            windows = windows[:: max(1, len(windows) // self.options.eval_windows)]
        return self.models.loss(weights, windows)

    def run(self, write, must_end=math.inf):
        """Trains, writes a line for each judgement, and returns that of the run. Raises TooSlow instead of passing `must_end`."""
        o = self.options
        began = self.now()
        judged = [{"step": 0, "validation_loss": round(self.validation_loss(), 5), "sent": 0, "moved": 0}]
        since = self.now()
        for step in range(o.steps):
            loss = self.inner_step(step)
            is_last = step + 1 == o.steps
            is_round = (step + 1) % o.every == 0 or is_last
            if o.method == "local" and is_round:
                self.outer_step(step)
            is_due = step + 1 - judged[-1]["step"] >= o.eval_every and (is_round or o.method != "local")
            if is_due or is_last:
                self.seconds["training"] += self.now() - since
                judged.append({"step": step + 1, "validation_loss": round(self.validation_loss(), 5)})
                judged[-1] |= {"sent": round(self.sent), "moved": round(self.moved)}
                since = self.now()
                left = (o.steps - step - 1) * (since - began) / (step + 1)
                write({**judged[-1], "loss": round(float(loss.mean()), 4), "seconds": round(since - began, 1), "left": round(left)})
                if not math.isfinite(judged[-1]["validation_loss"]):
                    break
                if left > 2 * (must_end - time.time()):  # what runs beside it may end, and leave it the GPU
                    raise TooSlow
        return self.line(judged, since - began)

    def line(self, judged, seconds):
        finite = [one for one in judged[1:] if math.isfinite(one["validation_loss"])]
        steps = judged[-1]["step"]
        found = {"config": vars(self.options), "weights": self.shape.dim, "judged": judged}
        found["best"] = min(finite, key=lambda one: one["validation_loss"]) if finite else None
        if self.text.test is not None and finite:
            weights = self.start if self.options.method == "local" else self.models.weights[0]
            found["test_loss"] = round(self.models.loss(weights, self.text.test), 5)
        if self.exchange:
            found["density"] = round(sum(self.exchange.densities) / len(self.exchange.densities), 6)
            found["share_sent"] = round(sum(self.exchange.shares) / len(self.exchange.shares), 6)
        found["seconds"] = round(seconds, 1)
        found["seconds_per_step"] = round((self.seconds["training"] - self.seconds["exchange"]) / steps, 5)
        if self.exchanges:
            found["seconds_per_exchange"] = round(self.seconds["exchange"] / self.exchanges, 5)
        return found

    def close(self):
        if self.exchange:
            self.exchange.close()


def main():
    options = parse()

    def write(line):
        text = json.dumps({"name": options.name or options.method, "cell": options.cell, "seed": options.seed, **line})
        print(text, flush=True)
        return text

    text = write(Training(options).run(write))
    if options.out:
        with open(options.out, "a", encoding="utf-8") as file:
            file.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
