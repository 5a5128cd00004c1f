"""Lightning: a strategy that registers the hook. Lightning's own argument ddp_comm_hook does so on GPUs only.

LocalSteps need the model unwrapped: another strategy, and a callback.

    python examples/torch_lightning.py --checkpoint run.ckpt
    python examples/torch_lightning.py --checkpoint run.ckpt --resume --epochs 4
    python examples/torch_lightning.py --local-steps 5
"""

import argparse

import lightning
import torch
from lightning.pytorch.strategies import DDPStrategy

import sparsewire.torch as sw


class SparseDDP(DDPStrategy):
    """SparseDDP("topk:ratio=0.01", downlink=..., ...): the arguments of sparsewire.torch.register()."""

    def __init__(self, sparsifier, ddp=None, **options):
        super().__init__(**(ddp or {}))
        self._register = (sparsifier, options)
        self.state = None

    def configure_ddp(self):
        super().configure_ddp()
        sparsifier, options = self._register
        self.state = sw.register(self.model, sparsifier, **options)


class SaveMemory(lightning.Callback):
    """Saves the memories of all ranks in Lightning's checkpoints, so that any number of ranks can go on."""

    def on_save_checkpoint(self, trainer, module, checkpoint):
        checkpoint["sparsewire"] = trainer.strategy.state.consolidated_state_dict()

    def on_load_checkpoint(self, trainer, module, checkpoint):
        self._loaded = checkpoint["sparsewire"]

    def on_train_start(self, trainer, module):  # the hook is registered after the checkpoint was read
        if getattr(self, "_loaded", None) is not None:
            trainer.strategy.state.load_state_dict(self._loaded)
            self._loaded = None


class Unwrapped(DDPStrategy):
    """Processes and data as with DDP, but each trains alone."""

    def configure_ddp(self):
        pass


class LocalSteps(lightning.Callback):
    """LocalSteps(every=30, ...): the arguments of sparsewire.torch.LocalSteps."""

    def __init__(self, **options):
        self._options = options

    def on_train_start(self, trainer, module):
        self.outer = sw.LocalSteps(module, trainer.optimizers, **self._options)

    def on_train_end(self, trainer, module):
        self.outer.close()


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(784, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))

    def training_step(self, batch, _):
        pictures, labels = batch
        return torch.nn.functional.cross_entropy(self.net(pictures), labels)

    def on_train_batch_end(self, *_):
        if not isinstance(self.trainer.strategy, SparseDDP):
            return
        last = self.trainer.strategy.state.stats()["last"]
        self.log("sparsewire_factor", last["factor_against_dense"])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=2, help="of the whole training, with those before --resume (%(default)s)")
    parser.add_argument("--checkpoint", help="file to save at the end")
    parser.add_argument("--resume", action="store_true", help="go on from --checkpoint")
    parser.add_argument("--local-steps", type=int, default=0, help="steps between two exchanges; 0: the hook (%(default)s)")
    options = parser.parse_args()

    torch.set_num_threads(1)
    lightning.seed_everything(0)
    labels = torch.randint(10, (512,))
    pictures = torch.randn(10, 784)[labels] + torch.randn(512, 784)
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(pictures, labels), batch_size=32)
    strategy = SparseDDP("topk:ratio=0.01", downlink="topk:ratio=0.01", ddp={"process_group_backend": "gloo"})
    extra = SaveMemory()
    if options.local_steps:
        strategy, extra = Unwrapped(process_group_backend="gloo"), LocalSteps(every=options.local_steps)
    trainer = lightning.Trainer(
        accelerator="cpu", devices=2, strategy=strategy, max_epochs=options.epochs, logger=False, callbacks=[extra],
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(Classifier(), data, ckpt_path=options.checkpoint if options.resume else None)
    if options.checkpoint:
        trainer.save_checkpoint(options.checkpoint)  # on all ranks: it is collective, and written by rank 0
    if trainer.global_rank == 0:
        stats = (extra.outer if options.local_steps else strategy.state).stats()
        print(f"{stats['steps']} steps, factor {stats['factor_against_dense']:.1f} against dense", flush=True)


if __name__ == "__main__":
    main()
