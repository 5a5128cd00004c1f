"""How workers agree: dense, PowerSGD and Top-k after every step; DiLoCo and LocalSteps after many.

The sparse ones use sparsewire's own Workers, on threads of this process; their bytes are those of encoded messages.
"""

import threading

import numpy
import torch

import sparsewire


class Exchange:
    """sparsewire's Workers, one for each model of the stack."""

    def __init__(self, layout, workers, **options):
        self.group = sparsewire.ThreadGroup(workers, deadline=600)
        self.layout = layout
        self.dim = sum(size for _, size in layout)
        self.workers = [None] * workers
        self.host = torch.empty(workers, self.dim, pin_memory=torch.cuda.is_available())
        self.update = numpy.empty(self.dim, numpy.float32)
        self.densities = []
        self._on_all(lambda rank: self._make(rank, options))

    def _make(self, rank, options):
        self.workers[rank] = sparsewire.Worker(self.layout, transport=self.group.at(rank), check_every=10, **options)

    def _on_all(self, do):
        errors = []

        def run(rank):
            try:
                do(rank)
            except BaseException as error:
                self.group.mark_lost(rank, repr(error))
                errors.append(error)

        threads = [threading.Thread(target=run, args=(rank,)) for rank in range(len(self.workers))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]

    def __call__(self, gradients):
        """The update of all, from a gradient of each: workers x dim. Also the bytes of one worker's messages, both ways."""
        self.host.copy_(gradients)
        rows = self.host.numpy()
        self._on_all(lambda rank: self.workers[rank].step(rows[rank]))
        self.workers[0].write_update(self.update)
        stats = self.workers[-1].stats()  # not rank 0, which may be the server
        self.densities.append(stats["density"])
        others = len(self.workers) - 1
        # What one worker encodes: under allgather the same message goes to all others.
        sent = stats["bytes_up"] / (others if self.workers[0].config["exchange"] == "allgather" else 1)
        return torch.from_numpy(self.update).to(gradients.device), sent, stats["bytes_down"]


class PowerSGD:
    """Vogels et al., 2019, with error feedback and a warm start, after every step; tensors of one dimension go densely."""

    def __init__(self, rank):
        self.rank, self.memory, self.q = rank, {}, {}

    def __call__(self, gradients):
        bytes_sent = 0
        for name, gradient in gradients.items():
            workers = gradient.shape[0]
            if gradient.dim() < 3:
                gradient.copy_(gradient.mean(0, keepdim=True).expand_as(gradient))
                bytes_sent += 4 * gradient[0].numel()
                continue
            owed = gradient + self.memory[name] if name in self.memory else gradient.clone()
            if name not in self.q:
                generator = torch.Generator(gradient.device).manual_seed(1)
                shape = (gradient.shape[2], self.rank)
                self.q[name] = torch.randn(shape, generator=generator, device=gradient.device)
            p = torch.linalg.qr((owed @ self.q[name]).mean(0))[0]
            self.q[name] = (owed.transpose(1, 2) @ p).mean(0)
            found = p @ self.q[name].T
            self.memory[name] = owed - found
            gradient.copy_(found.unsqueeze(0).expand_as(gradient))
            bytes_sent += 4 * self.rank * (gradient.shape[1] + gradient.shape[2])
        assert workers
        return bytes_sent
