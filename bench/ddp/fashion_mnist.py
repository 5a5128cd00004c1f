#!/usr/bin/env python3
"""A small CNN on Fashion-MNIST with DistributedDataParallel: loss and accuracy after the same steps, by method.

    bench/ddp/fashion_mnist.py --data-dir DIR
    bench/ddp/fashion_mnist.py --data-dir DIR --methods ddp powersgd1 --seeds 1 --steps 50 --lr 0.1

DIR contains the four idx .gz files of Fashion-MNIST; without --data-dir it is fashion-mnist/ in the folder SPARSEWIRE_DATA.
It starts --ranks processes itself, or uses those of torchrun or tools/netlab --plain.

For a seed, all methods start from the same weights and see the same images in the same order. Every method gets the best
learning rate of the same list (--lr): the one with the lowest loss on 5000 images held out of the training set, in a run with
--tuning-seed. The table has mean and standard deviation over --seeds. The train loss is that of the last weights, on 5000
images of the training set. Methods: ddp, bf16, powersgdN (rank N), and sparsifiers of sparsewire; these send Top-k of the
same ratio down, or as --downlink says.
"""

import argparse
import gzip
import json
import os
import re
import socket
import statistics
import sys
from pathlib import Path

import numpy
import torch
import torch.distributed as dist

sys.dont_write_bytecode = True  # the source tree stays as it is
from methods import Method, check, is_sparsewire, replicas_agree  # noqa: E402

METHODS = ["ddp", "powersgd1", "powersgd2", "powersgd4"]
for ratio in ("0.01", "0.001"):
    # By default a threshold is measured for 1/ratio steps, which may be more than there are.
    METHODS += [f"topk:ratio={ratio}", f"regtopk:ratio={ratio}", f"threshold:ratio={ratio},calibrate=50"]
HELD_OUT = 5000
EVALUATED = 5000


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, metavar="DIR")
    parser.add_argument("--methods", nargs="+", default=METHODS, metavar="NAME", help="default: %(default)s")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3], help="default: %(default)s")
    parser.add_argument("--tuning-seed", type=int, default=100, help="default %(default)s")
    parser.add_argument("--lr", nargs="+", type=float, default=[0.01, 0.03, 0.1],
                        help="with one there is no search; default: %(default)s")
    parser.add_argument("--steps", type=int, default=300, help="default %(default)s")
    parser.add_argument("--batch", type=int, default=32, help="images for each rank; default %(default)s")
    parser.add_argument("--momentum", type=float, default=0.9, help="of SGD; default %(default)s")
    parser.add_argument("--dense-start", type=int, default=2,
                        help="steps that PowerSGD (at least 2) and sparsewire exchange densely first; default %(default)s")
    parser.add_argument("--exchange", default="sharded", help="of sparsewire; default %(default)s")
    parser.add_argument("--downlink", help="of sparsewire, or none; default: topk of the method's ratio")
    parser.add_argument("--codec", default="auto:values=bf16", help="of sparsewire; default %(default)s")
    parser.add_argument("--ranks", type=int, default=4, help="processes to start; default %(default)s")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also writes every run there, one line of JSON each")
    arguments = parser.parse_args()
    if arguments.data_dir is None:
        if "SPARSEWIRE_DATA" not in os.environ:
            parser.error("where are the data? --data-dir DIR, or SPARSEWIRE_DATA in the environment")
        arguments.data_dir = Path(os.environ["SPARSEWIRE_DATA"], "fashion-mnist")
    if not arguments.data_dir.is_dir():
        parser.error(f"--data-dir {arguments.data_dir}: no such folder")
    return arguments


def read_idx(file):
    """An idx file of bytes: a magic whose last byte is the number of dimensions, these as big-endian words, the bytes."""
    data = gzip.decompress(file.read_bytes())
    if data[:3] != b"\0\0\x08":
        sys.exit(f"fashion_mnist.py: {file} is not an idx file of bytes")
    shape = numpy.frombuffer(data, ">u4", count=data[3], offset=4)
    return torch.from_numpy(numpy.frombuffer(data, numpy.uint8, offset=4 + 4 * data[3]).reshape(shape).copy())


def read_images(folder, name):
    """Images as floats with mean 0 and deviation 1 over the training set, and their classes."""
    images = read_idx(folder / f"{name}-images-idx3-ubyte.gz")
    labels = read_idx(folder / f"{name}-labels-idx1-ubyte.gz")
    return images.float().div_(255).sub_(0.2860).div_(0.3530).unsqueeze(1), labels.long()


def read_data(folder):
    images, labels = read_images(folder, "train")
    return {"train": (images[:-HELD_OUT], labels[:-HELD_OUT]), "held out": (images[-HELD_OUT:], labels[-HELD_OUT:]),
            "seen": (images[:EVALUATED], labels[:EVALUATED]), "test": read_images(folder, "t10k")}


def make_module(seed):
    torch.manual_seed(seed)
    nn = torch.nn
    return nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Flatten(), nn.Linear(32 * 7 * 7, 128), nn.ReLU(), nn.Linear(128, 10))


def batches(images, seed, steps, batch):
    """The indices of this rank's images in each step. What is left at the end of an epoch is dropped."""
    generator = torch.Generator().manual_seed(seed)
    rank, all_ranks = dist.get_rank(), batch * dist.get_world_size()
    order = torch.empty(0, dtype=torch.int64)
    for _ in range(steps):
        if len(order) < all_ranks:
            order = torch.randperm(images, generator=generator)
        yield order[rank * batch:(rank + 1) * batch]
        order = order[all_ranks:]


