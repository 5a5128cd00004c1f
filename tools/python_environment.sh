#!/bin/bash
# Makes the virtual environment build/venv, in which the tests of the Python package run, from tests/python/requirements.txt.
# It is kept, and made again only when that file changes. Returns 1 and says why if it cannot be made: without a network.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."

requirements=tests/python/requirements.txt
stamp=build/venv/requirements.txt
if cmp -s "$requirements" "$stamp"; then exit 0; fi

rm -rf build/venv
python3 -m venv build/venv
# Only what is imported is compiled to bytecode, when it is: all of it would take as long as everything else here.
timeout 900 build/venv/bin/pip install --no-compile --quiet --disable-pip-version-check --retries 2 --timeout 30 -r "$requirements"
cp "$requirements" "$stamp"
