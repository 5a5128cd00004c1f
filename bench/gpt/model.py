"""A GPT whose weights are stacked: one array, a row for each worker, so that one process trains all of them.

Pre-norm, no biases, tied embeddings, learnt positions. Matrices come first in a row, vectors last.
"""

import functools
import math

import torch
import torch._dynamo
import torch.nn.functional as F


class Shape:
    def __init__(self, vocabulary, context, width, layers, heads):
        self.vocabulary, self.context, self.width, self.layers, self.heads = vocabulary, context, width, layers, heads
        # Name, how many of it there are (one for each layer), and the size of one.
        self.kinds = [
            ("tokens", 1, (vocabulary, width)),
            ("positions", 1, (context, width)),
            ("attention", layers, (3 * width, width)),
            ("projection", layers, (width, width)),
            ("up", layers, (4 * width, width)),
            ("down", layers, (width, 4 * width)),
            ("norm1", layers, (width,)),
            ("norm2", layers, (width,)),
            ("norm", 1, (width,)),
        ]
        self.dim = sum(count * math.prod(size) for _, count, size in self.kinds)
        self.matrix_dim = sum(count * math.prod(size) for _, count, size in self.kinds if len(size) == 2)

    def layout(self):
        """Name and size of each tensor, in order."""
        return [(f"{name}.{i}", math.prod(size)) for name, count, size in self.kinds for i in range(count)]

    def split(self, rows):
        """The tensors of each row: by kind, a list over the layers."""
        sizes = [math.prod(size) for _, count, size in self.kinds for _ in range(count)]
        parts = iter(rows.split(sizes, dim=1))
        return {name: [next(parts).view(-1, *size) for _ in range(count)] for name, count, size in self.kinds}


def initial(shape, seed):
    """The weights of one worker, as GPT-2 has them: normal with deviation 0.02, less for what is added to the residual."""
    generator = torch.Generator().manual_seed(seed)
    weights = torch.ones(shape.dim)
    at = 0
    for name, count, size in shape.kinds:
        if len(size) == 2:
            deviation = 0.02 / math.sqrt(2 * shape.layers) if name in ("projection", "down") else 0.02
            numbers = count * math.prod(size)
            weights[at : at + numbers] = torch.randn(numbers, generator=generator) * deviation
            at += numbers
    return weights


@functools.cache
def compiled_once(function):
    """By torch.compile, once for each shape in a process."""
    torch._dynamo.config.recompile_limit = 64
    return torch.compile(function, dynamic=False)


def linear(x, weight):
    return torch.bmm(x, weight.transpose(1, 2))


def norm(x, weight):
    return F.layer_norm(x, x.shape[-1:]) * weight.unsqueeze(1)