@torch.no_grad()
def evaluate(module, images, labels):
    """Mean loss and accuracy; each rank does its share."""
    mine = slice(dist.get_rank(), None, dist.get_world_size())
    sums = torch.zeros(3, dtype=torch.float64)
    for image, label in zip(images[mine].split(500), labels[mine].split(500)):
        answer = module(image)
        sums += torch.tensor([torch.nn.functional.cross_entropy(answer, label, reduction="sum").item(),
                              (answer.argmax(1) == label).sum().item(), len(label)], dtype=torch.float64)
    dist.all_reduce(sums)
    return (sums[0] / sums[2]).item(), (sums[1] / sums[2]).item()


def ratio_of(name):
    found = re.search(r"\bratio=([^,]+)", name)
    return found.group(1) if found else None


def downlink_of(name, arguments):
    if arguments.downlink:
        return arguments.downlink
    return f"topk:ratio={ratio_of(name)}" if is_sparsewire(name) and ratio_of(name) else "none"


def train(name, seed, lr, data, arguments):
    module = make_module(seed)
    method = Method(name, module, dense_start=arguments.dense_start, exchange=arguments.exchange,
                    downlink=downlink_of(name, arguments), codec=arguments.codec)
    optimiser = torch.optim.SGD(module.parameters(), lr=lr, momentum=arguments.momentum)
    images, labels = data["train"]
    for chosen in batches(len(images), seed, arguments.steps, arguments.batch):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(method.model(images[chosen]), labels[chosen]).backward()
        optimiser.step()
    moved = torch.tensor([method.bytes_moved(arguments.steps) / arguments.steps], dtype=torch.float64)
    dist.all_reduce(moved)
    result = {"method": name, "seed": seed, "lr": lr, "steps": arguments.steps, "agree": replicas_agree(module),
              "bytes": moved.item() / dist.get_world_size()}
    for part in ("seen", "held out", "test"):
        result[f"loss, {part}"], result[f"accuracy, {part}"] = evaluate(module, *data[part])
    method.close()
    return result


def run_all(arguments):
    """Every run, in the same order on all ranks; a generator of results."""
    data = read_data(arguments.data_dir)
    for name in arguments.methods:
        lr = arguments.lr[0]
        if len(arguments.lr) > 1:
            tuned = []
            for candidate in arguments.lr:
                tuned.append(train(name, arguments.tuning_seed, candidate, data, arguments))
                yield {**tuned[-1], "tuning": True}
            # A rate with which the weights become NaN loses.
            lr = min(tuned, key=lambda run: run["loss, held out"] if run["agree"] else float("inf"))["lr"]
        for seed in arguments.seeds:
            yield {**train(name, seed, lr, data, arguments), "tuning": False}


def mean(runs, key, factor=1.0, digits=3):
    values = [factor * run[key] for run in runs]
    deviation = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.{digits}f}{deviation}"


def print_table(results, arguments):
    parameters = sum(parameter.numel() for parameter in make_module(0).parameters())
    print(f"\n{dist.get_world_size()} ranks, {parameters} parameters, {arguments.steps} steps of {arguments.batch} images for "
          f"each rank, SGD with momentum {arguments.momentum:g}; {len(arguments.seeds)} seeds; torch {torch.__version__}\n")
    print("| method | ratio | learning rate | train loss | test accuracy, % | kB up and down a step |")
    print("|---|---:|---:|---:|---:|---:|")
    for name in arguments.methods:
        runs = [run for run in results if run["method"] == name and not run["tuning"]]
        lr = runs[0]["lr"]
        # At the end of the list, a rate beyond it might be better.
        edge = " (end of the list)" if len(arguments.lr) > 1 and lr in (min(arguments.lr), max(arguments.lr)) else ""
        ratio = f"{100 * float(ratio_of(name)):g} %" if ratio_of(name) else ""
        differ = "" if all(run["agree"] for run in runs) else " **ranks differ or not finite**"
        print(f"| {name}{differ} | {ratio} | {lr:g}{edge} | {mean(runs, 'loss, seen')} "
              f"| {mean(runs, 'accuracy, test', 100, 2)} | {statistics.mean(run['bytes'] for run in runs) / 1e3:.2f} |")


def run_rank(arguments):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    results = []
    for result in run_all(arguments):
        results.append(result)
        if dist.get_rank() == 0:
            print(f"{result['method']}, {'tuning ' if result['tuning'] else ''}seed {result['seed']}, lr {result['lr']:g}: "
                  f"accuracy {100 * result['accuracy, held out']:.2f} % held out", file=sys.stderr, flush=True)
            if arguments.json:
                with arguments.json.open("a" if len(results) > 1 else "w") as file:
                    file.write(json.dumps(result) + "\n")
    if dist.get_rank() == 0:
        print_table(results, arguments)
    dist.barrier()
    dist.destroy_process_group()


def start_rank(rank, arguments, port):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(arguments.ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    run_rank(arguments)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def main():
    arguments = parse_arguments()
    check(arguments.methods)
    if "RANK" in os.environ:
        run_rank(arguments)
    else:
        torch.multiprocessing.spawn(start_rank, (arguments, free_port()), arguments.ranks)


if __name__ == "__main__":
    main()
