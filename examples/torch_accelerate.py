"""Accelerate: register the hook after prepare(), which wraps the model in DistributedDataParallel. LocalSteps need it unwrapped.

    accelerate launch --cpu --num_processes 2 --num_cpu_threads_per_process 1 examples/torch_accelerate.py
    accelerate launch --cpu --num_processes 2 --num_cpu_threads_per_process 1 examples/torch_accelerate.py --local-steps 5

torchrun starts it as well.
"""

import argparse

import torch
from accelerate import Accelerator

import sparsewire.torch as sw


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sparsifier", default="topk:ratio=0.01", help="what each process sends (%(default)s)")
    parser.add_argument("--local-steps", type=int, default=0, help="steps between two exchanges; 0: the hook (%(default)s)")
    parser.add_argument("--epochs", type=int, default=2, help="each of 512 random pictures (%(default)s)")
    options = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True)

    labels = torch.randint(10, (512,))
    pictures = torch.randn(10, 784)[labels] + torch.randn(512, 784)
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(pictures, labels), batch_size=32)
    model = torch.nn.Sequential(torch.nn.Linear(784, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    optimizer, data = accelerator.prepare(optimizer, data)

    # With mixed_precision="fp16": also scaler=accelerator.scaler
    if options.local_steps:
        state = sw.LocalSteps(model.to(accelerator.device), optimizer, options.local_steps, sparsifier=options.sparsifier)
    else:
        model = accelerator.prepare(model)
        state = sw.register(model, options.sparsifier, downlink="topk:ratio=0.01")

    for epoch in range(options.epochs):
        losses = []
        for pictures, labels in data:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(pictures), labels)
            accelerator.backward(loss)
            optimizer.step()
            losses.append(loss.detach())
        mean = accelerator.reduce(torch.stack(losses).mean(), "mean").item()
        accelerator.print(f"epoch {epoch + 1}: loss {mean:.3f}")

    stats = state.stats()
    accelerator.print(f"{stats['steps']} steps, factor {stats['factor_against_dense']:.1f} against dense")
    accelerator.wait_for_everyone()
    state.close()
    accelerator.end_training()


if __name__ == "__main__":
    main()
