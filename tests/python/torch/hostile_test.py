"""Bytes and states from outside: whatever is in them, the answer is one clear error, and nothing else happens."""

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from ranks import run as run_ranks  # noqa: E402

BODIES = Path(__file__).parent / "hostile_bodies.py"


def run(body, **arguments):
    return run_ranks(2, body, bodies=BODIES, **arguments)


@pytest.mark.parametrize("kind", range(4))
def test_a_changed_state_is_refused_or_works(kind):
    for bad, outcomes, goes_on in run("hostile_states", kind=kind, count=150):
        assert not bad, bad
        assert outcomes["refused"] > 80 and outcomes["loaded"] > 20
        assert goes_on


def test_a_pickle_in_the_place_of_a_state_does_not_run(tmp_path):
    results = run("pickles", path=str(tmp_path))
    for said, ran, runs_elsewhere, is_same in results:
        assert not ran and runs_elsewhere and is_same
        assert said["checkpoint"].startswith("UsageError") and "cannot be read (UnpicklingError)" in said["checkpoint"]
        assert said["copy"].startswith("UnpicklingError")
    said = results[0][0]
    assert said["sound"] == "no error"
    for name in ("pickle", "nothing", "null", "no JSON", "cut", "longer", "negative", "a tensor for a number"):
        assert said[name].startswith("TransportError: [torch] what rank 1 sent for consolidated_state_dict() is damaged"), name


def test_a_damaged_answer_names_its_rank():
    answers = ["", "null", "[]", "5", '"x"', "{}", '{"addr', "[" * 9999, '{"address": 5}', '{"address": "\\ud800"}']
    answers += ['{"failed": "1", "cause": "x"}', '{"failed": 1}', '{"failed": 1, "cause": null}']
    (said, steps), (_, other_steps) = run("damaged_answers", words=answers)
    assert steps == other_steps == 2
    for answer in [*answers, "options"]:
        assert said[answer].startswith("TransportError: [torch] what rank 1 said is damaged: "), (answer, said[answer])
