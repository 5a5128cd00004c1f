"""The hook with gradients on a GPU."""

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from ranks import run  # noqa: E402


@pytest.mark.timeout(240)
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_gradients_on_a_gpu():
    results = run(2, "cuda", steps=20)
    assert results[0] == results[1], results
    assert results[0]["plain copies"] and results[0]["scaled copies"]
