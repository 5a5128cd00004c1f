"""FSDP2 with replicas: shards are reduced densely inside a group, and the replicas exchange 1 % of each gradient.

    torchrun --nproc_per_node 4 examples/torch_fsdp2.py

Four processes are two replicas of two shards each. In a cluster the shards of a replica are in one machine, with fast links,
and the replicas are in different machines.
"""

import argparse

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import sparsewire.torch as sw


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sparsifier", default="topk:ratio=0.01", help="what the replicas exchange (%(default)s)")
    parser.add_argument("--steps", type=int, default=100, help="of the training (%(default)s)")
    options = parser.parse_args()

    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    mesh = init_device_mesh("cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=("replicate", "shard"))

    layers = [torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU()) for _ in range(3)]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(256, 10))
    for layer in layers:
        fully_shard(layer, mesh=mesh["shard"])
    fully_shard(model, mesh=mesh["shard"])  # not mesh: with two dimensions FSDP2 would reduce the replicas densely

    state = sw.register(model, options.sparsifier, replicate_group=mesh["replicate"].get_group())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    ten = torch.randn(10, 256)  # one picture for each label, the same in all processes
    torch.manual_seed(1 + dist.get_rank())  # other noise in each process
    losses = []
    for step in range(options.steps):
        labels = torch.randint(10, (32,))
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(ten[labels] + torch.randn(32, 256)), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        if len(losses) == 20:
            mean = torch.stack(losses).mean()
            dist.all_reduce(mean)
            losses = []
            if dist.get_rank() == 0:
                print(f"step {step + 1}: loss {mean.item() / dist.get_world_size():.3f}", flush=True)

    if dist.get_rank() == 0:
        print(f"between replicas: factor {state.stats()['factor_against_dense']:.1f} against dense")
    dist.barrier()
    state.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
