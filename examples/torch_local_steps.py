"""Trains a small GPT on the bytes of a text file. Each process trains alone, and every 30 steps they exchange how far they moved.

    torchrun --nproc_per_node 4 examples/torch_local_steps.py --text any-file.txt
    torchrun --nproc_per_node 4 examples/torch_local_steps.py --text any-file.txt --metrics 'run-{rank}.jsonl'
    torchrun --nproc_per_node 4 examples/torch_local_steps.py --text any-file.txt --steps 600 --checkpoint 'run-{rank}.pt'
    torchrun --nproc_per_node 4 examples/torch_local_steps.py --text any-file.txt --steps 900 --checkpoint 'run-{rank}.pt' --resume

Without --text it trains on its own source. With --metrics, `sparsewire report run-0.jsonl --follow` in another terminal shows
the training while it runs.
"""

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy

import sparsewire.torch as sw


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", default=__file__, help="any file; its last tenth is for validation")
    parser.add_argument("--every", type=int, default=30, help="steps between two exchanges (%(default)s)")
    parser.add_argument("--sparsifier", default="topk:k=64,chunk=4096", help="what each process sends (%(default)s)")
    parser.add_argument("--fragments", type=int, default=1, help="parts of the model that take turns (%(default)s)")
    parser.add_argument("--delay", type=int, default=0, help="steps that go on during an exchange (%(default)s)")
    parser.add_argument("--steps", type=int, default=600, help="of the whole training, with those before --resume")
    parser.add_argument("--batch", type=int, default=16, help="texts for each process and step (%(default)s)")
    parser.add_argument("--length", type=int, default=64, help="of a text, in bytes (%(default)s)")
    parser.add_argument("--width", type=int, default=128, help="of the network (%(default)s)")
    parser.add_argument("--layers", type=int, default=4, help="of the network (%(default)s)")
    parser.add_argument("--lr", type=float, default=1e-3, help="largest learning rate (%(default)s)")
    parser.add_argument("--bf16", action="store_true", help="compute in bfloat16 (autocast)")
    parser.add_argument("--compile", action="store_true", help="compile the network (torch.compile)")
    parser.add_argument("--checkpoint", help="file to save at the end; {rank} in it is replaced")
    parser.add_argument("--metrics", help="file that gets a line for each exchange; {rank} in it is replaced")
    parser.add_argument("--resume", action="store_true", help="go on from --checkpoint")
    return parser.parse_args()


class Block(torch.nn.Module):
    def __init__(self, width, heads=4):
        super().__init__()
        self.heads = heads
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(width) for _ in range(2))
        self.attention = torch.nn.Linear(width, 3 * width, bias=False)
        self.out = torch.nn.Linear(width, width, bias=False)
        self.mlp = torch.nn.Sequential(
            torch.nn.Linear(width, 4 * width, bias=False), torch.nn.GELU(), torch.nn.Linear(4 * width, width, bias=False)
        )

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.attention(self.norms[0](x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        seen = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norms[1](x))


class Gpt(torch.nn.Module):
    def __init__(self, width, layers, length):
        super().__init__()
        self.tokens = torch.nn.Embedding(256, width)
        self.places = torch.nn.Embedding(length, width)
        self.blocks = torch.nn.Sequential(*[Block(width) for _ in range(layers)])
        self.norm = torch.nn.LayerNorm(width)
        self.head = torch.nn.Linear(width, 256, bias=False)
        self.head.weight = self.tokens.weight  # tied
        for p in self.parameters():
            if p.ndim > 1:
                torch.nn.init.normal_(p, std=0.02)

    def forward(self, text):
        x = self.tokens(text) + self.places(torch.arange(text.shape[1], device=text.device))
        return self.head(self.norm(self.blocks(x)))


def batch_of(text, options, generator):
    at = torch.randint(len(text) - options.length - 1, (options.batch,), generator=generator)
    both = torch.stack([text[i : i + options.length + 1] for i in at]).long()
    return both[:, :-1], both[:, 1:]


def loss_of(model, text, options, generator):
    inputs, targets = batch_of(text, options, generator)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=options.bf16):
        answers = model(inputs)
    return cross_entropy(answers.float().flatten(0, 1), targets.flatten())


@torch.no_grad()
def evaluate(model, text, options):
    generator = torch.Generator().manual_seed(0)
    model.eval()
    loss = torch.stack([loss_of(model, text, options, generator) for _ in range(8)]).mean().item()
    model.train()
    return loss


def main():
    options = arguments()
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(1)
    torch.manual_seed(0)

    text = torch.frombuffer(bytearray(Path(options.text).read_bytes()), dtype=torch.uint8)
    training, validation = text[: len(text) * 9 // 10], text[len(text) * 9 // 10 :]
    model = Gpt(options.width, options.layers, options.length)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr, betas=(0.9, 0.95), weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, (step + 1) / 50))
    outer = sw.LocalSteps(
        model, optimizer, options.every, sparsifier=options.sparsifier, fragments=options.fragments, delay=options.delay,
        metrics=options.metrics,
    )  # fmt: skip
    compiled = torch.compile(model) if options.compile else model

    path = (options.checkpoint or "").replace("{rank}", str(rank))
    if options.resume:
        saved = torch.load(path, weights_only=True)
        for name, one in (("model", model), ("optimizer", optimizer), ("schedule", schedule), ("outer", outer)):
            one.load_state_dict(saved[name])

    for step in range(outer.steps, options.steps):
        generator = torch.Generator().manual_seed(step * size + rank)  # other texts in each process and step
        loss = loss_of(compiled, training, options, generator)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()  # every 30th ends with an exchange
        optimizer.zero_grad()
        schedule.step()
        if (step + 1) % 100 == 0:
            with outer.start_weights():  # what all processes have in common
                test_loss = evaluate(compiled, validation, options)
            outer.record(loss=loss, test_loss=test_loss)
            if rank == 0:
                print(f"step {step + 1}: loss {loss.item():.3f}, validation {test_loss:.3f}", flush=True)

    if options.checkpoint:
        states = {"model": model, "optimizer": optimizer, "schedule": schedule, "outer": outer}
        torch.save({name: one.state_dict() for name, one in states.items()}, path)  # each process its own
    outer.close()  # exchanges the last steps: now all processes have the same weights

    stats = outer.stats()
    if rank == 0:
        dense = 4 * sum(p.numel() for p in model.parameters()) * options.steps
        print(f"validation loss {evaluate(compiled, validation, options):.4f} after {outer.steps} steps")
        print(f"{stats['bytes_up']} bytes sent in {stats['steps']} exchanges; gradients of every step: {dense}", end="; ")
        print(f"factor {dense / max(1, stats['bytes_up']):.0f}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
