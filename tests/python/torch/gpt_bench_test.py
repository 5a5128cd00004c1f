"""The experiment of bench/gpt at a tiny size: its plan goes on where it was, and every kind of method trains."""

import hashlib
import json
import lzma
import os
import pathlib
import sys

import pytest

if "SPARSEWIRE_LONG_TESTS" not in os.environ:
    pytest.skip("with ./test.sh --all", allow_module_level=True)
pytest.importorskip("torch", reason="torch is not installed")
import numpy  # noqa: E402

folder = pathlib.Path(__file__).resolve().parents[3] / "bench" / "gpt"
if not folder.exists():
    pytest.skip("bench/ is not here", allow_module_level=True)
sys.path.insert(0, str(folder))
import plan  # noqa: E402
import train  # noqa: E402

TINY = "--workers 2 --rows 1 --context 16 --width 64 --layers 1 --heads 1 --steps 4 --warm-up 1 --every 2 --eval-every 2"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    made = tmp_path_factory.mktemp("corpus")
    tokens = (numpy.arange(3000) % 7).astype(numpy.uint16).tobytes()
    parts = {"validation": {"tokens": 500}, "test": {"tokens": 500}, "training": {"tokens": 2000}}
    about = {"vocabulary": 8, "sha256": hashlib.sha256(tokens).hexdigest(), **parts}
    (made / "corpus.json").write_text(json.dumps(about))
    (made / "tokens.xz").write_bytes(lzma.compress(tokens))
    return made


@pytest.mark.parametrize("name", ["dense", "powersgd-4", "topk-1%", "diloco", "local-30-both", "local-30-threshold"])
def test_trains_and_counts_bytes(corpus, name):
    flags = plan.flags("12M", name, 0, plan.cell_of(name, (4, 0)))
    training = train.Training(train.parse([str(corpus), *flags.split(), *TINY.split()]))
    row = training.run(lambda line: None)
    training.close()
    judged = row["judged"]
    assert [one["step"] for one in judged] == [0, 2, 4]
    assert judged[-1]["validation_loss"] < judged[0]["validation_loss"]
    assert 0 < judged[1]["sent"] < judged[2]["sent"]
    assert row["test_loss"] > 0


def fake_row(run):
    size, name, seed, cell = run
    inner, *outer = map(float, cell.split()[1::2])
    loss = abs(inner - 0.004) + sum(abs(rate - 0.9) for rate in outer)
    return {"size": size, "name": name, "seed": seed, "cell": cell, "judged": [{"validation_loss": loss}]}


def test_plan_ends_with_no_best_cell_at_an_edge():
    rows = []
    while todo := list(plan.left(rows)):
        assert todo[0] not in {(row["size"], row["name"], row["seed"], row["cell"]) for row in rows}
        rows.append(fake_row(todo[0]))
    for name in plan.METHODS:
        losses = plan.tuning(rows, name)
        best = min(losses, key=losses.get)
        assert len(losses) >= plan.CELLS
        assert min(place[0] for place in losses) < best[0] < max(place[0] for place in losses)
    judging = [row for row in rows if row["size"] == "64M"]
    assert len(judging) == sum(len(names) * len(seeds) for names, seeds in plan.ORDER)


def test_a_run_that_would_end_too_late_is_given_up(corpus):
    training = train.Training(train.parse([str(corpus), "--method", "dense", *TINY.split()]))
    with pytest.raises(train.TooSlow):
        training.run(lambda line: None, must_end=0)
