"""Local steps by hand: slow, in plain PyTorch and NumPy, all ranks in one process. It shares nothing with the package."""

import numpy
import torch

F32 = numpy.float32


def top_k(values, k, chunk):
    """The indices of the k largest magnitudes of each chunk, the lower index first; zeros are never among them."""
    found = []
    for begin in range(0, len(values), chunk):
        part = values[begin : begin + chunk]
        order = numpy.lexsort((numpy.arange(len(part)), -abs(part)))
        found += sorted(begin + i for i in order[: min(k, len(part))] if part[i] != 0)
    return found


def mean_of_senders(messages, ranks):
    """Of sparse messages, {index: value}: in rank order, in f32, one division."""
    share, total, senders = F32(1 / ranks), {}, {}
    for message in messages:
        for index, value in message.items():
            total[index] = F32(total.get(index, F32(0)) + F32(share * F32(value)))
            senders[index] = F32(senders.get(index, F32(0)) + share)
    return {index: F32(total[index] / senders[index]) for index in total}


class ByHand:
    """All ranks: models, optimizers and memories; start is one dictionary of f32 arrays."""

    def __init__(self, models, optimizers, k, chunk, decay, lr=1.0, momentum=0.0, is_dense=None):
        self.models, self.optimizers = models, optimizers
        self.k, self.chunk, self.decay, self.lr, self.momentum = k, chunk, F32(decay), F32(lr), F32(momentum)
        names = [name for name, p in models[0].named_parameters() if p.requires_grad]
        parameters = dict(models[0].named_parameters())
        self.dense = [name for name in names if is_dense(name, parameters[name])]
        self.sparse = [name for name in names if name not in self.dense]
        self.start = {name: parameters[name].detach().float().numpy().copy() for name in names}
        size = sum(self.start[name].size for name in self.sparse)
        self.memory = [numpy.zeros(size, F32) for _ in models]
        self.velocity = {name: numpy.zeros_like(values) for name, values in self.start.items()}

    def moved(self, model):
        """Measured from the start in the type of the weights."""
        found = {}
        for name, p in model.named_parameters():
            if name in self.start:
                base = torch.from_numpy(self.start[name]).to(p.dtype).float().numpy()
                found[name] = base - p.detach().float().numpy()
        return found

    def exchange(self):
        deltas = [self.moved(model) for model in self.models]
        update = {}
        for name in self.dense:
            whole = [dict(enumerate(delta[name].ravel())) for delta in deltas]
            mean = mean_of_senders(whole, len(self.models))
            update[name] = numpy.array([mean[i] for i in range(len(mean))], F32).reshape(self.start[name].shape)
        messages = []
        for memory, delta in zip(self.memory, deltas):
            flat = numpy.concatenate([delta[name].ravel() for name in self.sparse] or [numpy.zeros(0, F32)])
            memory[:] = self.decay * memory + flat
            chosen = top_k(memory, self.k, self.chunk) if self.k else range(len(memory))
            messages.append({i: memory[i] for i in chosen})
            memory[list(chosen)] = 0
        mean = mean_of_senders(messages, len(self.models))
        flat = numpy.zeros(len(self.memory[0]), F32)
        for index, value in mean.items():
            flat[index] = value
        at = 0
        for name in self.sparse:
            size = self.start[name].size
            update[name] = flat[at : at + size].reshape(self.start[name].shape)
            at += size
        for name in update:
            step = update[name]
            if self.momentum:
                self.velocity[name] = self.momentum * self.velocity[name] + step
                step = step + self.momentum * self.velocity[name]
            self.start[name] = self.start[name] - self.lr * step
        for model in self.models:
            with torch.no_grad():
                for name, p in model.named_parameters():
                    if name in self.start:
                        p.copy_(torch.from_numpy(self.start[name]))
