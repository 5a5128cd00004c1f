#!/bin/bash
# Makes the virtual environment build/venv, in which the tests of the Python package run, from tests/python/requirements.txt;
# with SPARSEWIRE_LONG_TESTS also from requirements_all.txt. It is kept, and made again only when requirements.txt changes.
# Returns 1 and says why if it cannot be made: without a network.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."

# add FILE    installs what it names, unless that is there
add() {
  if cmp -s "tests/python/$1" "build/venv/$1"; then return; fi
  # Only what is imported is compiled to bytecode, when it is: all of it would take as long as everything else here.
  timeout 900 build/venv/bin/pip install --no-compile --quiet --disable-pip-version-check --retries 2 --timeout 30 -r "tests/python/$1"
  cp "tests/python/$1" "build/venv/$1"
}

if ! cmp -s tests/python/requirements.txt build/venv/requirements.txt; then
  rm -rf build/venv
  python3 -m venv build/venv
fi
add requirements.txt
if [[ ${SPARSEWIRE_LONG_TESTS-} ]]; then add requirements_all.txt; fi
