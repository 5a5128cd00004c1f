#!/bin/bash
# Builds the laboratory against an installed copy of the library, as an outsider would, and trains with it: the same weights as
# the program of that build.
#
#   tools/check_lab.sh BUILD_DIR
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."

build=$1
work=$build/installed_lab
rm -rf "$work"
cmake --install "$build" --prefix "$work/prefix" > /dev/null
rm "$work/prefix/bin/sparsewire"
cp -r lab cmake "$work"  # without src/
cmake -S "$work/lab" -B "$work/build" -G Ninja -DCMAKE_PREFIX_PATH="$PWD/$work/prefix" > /dev/null
grep -q NDEBUG "$work/build/build.ninja" || { echo "check_lab.sh: without a build type it is not optimised" >&2; exit 1; }
cmake --build "$work/build" > /dev/null
train() {
  "$1" train --problem mlp:batch=4 --sparsifier rtopk:ratio=0.01 --steps 20 --quiet --json - | grep weights_crc32c
}
diff <(train "$build/apps/sparsewire/sparsewire") <(train "$work/build/apps/sparsewire/sparsewire")
echo "the same weights"
