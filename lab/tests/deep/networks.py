"""The networks of lab/networks/torch/ again, as modules of torch.nn. Parameters have the same names and the same order."""

import torch
from torch import nn
from torch.nn import functional as F


class Mlp(nn.Module):
    def __init__(self, *widths):
        super().__init__()
        self.count = len(widths) - 1
        for i in range(self.count):
            setattr(self, f"fc{i + 1}", nn.Linear(widths[i], widths[i + 1]))

    def forward(self, x):
        x = x.flatten(1)
        for i in range(self.count):
            x = getattr(self, f"fc{i + 1}")(x)
            if i + 1 < self.count:
                x = F.relu(x)
        return x


class MnistCnn(nn.Module):
    """`masks`: what dropout multiplies with, in the order in which it is drawn."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3)
        self.conv2 = nn.Conv2d(32, 64, 3)
        self.fc1 = nn.Linear(9216, 128)
        self.fc2 = nn.Linear(128, 10)
        self.masks = None

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv2(F.relu(self.conv1(x)))), 2)
        first = self.masks[: x.numel()].reshape(x.shape)
        x = F.relu(self.fc1((x * first).flatten(1)))
        return self.fc2(x * self.masks[first.numel() : first.numel() + x.numel()].reshape(x.shape))


class FashionCnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 5, padding=2)
        self.bn1 = nn.BatchNorm2d(16)
        self.conv2 = nn.Conv2d(16, 32, 5, padding=2)
        self.bn2 = nn.BatchNorm2d(32)
        self.fc = nn.Linear(7 * 7 * 32, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 2)
        x = F.max_pool2d(F.relu(self.bn2(self.conv2(x))), 2)
        return self.fc(x.flatten(1))


class BasicBlock(nn.Module):
    def __init__(self, inputs, outputs, stride, zeros):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.zeros = (outputs - inputs) // 2 if zeros else 0
        self.stride = stride
        self.shortcut = nn.Sequential()
        if not zeros and (stride != 1 or inputs != outputs):
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        if self.zeros:
            x = F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.zeros, self.zeros))
        return F.relu(y + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(self, widths, blocks, zeros):
        super().__init__()
        self.conv1 = nn.Conv2d(3, widths[0], 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(widths[0])
        inputs = widths[0]
        self.stages = len(widths)
        for stage, width in enumerate(widths):
            layer = []
            for i in range(blocks):
                layer.append(BasicBlock(inputs, width, 2 if stage > 0 and i == 0 else 1, zeros))
                inputs = width
            setattr(self, f"layer{stage + 1}", nn.Sequential(*layer))
        self.linear = nn.Linear(inputs, 10)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        for stage in range(self.stages):
            x = getattr(self, f"layer{stage + 1}")(x)
        return self.linear(F.adaptive_avg_pool2d(x, 1).flatten(1))


class Vgg19(nn.Module):
    STAGES = [(64, 2), (128, 2), (256, 4), (512, 4), (512, 4)]

    def __init__(self):
        super().__init__()
        inputs, number = 3, 1
        for width, layers in self.STAGES:
            for _ in range(layers):
                setattr(self, f"conv{number}", nn.Conv2d(inputs, width, 3, padding=1))
                setattr(self, f"bn{number}", nn.BatchNorm2d(width))
                inputs, number = width, number + 1
        self.linear = nn.Linear(512, 10)

    def forward(self, x):
        number = 1
        for _, layers in self.STAGES:
            for _ in range(layers):
                x = F.relu(getattr(self, f"bn{number}")(getattr(self, f"conv{number}")(x)))
                number += 1
            x = F.max_pool2d(x, 2)
        return self.linear(x.flatten(1))


class CharLstm(nn.Module):
    def __init__(self, alphabet, width, layers):
        super().__init__()
        self.embedding = nn.Embedding(alphabet, width // 4)
        self.lstm = nn.LSTM(width // 4, width, layers, batch_first=True)
        self.linear = nn.Linear(width, alphabet)

    def forward(self, x):
        return self.linear(self.lstm(self.embedding(x))[0]).flatten(0, 1)


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)

    def forward(self, x):
        q, k, v = (part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in self.c_attn(x).chunk(3, dim=2))
        return self.c_proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class Perceptron(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.c_fc = nn.Linear(width, 4 * width)
        self.c_proj = nn.Linear(4 * width, width)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x)))


class GptBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = Perceptron(width)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt(nn.Module):
    def __init__(self, alphabet, length, width, layers, heads):
        super().__init__()
        self.wte = nn.Embedding(alphabet, width)
        self.wpe = nn.Embedding(length, width)
        self.h = nn.ModuleList([GptBlock(width, heads) for _ in range(layers)])
        self.ln_f = nn.LayerNorm(width)

    def forward(self, x):
        y = self.wte(x) + self.wpe(torch.arange(x.shape[1]))
        for block in self.h:
            y = block(y)
        return F.linear(self.ln_f(y), self.wte.weight).flatten(0, 1)
