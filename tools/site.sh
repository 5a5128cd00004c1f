#!/bin/bash
# Builds the site: build/site/index.html is its first page, and needs no server and no network.
#
#   tools/site.sh [BUILD]     BUILD has the program and the Python package: build/release, as ./test.sh makes it
#
# MkDocs comes from PyPI, into the environment build/site-venv, which is kept; doxygen is Debian's. A warning is an error.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."

build=${1-build/release}
for file in "$build/apps/sparsewire/sparsewire" "$build/python/sparsewire/__init__.py"; do
  [[ -e $file ]] || { echo "error: $file is missing: run ./test.sh --quick first, or name a build" >&2; exit 1; }
done
source tools/packages.sh
need_packages "${site_packages[@]}"

requirements=tools/site/requirements.txt
stamp=build/site-venv/requirements.txt
if ! cmp -s "$requirements" "$stamp"; then
  rm -rf build/site-venv
  python3 -m venv build/site-venv
  timeout 600 build/site-venv/bin/pip install --no-compile --quiet --disable-pip-version-check --retries 2 --timeout 30 -r "$requirements"
  cp "$requirements" "$stamp"
fi

mkdir -p build/site-doxygen
doxygen tools/site/Doxyfile
python3 tools/site/pages.py --build "$build" --xml build/site-doxygen/xml --to build/site-pages
# (Its --quiet would hide warnings from --strict.)
NO_MKDOCS_2_WARNING=1 PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$build/python build/site-venv/bin/mkdocs build --strict --clean \
  -f build/site-pages/mkdocs.yml > build/site.log 2>&1 || { cat build/site.log >&2; exit 1; }
echo "build/site/index.html"