def block(x, heads, length, norm1, attention, projection, norm2, up, down):
    """One layer. x: workers x (rows * length) x width."""
    workers, numbers, width = x.shape
    q, k, v = (
        part.reshape(-1, length, heads, width // heads).transpose(1, 2)
        for part in linear(norm(x, norm1), attention).chunk(3, dim=2)
    )
    mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    x = x + linear(mixed.transpose(1, 2).reshape(workers, numbers, width), projection)
    return x + linear(F.gelu(linear(norm(x, norm2), up)), down)


def head(x, last_norm, tokens, targets):
    """The mean loss of each worker; softmax in float32."""
    logits = F.log_softmax(linear(norm(x, last_norm), tokens), dim=-1, dtype=torch.float32)
    return F.nll_loss(logits.flatten(0, 1), targets.flatten(), reduction="none").view(len(x), -1).mean(1)


class Passes:
    """Forward passes, compiled or not."""

    def __init__(self, shape, compiled=False):
        self.shape = shape
        self.block, self.head = (compiled_once(f) if compiled else f for f in (block, head))

    def losses(self, weights, inputs, targets):
        """The mean loss of each worker. weights: a row for each; inputs and targets: workers x rows x context."""
        workers, rows, length = inputs.shape
        parts = self.shape.split(weights)
        tokens, positions = parts["tokens"][0], parts["positions"][0]
        offsets = torch.arange(workers, device=inputs.device).view(-1, 1, 1) * self.shape.vocabulary
        x = F.embedding(inputs + offsets, tokens.reshape(-1, self.shape.width)) + positions[:, None, :length]
        x = x.reshape(workers, rows * length, -1)
        for layer in zip(*(parts[name] for name in ("norm1", "attention", "projection", "norm2", "up", "down"))):
            x = self.block(x, self.shape.heads, length, *layer)
        return self.head(x, parts["norm"][0], tokens, targets)


class Models:
    """Equal models to begin with. Where all stay equal (`distinct` is false), the optimizer has one row only."""

    def __init__(self, shape, start, workers, distinct, device, compiled):
        self.weights = start.to(device).repeat(workers if distinct else 1, 1)
        dtype = torch.bfloat16 if self.weights.is_cuda else torch.float32
        self.used = torch.empty(workers, shape.dim, dtype=dtype, device=device).requires_grad_()
        self.passes, self.eager = Passes(shape, compiled), Passes(shape)
        self.refresh()

    @torch.no_grad()
    def refresh(self):
        """What the passes use, after the weights were changed."""
        self.used.copy_(self.weights.expand_as(self.used))

    def gradients(self, inputs, targets):
        """The losses and the gradients of all, a row for each, in the type of the passes."""
        self.used.grad = None
        losses = self.passes.losses(self.used, inputs, targets)
        losses.sum().backward()
        return losses.detach(), self.used.grad

    @torch.no_grad()
    def loss(self, weights, windows, rows=64):
        """Of one row of weights, on windows of context + 1 tokens."""
        weights = weights.view(1, -1).to(self.used.dtype)
        sums = torch.zeros((), device=weights.device)
        for some in windows.split(rows):
            some = some.unsqueeze(0).long()
            sums += self.eager.losses(weights, some[..., :-1], some[..., 1:])[0] * some.shape[1]
        return float(sums) / len(windows)


def adamw(weights, used, mean, square, gradient, clip, rates, matrix_dim, beta2):
    """A step of AdamW, with each row's gradient times `clip`; matrices decay. One pass over all arrays if it is compiled."""
    lr, first, second = rates.unbind()
    clipped = gradient.float() * clip
    mean.copy_(0.9 * mean + 0.1 * clipped)
    square.copy_(beta2 * square + (1 - beta2) * clipped * clipped)
    is_matrix = torch.arange(weights.shape[1], device=weights.device) < matrix_dim
    kept = 1 - torch.where(is_matrix, 0.1 * lr, torch.zeros_like(lr))
    weights.copy_(kept * weights - lr / first * mean / ((square / second).sqrt() + 1e-8))
    used.copy_(weights.expand_as(used))


class AdamW:
    """Of all rows of the weights at once, and of what the passes use."""

    def __init__(self, models, matrix_dim, beta2, compiled):
        self.models, self.matrix_dim, self.beta2 = models, matrix_dim, beta2
        self.mean, self.square = (torch.zeros_like(models.weights) for _ in range(2))
        self.steps, self.rates = 0, torch.empty(3, device=models.weights.device)
        self.adamw = compiled_once(adamw) if compiled else adamw

    @torch.no_grad()
    def step(self, gradient, lr):
        self.steps += 1
        self.rates.copy_(torch.tensor([lr, 1 - 0.9**self.steps, 1 - self.beta2**self.steps]))
        clip = (1.0 / (torch.linalg.vector_norm(gradient, dim=1, keepdim=True, dtype=torch.float32) + 1e-6)).clamp(max=1.0)
        arrays = self.models.weights, self.models.used.detach(), self.mean, self.square, gradient
        self.adamw(*arrays, clip, self.rates, self.matrix_dim, self.beta2)
