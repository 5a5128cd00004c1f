"""Trains a small network on Fashion-MNIST with DistributedDataParallel, and sends 1 % of each gradient.

    torchrun --nproc_per_node 4 examples/torch_ddp.py --data-dir fashion-mnist
    torchrun --nproc_per_node 4 examples/torch_ddp.py                            # without data: random pictures
    torchrun --nproc_per_node 4 examples/torch_ddp.py --metrics 'run-{rank}.jsonl'
    torchrun --nproc_per_node 4 examples/torch_ddp.py --steps 100 --checkpoint 'run-{rank}.pt'
    torchrun --nproc_per_node 4 examples/torch_ddp.py --steps 200 --checkpoint 'run-{rank}.pt' --resume

With --metrics, `sparsewire report run-0.jsonl --follow` in another terminal shows the training while it runs.
"""

import argparse
import gzip
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import sparsewire.torch as sw


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", default=os.environ.get("SPARSEWIRE_DATA"), help="folder of the four idx .gz files")
    parser.add_argument("--sparsifier", default="topk:ratio=0.01", help="what each process sends (%(default)s)")
    parser.add_argument("--downlink", default="topk:ratio=0.01", help="what comes back; '' for the union of all (%(default)s)")
    parser.add_argument("--codec", default="auto:values=bf16", help="of indices and values (%(default)s)")
    parser.add_argument("--steps", type=int, default=200, help="of the whole training, with those before --resume")
    parser.add_argument("--batch", type=int, default=32, help="pictures for each process and step")
    parser.add_argument("--lr", type=float, default=0.05, help="learning rate (%(default)s)")
    parser.add_argument("--checkpoint", help="file to save at the end; {rank} in it is replaced")
    parser.add_argument("--metrics", help="file that gets a line for each step; {rank} in it is replaced")
    parser.add_argument("--resume", action="store_true", help="go on from --checkpoint")
    return parser.parse_args()


def read_idx(path, header):
    with gzip.open(path) as file:
        return torch.frombuffer(bytearray(file.read()), dtype=torch.uint8, offset=header)


def load(folder, which):
    """Pictures of 28 x 28 and their labels; without a folder, ten random pictures with much noise."""
    if not folder:
        ten = torch.randn(10, 784, generator=torch.Generator().manual_seed(1))
        generator = torch.Generator().manual_seed(len(which))
        labels = torch.randint(10, (4096,), generator=generator)
        pictures = ten[labels] + 3 * torch.randn(4096, 784, generator=generator)
        return pictures.view(-1, 1, 28, 28) / 3, labels
    if (Path(folder) / "fashion-mnist").is_dir():
        folder = Path(folder) / "fashion-mnist"
    pictures = read_idx(Path(folder) / f"{which}-images-idx3-ubyte.gz", 16)
    labels = read_idx(Path(folder) / f"{which}-labels-idx1-ubyte.gz", 8)
    return pictures.view(-1, 1, 28, 28).float() / 255 - 0.5, labels.long()


def network():
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 16, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(16, 32, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
        torch.nn.Flatten(), torch.nn.Linear(32 * 7 * 7, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10),
    )  # fmt: skip


def main():
    options = arguments()
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(1)
    torch.manual_seed(0)

    model = DistributedDataParallel(network())
    state = sw.register(
        model, options.sparsifier, downlink=options.downlink or None, codec=options.codec, start_step=10,
        metrics=options.metrics,
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9)

    first = 0
    path = (options.checkpoint or "").replace("{rank}", str(rank))
    if options.resume:
        saved = torch.load(path, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        state.load_state_dict(saved["sparsewire"])
        first = saved["step"]

    pictures, labels = load(options.data_dir, "train")
    for step in range(first, options.steps):
        generator = torch.Generator().manual_seed(step * size + rank)  # other pictures in each process and step
        batch = torch.randint(len(labels), (options.batch,), generator=generator)
        optimizer.zero_grad()
        loss = cross_entropy(model(pictures[batch]), labels[batch])
        loss.backward()
        optimizer.step()
        state.record(loss=loss)  # a line of the metrics, if there are any
        if rank == 0 and (step + 1) % 20 == 0:
            print(f"step {step + 1}: loss {loss.item():.3f}", flush=True)

    if options.checkpoint:
        saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": options.steps}
        torch.save({**saved, "sparsewire": state.state_dict()}, path)  # on every rank: each has its own memory

    if rank == 0:
        pictures, labels = load(options.data_dir, "t10k")
        with torch.no_grad():
            answers = torch.cat([model.module(part) for part in pictures.split(500)])
        accuracy = (answers.argmax(1) == labels).float().mean().item()
        state.record(test_loss=cross_entropy(answers, labels), test_accuracy=accuracy)
        stats = state.stats()
        moved = stats["bytes_up"] + stats["bytes_down"] + stats["bytes_served"]
        print(f"loss {cross_entropy(answers, labels).item():.4f}, accuracy {accuracy:.4f}")
        print(f"{moved} bytes in {stats['steps']} steps; dense: {stats['bytes_dense']}", end="; ")
        last = stats["last"]["factor_against_dense"]
        print(f"factor {stats['factor_against_dense']:.1f} with the dense steps at the start, in the last step {last:.1f}")
    dist.barrier()
    state.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
