"""A GPT whose weights are stacked: one tensor holds the weights of all workers, so that one process trains all of them.

Pre-norm, no biases, tied embeddings, learnt positions. The first dimension of every tensor is the worker.
"""

import math

import torch
import torch.nn.functional as F


class Shape:
    def __init__(self, vocabulary, context, width, layers, heads):
        self.vocabulary, self.context, self.width, self.layers, self.heads = vocabulary, context, width, layers, heads

    def tensors(self):
        """Name and shape of each, in order."""
        yield "tokens", (self.vocabulary, self.width)
        yield "positions", (self.context, self.width)
        for layer in range(self.layers):
            yield f"{layer}.norm1", (self.width,)
            yield f"{layer}.attention", (3 * self.width, self.width)
            yield f"{layer}.projection", (self.width, self.width)
            yield f"{layer}.norm2", (self.width,)
            yield f"{layer}.up", (4 * self.width, self.width)
            yield f"{layer}.down", (self.width, 4 * self.width)
        yield "norm", (self.width,)


def initial(shape, seed, device):
    """The weights of one worker, as GPT-2 has them: normal with deviation 0.02, less for what is added to the residual."""
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for name, size in shape.tensors():
        if len(size) == 1:
            weights[name] = torch.ones(size)
        else:
            deviation = 0.02 / math.sqrt(2 * shape.layers) if name.endswith(("projection", "down")) else 0.02
            weights[name] = torch.randn(size, generator=generator) * deviation
    return {name: one.to(device) for name, one in weights.items()}


def stack(weights, workers):
    return {name: one.unsqueeze(0).repeat(workers, *[1] * one.dim()).requires_grad_() for name, one in weights.items()}


def losses(shape, weights, inputs, targets):
    """The mean loss of each worker. `inputs` and `targets`: workers x rows x context."""
    workers, rows, length = inputs.shape
    width, heads = shape.width, shape.heads

    def linear(x, name):
        return torch.bmm(x, weights[name].to(x.dtype).transpose(1, 2))

    def norm(x, name):
        return F.layer_norm(x, (width,)) * weights[name].to(x.dtype).unsqueeze(1)

    offsets = torch.arange(workers, device=inputs.device).view(-1, 1, 1) * shape.vocabulary
    x = F.embedding(inputs + offsets, weights["tokens"].reshape(-1, width))
    x = x + weights["positions"][:, None, :length]
    dtype = torch.bfloat16 if x.is_cuda else torch.float32
    x = x.reshape(workers, rows * length, width).to(dtype)
    for layer in range(shape.layers):
        q, k, v = (
            part.reshape(workers * rows, length, heads, width // heads).transpose(1, 2)
            for part in linear(norm(x, f"{layer}.norm1"), f"{layer}.attention").chunk(3, dim=2)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        mixed = mixed.transpose(1, 2).reshape(workers, rows * length, width)
        x = x + linear(mixed, f"{layer}.projection")
        x = x + linear(F.gelu(linear(norm(x, f"{layer}.norm2"), f"{layer}.up")), f"{layer}.down")
    logits = linear(norm(x, "norm"), "tokens").float()
    flat = F.cross_entropy(logits.reshape(-1, shape.vocabulary), targets.reshape(-1), reduction="none")
    return flat.reshape(workers, -1).mean(1)
