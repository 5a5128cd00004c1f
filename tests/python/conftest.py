"""Every test has a time limit, and a stack of all threads when it is passed."""

import importlib.util
import os
import shutil
import sys
from pathlib import Path

import numpy
import pytest
from hypothesis import settings

import sparsewire

sys.path.append(str(Path(__file__).parents[1]))  # behind the others: its folders have names of modules

from patience import patient  # noqa: E402

# Where torch is not installed, the folder of its tests would be taken for it.
if getattr(importlib.util.find_spec("torch"), "origin", None) is None:
    sys.modules["torch"] = None  # so that importing it fails

settings.register_profile("fixed", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("fixed")


def pytest_collection_modifyitems(items):
    """More than what a test waits for may take (ranks.LIMIT), which says more when it is passed."""
    for item in items:
        given = item.get_closest_marker("timeout")
        item.add_marker(pytest.mark.timeout(patient(given.args[0] if given else 300)), append=False)


@pytest.fixture
def random():
    return numpy.random.default_rng(7)


@pytest.fixture
def program():
    """The program: SPARSEWIRE_PROGRAM, that of the installed package, or the one beside the package in a build tree."""
    build = Path(sparsewire.__file__).parents[2]
    places = [os.environ.get("SPARSEWIRE_PROGRAM"), Path(sys.executable).parent / "sparsewire"]
    places += [build / "apps" / "sparsewire" / "sparsewire", shutil.which("sparsewire")]
    for place in places:
        if place and Path(place).is_file():
            return str(place)
    pytest.skip("the program sparsewire was not built; SPARSEWIRE_PROGRAM says where it is")
    return None


@pytest.fixture
def register():
    """Registers a sparsifier for one test."""
    registrations = []

    def register(name, factory, *args, **kwargs):
        registrations.append(sparsewire.register_sparsifier(name, factory, *args, **kwargs))

    yield register
    for registration in registrations:
        registration.unregister()
