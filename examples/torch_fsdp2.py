"""FSDP2 with replicas: shards are reduced densely inside a group, and the replicas exchange 1 % of each gradient.

    torchrun --nproc_per_node 4 examples/torch_fsdp2.py

Four processes are two replicas of two shards each. In a cluster the shards of a replica are in one machine, with fast links,
and the replicas are in different machines.
"""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import sparsewire.torch as sw


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    mesh = init_device_mesh("cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=("replicate", "shard"))

    layers = [torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU()) for _ in range(3)]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(256, 10))
    for layer in layers:
        fully_shard(layer, mesh=mesh["shard"])
    fully_shard(model, mesh=mesh["shard"])  # not mesh: with two dimensions FSDP2 would reduce the replicas densely

    state = sw.register(model, "topk:ratio=0.01", replicate_group=mesh["replicate"].get_group())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    target = torch.randn(256, 10)  # the same in all processes
    torch.manual_seed(1 + dist.get_rank())  # other data in each process
    for step in range(100):
        x = torch.randn(32, 256)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), (x @ target).argmax(1))
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0 and (step + 1) % 20 == 0:
            print(f"step {step + 1}: loss {loss.item():.3f}", flush=True)

    if dist.get_rank() == 0:
        print(f"between replicas: factor {state.stats()['factor_against_dense']:.1f} against dense")
    dist.barrier()
    state.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
