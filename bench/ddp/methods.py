"""How DDP exchanges gradients, by name, for the benches of this folder:

    local             not at all
    ddp               as it does by default
    bf16              the same, rounded to bf16
    powersgdN         PowerSGD of rank N
    topk:ratio=0.01   a sparsifier of sparsewire, with all its keys; needs the package sparsewire
"""

import contextlib
import re
import sys

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

# PowerSGD starts its second and third all-reduce when the one before has ended. With two buckets under way on gloo, ranks
# start them in different orders, and the process aborts ("Received data size doesn't match expected size"). So: one bucket.
ONE_BUCKET = {"bucket_cap_mb": 1 << 20}
LEAST_DENSE_START = 2  # PowerSGD refuses to start earlier: DDP regroups its buckets after the first step


def bf16_hook(group: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """As DDP's own bf16_compress_hook, which DDP refuses by its name where there is no NCCL."""
    gradient = bucket.buffer()
    # Divided before the sum, as DDP does it.
    rounded = gradient.to(torch.bfloat16).div_(dist.get_world_size())
    work = dist.all_reduce(rounded, async_op=True)
    return work.get_future().then(lambda future: gradient.copy_(future.value()[0]))


def is_sparsewire(name):
    return not re.fullmatch(r"local|ddp|bf16|powersgd[1-9]\d*", name)


def check(names):
    """Ends the program if the package that a method needs is missing."""
    ours = [name for name in names if is_sparsewire(name)]
    if ours:
        try:
            import sparsewire.torch  # noqa: F401
        except ImportError as error:
            sys.exit(f"{ours[0]} needs the package sparsewire ({error}); --methods without it: ddp, bf16, powersgd1, ...")


class Method:
    """DDP around `module`, with a method. `exchange`, `downlink` ("none" for none) and `codec` are for sparsewire.

    REQUIRES: the weights are the same on all ranks; they are not sent.
    """

    def __init__(self, name, module, dense_start=LEAST_DENSE_START, exchange="sharded", downlink="none",
                 codec="auto:values=bf16"):
        self.name = name
        options = ONE_BUCKET if name.startswith("powersgd") else {}
        self.model = model = DistributedDataParallel(
            module, init_sync=False, gradient_as_bucket_view=True, **options
        )
        self.state = None
        self.dense_start = 0  # how many steps are dense first
        if name == "bf16":
            model.register_comm_hook(None, bf16_hook)
        elif name.startswith("powersgd"):
            self.dense_start = max(dense_start, LEAST_DENSE_START)
            self.state = PowerSGDState(None, int(name.removeprefix("powersgd")), start_powerSGD_iter=self.dense_start)
            model.register_comm_hook(self.state, powerSGD_hook)
        elif is_sparsewire(name):
            import sparsewire.torch as sw

            self.dense_start = dense_start
            options = {} if downlink == "none" else {"downlink": downlink}
            self.state = sw.register(model, name, exchange=exchange, codec=codec, start_step=dense_start, **options)

    def exchanging(self):
        """The context of a forward and a backward pass."""
        return self.model.no_sync() if self.name == "local" else contextlib.nullcontext()

    def bytes_moved(self, steps):
        """What this rank sent up and received down in `steps` steps: counted by sparsewire, computed for the others."""
        if is_sparsewire(self.name):
            stats = self.state.stats()
            return stats["bytes_up"] + stats["bytes_down"]
        ranks = dist.get_world_size()
        parameters = sum(parameter.numel() for parameter in self.model.parameters())
        numbers = parameters * steps
        if self.name == "local":
            numbers = 0
        elif self.name.startswith("powersgd"):
            dense = min(steps, self.dense_start)
            numbers = parameters * dense + self.state.compression_stats()[2]
        return numbers * (2 if self.name == "bf16" else 4) * 2 * (ranks - 1) / ranks

    def close(self):
        if is_sparsewire(self.name):
            self.state.close()


def replicas_agree(module):
    """Whether the weights of all ranks are the same bits, and finite."""
    weights = torch.cat([parameter.detach().flatten() for parameter in module.parameters()])
    bits = weights.view(torch.int32).to(torch.int64)
    position = torch.arange(1, bits.numel() + 1)
    mine = torch.stack([bits.sum(), (bits * position).sum()])
    all_of_them = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(all_of_them, mine)
    return bool(weights.isfinite().all()) and all(torch.equal(one, mine) for one in all_of_them)
