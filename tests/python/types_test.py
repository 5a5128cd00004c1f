"""The stubs: consistent, strict, and the same names as the module."""

import inspect
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import sparsewire
from patience import patient
from sparsewire import _core

HERE = Path(__file__).parent
PACKAGE = Path(sparsewire.__file__).parent


@pytest.mark.timeout(600)
def test_mypy_strict_accepts_the_package_and_its_use(tmp_path):
    pytest.importorskip("mypy")
    # A copy: where it is installed, mypy would take all its neighbours for files of the user.
    copy = tmp_path / "sparsewire"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    sources = [str(path) for path in copy.glob("*.py*") if path.stem != "_core"]
    if "SPARSEWIRE_LONG_TESTS" in os.environ:  # mypy reads all of torch for it
        sources += [str(path) for path in (copy / "torch").glob("*.py")] + [str(HERE / "torch" / "typed_torch_usage.py")]
    cache = ["--cache-dir", str(tmp_path / "cache")]
    command = [sys.executable, "-m", "mypy", "--strict", *cache, *sources, str(HERE / "typed_usage.py")]
    done = subprocess.run(command, cwd=tmp_path, timeout=patient(550), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_stub_names_everything_that_the_module_has():
    stub = (PACKAGE / "_core.pyi").read_text()
    for name, value in vars(_core).items():
        if name.startswith("__"):
            continue
        assert f"class {name}:" in stub or f"def {name}(" in stub, name
        if inspect.isclass(value):
            body = stub.split(f"class {name}:")[1].split("\nclass ")[0]
            for member in vars(value):
                assert member.startswith("_") or f"def {member}(" in body, f"{name}.{member}"
