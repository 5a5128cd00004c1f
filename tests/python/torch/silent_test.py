"""A rank that is silent for longer than the deadline. It runs beside nothing: a starved rank is silent, too."""

import importlib.util

import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("torch is not installed", allow_module_level=True)

from patience import DEADLINE_THAT_PASSES  # noqa: E402
from ranks import Ranks  # noqa: E402


def test_a_stopped_rank_is_named_by_all_others():
    with Ranks(3) as ranks:
        results = ranks.ask("lost", without=[1], how="SIGSTOP", bucket=2, steps=10, deadline=DEADLINE_THAT_PASSES)
        for message, kind, lost in (results[0], results[2]):
            assert kind == "TransportError" and lost == 1 and "rank 1" in message, message
        assert ranks.wait(without=[1]) == [0, 0]
