"""The examples run: with two processes (FSDP2: four), random data and few steps."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import processes  # noqa: E402
from ranks import free_port  # noqa: E402

EXAMPLES = Path(__file__).parents[3] / "examples"
if not (EXAMPLES / "torch_ddp.py").is_file():
    pytest.skip("the examples are not here: only the repository has them", allow_module_level=True)


LONG = pytest.mark.skipif("SPARSEWIRE_LONG_TESTS" not in os.environ, reason="takes long: ./test.sh --all runs it")


def start(command, folder, **variables):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", **variables}
    environment.pop("SPARSEWIRE_DATA", None)
    return subprocess.Popen(
        [sys.executable, *map(str, command)],
        cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip


def run(command, folder):
    return "".join(processes.finish([start(command, folder)]))


def torchrun(ranks, example, *arguments, folder):
    launcher = ["-m", "torch.distributed.run", "--nproc_per_node", ranks, "--master_port", free_port()]
    return run([*launcher, EXAMPLES / example, *arguments], folder)


def run_two(script, *arguments, folder):
    """As torchrun starts two processes, without a third one that imports torch."""
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    both = [start([script, *arguments], folder, RANK=rank, LOCAL_RANK=rank, **shared) for rank in "01"]
    return "".join(processes.finish(both))


def needs(package):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")


SAID = r"loss [\d.]+, accuracy [\d.]+\n\d+ bytes in {} steps; dense: \d+; factor [\d.]+ with the dense steps at the start, in the last step [\d.]+"


def test_ddp(tmp_path):
    said = run_two(EXAMPLES / "torch_ddp.py", "--batch", 4, "--steps", 8, "--checkpoint", "run-{rank}.pt", folder=tmp_path)
    assert re.search(SAID.format(8), said)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run-0.pt", "run-1.pt"]


@LONG
@pytest.mark.timeout(900)
def test_ddp_and_its_checkpoints(tmp_path):
    options = ["--batch", 4, "--checkpoint", "run-{rank}.pt"]
    whole = torchrun(2, "torch_ddp.py", *options, "--steps", 24, folder=tmp_path)
    torchrun(2, "torch_ddp.py", *options, "--steps", 14, folder=tmp_path)
    resumed = torchrun(2, "torch_ddp.py", *options, "--steps", 24, "--resume", folder=tmp_path)
    said = SAID.format(24)
    assert re.search(said, whole).group() == re.search(said, resumed).group()


@LONG
def test_ddp_without_a_downlink(tmp_path):
    said = torchrun(
        2, "torch_ddp.py", "--sparsifier", "rtopk:ratio=0.02,r=2", "--downlink", "", "--codec", "auto:values=int8",
        "--steps", 12, "--batch", 4, folder=tmp_path,
    )  # fmt: skip
    assert "12 steps" in said


TINY = ["--every", 4, "--width", 32, "--layers", 1, "--length", 16, "--batch", 2]


def test_local_steps(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("Now is the winter of our discontent made glorious summer by this sun of York. " * 20)
    options = ["--text", text, *TINY, "--checkpoint", "run-{rank}.pt", "--metrics", "run-{rank}.jsonl"]
    said = run_two(EXAMPLES / "torch_local_steps.py", *options, "--steps", 14, folder=tmp_path)
    assert re.search(r"validation loss [\d.]+ after 14 steps\n\d+ bytes sent in 4 exchanges", said), said
    assert {path.name for path in tmp_path.iterdir()} >= {"run-0.pt", "run-1.pt", "run-0.jsonl", "run-1.jsonl"}


@LONG
def test_local_steps_and_their_checkpoints(tmp_path):
    options = [*TINY, "--fragments", 2, "--delay", 1, "--bf16", "--checkpoint", "run-{rank}.pt"]
    whole = torchrun(2, "torch_local_steps.py", *options, "--steps", 25, folder=tmp_path)
    torchrun(2, "torch_local_steps.py", *options, "--steps", 15, folder=tmp_path)
    resumed = torchrun(2, "torch_local_steps.py", *options, "--steps", 25, "--resume", folder=tmp_path)
    said = r"validation loss [\d.]+ after 25 steps"
    assert re.search(said, whole).group() == re.search(said, resumed).group()


@LONG
def test_fsdp2(tmp_path):
    fsdp = pytest.importorskip("torch.distributed.fsdp")
    if not hasattr(getattr(fsdp, "FSDPModule", None), "set_all_reduce_hook"):
        pytest.skip("FSDP2 with set_all_reduce_hook needs torch 2.7 or later")
    said = torchrun(4, "torch_fsdp2.py", folder=tmp_path)
    losses = [float(loss) for loss in re.findall(r"loss ([\d.]+)", said)]
    assert len(losses) == 5 and losses[-1] < losses[0] / 2
    assert "between replicas: factor" in said


@LONG
@pytest.mark.timeout(900)
def test_lightning(tmp_path):
    needs("lightning")
    example = [EXAMPLES / "torch_lightning.py", "--checkpoint", "run.ckpt"]
    assert "32 steps, factor" in run([*example, "--epochs", 4], tmp_path)
    assert "16 steps, factor" in run([*example, "--epochs", 2], tmp_path)
    assert "32 steps, factor" in run([*example, "--epochs", 4, "--resume"], tmp_path)
    assert "4 steps, factor" in run([*example[:1], "--local-steps", 5], tmp_path)  # exchanges in 16 steps


@LONG
def test_accelerate(tmp_path):
    needs("accelerate")
    said = torchrun(2, "torch_accelerate.py", folder=tmp_path)
    first, second = [float(loss) for loss in re.findall(r"loss ([\d.]+)", said)]
    assert second < first
    assert "16 steps, factor" in said
    assert "3 steps, factor" in torchrun(2, "torch_accelerate.py", "--local-steps", 5, folder=tmp_path)


@LONG
@pytest.mark.timeout(900)
def test_trainer(tmp_path):
    needs("transformers")
    options = ["torch_trainer.py", "--folder", "run"]
    first = torchrun(2, *options, "--steps", 40, folder=tmp_path)
    assert "5 exchanges, factor" in first  # every 10 steps, and one before it saves
    resumed = torchrun(2, *options, "--steps", 80, "--resume", folder=tmp_path)
    assert "10 exchanges, factor" in resumed
    losses = [float(loss) for loss in re.findall(r"'loss': '([\d.]+)'", first + resumed)]
    assert len(losses) == 4 and losses == sorted(losses, reverse=True), losses


NEEDS = {"lightning": "lightning", "accelerate": "accelerate", "trainer": "transformers"}


@LONG
@pytest.mark.parametrize("name", ["ddp", "local_steps", "fsdp2", "lightning", "accelerate", "trainer"])
def test_help_says_what_every_option_is(name, tmp_path):
    if name in NEEDS:
        needs(NEEDS[name])
    said = run([EXAMPLES / f"torch_{name}.py", "--help"], tmp_path)
    options = said[said.index("options:") :]
    assert "torch_" in said[: said.index("options:")]  # how it is started
    assert len(re.findall(r"^  --\w+", options, re.MULTILINE)) >= 2
    assert list(without_help(options)) == []


def without_help(options):
    """The options of a --help that have no text: neither behind them nor in the next line."""
    lines = options.splitlines()[1:] + [""]
    for line, following in zip(lines, lines[1:]):
        if re.fullmatch(r"  -\S.*", line) and not re.search(r"\S {2,}\S", line) and not following.startswith("     "):
            yield line


def test_the_tutorial_is_true(tmp_path):
    """All Python blocks of docs/start/pytorch.md, one after the other, in two processes."""
    text = (EXAMPLES.parent / "docs" / "start" / "pytorch.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 8
    script = tmp_path / "tutorial.py"
    end = "dist.barrier()\ndist.destroy_process_group()\nprint('the end')\n"
    seed = "import os, torch\ntorch.manual_seed(int(os.environ['RANK']))\n"
    script.write_text("\n".join([seed, *blocks, end]))
    said = run_two(script, folder=tmp_path)
    assert said.count("the end") == 2
    says = int(re.search(r"# about (\d+) with two processes", text)[1])
    printed = [float(line) for line in re.findall(r"^\d+\.\d+$", said, re.MULTILINE)]
    assert len(printed) == 2 and all(abs(factor - says) < 5 for factor in printed), printed
