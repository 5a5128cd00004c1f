#!/bin/bash
# Builds sparsewire and runs its main job; on a bare Debian it installs what is missing first.
#
#   ./run.sh             sparsewire compare: the same training with every method, side by side; half a minute once it is built.
#                        The last line names the report, a page with charts
#   ./run.sh --bench     what a step costs on this machine
#   ./run.sh ARGS...     sparsewire ARGS..., e.g. ./run.sh list
set -euo pipefail
root=$(dirname "$(readlink -f "$0")")

if [[ ${1-} == -h || ${1-} == --help ]]; then
  sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0"
  exit 0
fi
# All other options are those of a command, and follow its name.
if [[ ${1-} == -* && $1 != --bench && $1 != --version ]]; then
  echo "run.sh: unknown option $1 (see --help)" >&2
  exit 2
fi

# A tree that is configured already is left as it is; a new one is built without the tests and their packages.
configure_and_build() {
  [[ -e build/release/build.ninja ]] || cmake --preset release -DSPARSEWIRE_BUILD_TESTS=OFF
  cmake --build --preset release --target "$@"
}

# In a shell of its own, because the program shall see the caller's folder.
build() (
  cd "$root"
  source tools/packages.sh
  need_packages "${build_packages[@]}"
  mkdir -p build 2> /dev/null
  [[ -w build ]] || { echo "run.sh: cannot write $root/build; run the program there directly" >&2; exit 1; }
  [[ -e build/release/build.ninja ]] || echo "-- building, two minutes or so on two cores (tail -f $root/build/run.log shows it)" >&2
  if ! configure_and_build "$@" > build/run.log 2>&1 < /dev/null; then
    tail -n 100 build/run.log >&2
    echo "run.sh: the build failed (all of it in build/run.log)" >&2
    exit 1
  fi
)

program=$root/build/release/apps/sparsewire/sparsewire
if [[ ${1-} == --bench ]]; then
  shift
  build sparsewire_cli sparsewire_bench >&2
  exec "$root/build/release/bench/sparsewire_bench" --table "$@"
fi
build sparsewire_cli >&2
(($#)) || set -- compare
exec "$program" "$@"
