"""The examples in docstrings and in python/README.md do what they show."""

import doctest
import inspect
from pathlib import Path

import pytest

import sparsewire

README = Path(__file__).parents[2] / "python" / "README.md"


def docstrings():
    yield "sparsewire", sparsewire.__doc__
    for name in sparsewire.__all__:
        public = getattr(sparsewire, name)
        yield name, inspect.getdoc(public)
        if inspect.isclass(public):
            for member, value in vars(public).items():
                if not member.startswith("_"):
                    yield f"{name}.{member}", inspect.getdoc(value)


DOCS = [(name, text) for name, text in docstrings() if text and ">>>" in text]


def run(name, text):
    space = dict(vars(sparsewire), sparsewire=sparsewire)
    test = doctest.DocTestParser().get_doctest(text, space, name, name, 0)
    output = []
    doctest.DocTestRunner(verbose=False).run(test, out=output.append)
    assert not output, "".join(output)


@pytest.mark.parametrize(("name", "text"), DOCS, ids=[name for name, _ in DOCS])
def test_examples_do_what_they_show(name, text):
    run(name, text)


@pytest.mark.skipif(not README.is_file(), reason="python/README.md is not here: only the repository and the sdist have it")
def test_the_readme_does_what_it_shows():
    try:
        run("README.md", README.read_text())
    finally:
        if "above" in [choice.name for choice in sparsewire.sparsifiers()]:
            sparsewire.unregister_sparsifier("above")


def test_there_are_examples_and_everything_public_is_described():
    assert {"Sifter", "encode", "decode", "Worker", "Sparsifier", "run_on_threads"} <= {name for name, _ in DOCS}
    assert not [name for name in sparsewire.__all__ if name[0] != "_" and not inspect.getdoc(getattr(sparsewire, name))]
