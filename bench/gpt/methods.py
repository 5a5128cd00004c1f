"""How workers agree: PowerSGD and Top-k after every step; LocalSteps after many.

The sparse ones use sparsewire's own Workers, on threads of this process; their bytes are those of encoded messages.
Each says what one worker's message has (`sent`), and what crosses the busiest worker's link in one direction (`moved`).
"""

import concurrent.futures
import math
import os

import torch

import sparsewire


def all_reduce(workers, message):
    """`sent` and `moved` of an all-reduce in a ring."""
    return message, 2 * (workers - 1) / workers * message


class Exchange:
    """sparsewire's Workers, one for each row. `on_host`: gradients on a GPU are copied to the host first."""

    def __init__(self, layout, workers, device, on_host, **options):
        self.group = sparsewire.ThreadGroup(workers, deadline=600)
        self.pool = concurrent.futures.ThreadPoolExecutor(workers)
        dim = sum(size for _, size in layout)
        self.is_direct = device.type == "cpu" or not on_host
        self.host = None if self.is_direct else torch.empty(workers, dim, pin_memory=True)
        self.update = torch.empty(dim, device=device) if self.is_direct else torch.empty(dim, pin_memory=True)
        self.dim, self.densities, self.shares = dim, [], []
        self.workers = [None] * workers
        threads = max(1, (os.cpu_count() or 1) // workers)

        def make(rank):
            transport = self.group.at(rank)
            self.workers[rank] = sparsewire.Worker(layout, transport=transport, check_every=10, threads=threads, **options)

        self._on_all(make)
        self.is_scaled = "scale=lr" in options.get("feedback", "")

    def _on_all(self, do):
        def run(rank):
            try:
                do(rank)
            except BaseException as error:
                self.group.mark_lost(rank, repr(error))
                raise

        for done in [self.pool.submit(run, rank) for rank in range(len(self.workers))]:
            done.result()

    def close(self):
        self.pool.shutdown()
        self.workers.clear()

    def __call__(self, gradients, lr):
        """The update of all, from a row of each, which is overwritten by the next call; and the bytes."""
        rows = gradients if self.is_direct else self.host.copy_(gradients)
        # A threshold follows the learning rate; what goes into the memory is the row itself either way.
        scale = {"lr": lr, "unscale": 1 / lr} if self.is_scaled else {}
        self._on_all(lambda rank: self.workers[rank].step(rows[rank], **scale))
        self.workers[0].write_update(self.update)
        all_stats = [worker.stats() for worker in self.workers]
        self.densities.append(all_stats[0]["density"])
        self.shares.append(all_stats[0]["entries_sent"] / self.dim)
        count = len(self.workers)
        others = max(1, count - 1)
        share = {"allgather": 1 / others, "sharded": count / others, "server": 1}[self.workers[0].config["exchange"]]
        sent = all_stats[-1]["bytes_up"] * share  # rank 0 may be the server
        moved = max(stats["bytes_up"] + stats["bytes_down"] + stats["bytes_served"] for stats in all_stats) / 2
        return self.update.to(gradients.device), (sent, moved)


def orthonormal(p):
    """Gram-Schmidt over the few columns of p: layers x height x rank."""
    columns = []
    for column in p.unbind(-1):
        for other in columns:
            column = column - (column * other).sum(-1, keepdim=True) * other
        columns.append(column / (column.norm(dim=-1, keepdim=True) + 1e-20))
    return torch.stack(columns, -1)


class PowerSGD:
    """Vogels et al., 2019, with error feedback and a warm start, after every step; tensors of one dimension go densely.

    Its two all-reduces are sums of products with the same factor, so here the mean of all memories does for all.
    """

    def __init__(self, shape, workers, rank, device):
        self.memory = torch.zeros(shape.matrix_dim, device=device)
        generator = torch.Generator().manual_seed(1)
        self.groups, at, numbers = [], 0, shape.dim - shape.matrix_dim
        for _, count, size in shape.kinds:
            if len(size) == 2:
                q = torch.randn(count, size[1], rank, generator=generator).to(device)
                self.groups.append([at, count, size, q])
                at += count * math.prod(size)
                numbers += count * rank * sum(size)
        self.bytes = all_reduce(workers, 4 * numbers)

    def __call__(self, gradients):
        matrix_dim = len(self.memory)
        mean = gradients.float().mean(0)
        mean[:matrix_dim] += self.memory
        self.memory.copy_(mean[:matrix_dim])
        for group in self.groups:
            at, count, size, q = group
            owed = mean[at : at + count * math.prod(size)].view(count, *size)
            p = orthonormal(owed @ q)
            group[3] = owed.transpose(1, 2) @ p
            owed.copy_(p @ group[3].transpose(1, 2))
        self.memory -= mean[:matrix_dim]
        return mean, self.bytes
