"""Hugging Face Trainer: a callback that makes LocalSteps, and a Trainer that does not wrap the model in DistributedDataParallel.

    torchrun --nproc_per_node 2 examples/torch_trainer.py
    torchrun --nproc_per_node 2 examples/torch_trainer.py --folder run --steps 40
    torchrun --nproc_per_node 2 examples/torch_trainer.py --folder run --steps 80 --resume

It trains a tiny Llama, made from a configuration, on numbers that count up: nothing is downloaded.
"""

import argparse
import functools
from pathlib import Path

import torch
import transformers

import sparsewire.torch as sw


class UnwrappedTrainer(transformers.Trainer):
    """Processes, devices and data as always, but each process trains its model alone."""

    def create_accelerator_and_postprocess(self):
        super().create_accelerator_and_postprocess()
        # What accelerate does to a model for an evaluation: mixed precision, but no DistributedDataParallel.
        self.accelerator.prepare_model = functools.partial(self.accelerator.prepare_model, evaluation_mode=True)


class LocalSteps(transformers.TrainerCallback):
    """LocalSteps(every=30, ...): the arguments of sparsewire.torch.LocalSteps."""

    def __init__(self, **options):
        self._options = options

    def on_train_begin(self, args, state, control, model=None, optimizer=None, **_):
        self.outer = sw.LocalSteps(model, optimizer, **self._options)
        if state.global_step > 0:  # the Trainer has loaded a checkpoint
            self.outer.load_state_dict(torch.load(self._file(args, state), weights_only=True))

    def on_step_end(self, args, state, control, **_):
        if control.should_save:  # the Trainer saves the model of rank 0: let it be that of all
            self.outer.sync()

    def on_save(self, args, state, control, **_):
        saved = self.outer.consolidated_state_dict()  # on all ranks: it is collective
        if state.is_world_process_zero:
            torch.save(saved, self._file(args, state))

    def on_train_end(self, args, state, control, **_):
        self.outer.close()  # now all processes have the same weights

    @staticmethod
    def _file(args, state):
        return Path(args.output_dir) / f"checkpoint-{state.global_step}" / "sparsewire.pt"


class Counting(torch.utils.data.Dataset):
    """Texts of 16 tokens that count up by 1, 2 or 3."""

    def __len__(self):
        return 512

    def __getitem__(self, i):
        tokens = (i + torch.arange(16) * (1 + i % 3)) % 64
        return {"input_ids": tokens, "labels": tokens}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=10, help="steps between two exchanges (%(default)s)")
    parser.add_argument("--steps", type=int, default=80, help="of the whole training, with those before --resume (%(default)s)")
    parser.add_argument("--folder", help="where a checkpoint is saved at the end")
    parser.add_argument("--resume", action="store_true", help="go on from the last checkpoint of --folder")
    options = parser.parse_args()

    torch.set_num_threads(1)
    transformers.set_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=16,
    )  # fmt: skip
    arguments = transformers.TrainingArguments(
        output_dir=options.folder or "unused", max_steps=options.steps, save_steps=options.steps,
        save_strategy="steps" if options.folder else "no", learning_rate=3e-3, lr_scheduler_type="constant",
        per_device_train_batch_size=8, logging_steps=20, report_to=[], disable_tqdm=True, use_cpu=True, ddp_backend="gloo",
    )  # fmt: skip
    callback = LocalSteps(every=options.every)
    trainer = UnwrappedTrainer(
        transformers.LlamaForCausalLM(config), arguments, train_dataset=Counting(), callbacks=[callback]
    )
    trainer.train(resume_from_checkpoint=options.resume)
    if trainer.model_wrapped is not trainer.model:
        raise SystemExit("this version of transformers wraps the model in another way: all gradients were averaged")
    if trainer.is_world_process_zero():
        stats = callback.outer.stats()
        print(f"{stats['steps']} exchanges, factor {stats['factor_against_dense']:.1f} against dense", flush=True)


if __name__ == "__main__":
    main()
