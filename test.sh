#!/bin/bash
# Builds and tests everything; on a bare Debian it installs what is missing first.
#
#   ./test.sh            layout of the source (clang-format), what the pages name, their results, then three builds: release
#                        (g++), dev (clang; address and undefined behaviour sanitizers, fuzz targets), tsan (clang; thread
#                        sanitizer)
#   ./test.sh --quick    layout, pages and the release build only
#   ./test.sh --all      also names (clang-tidy), the benches, the unit tests built by clang, the program and the examples
#                        under sanitizers, the laboratory on an installed copy, wheels of the Python package in
#                        environments of their own, the site, and longer runs of many tests
#
# A failure does not stop the rest. The end names what failed and where its output is; the last line adds up all test cases:
# "N passed, N failed, N skipped". Returns 1 if anything failed.
set -uo pipefail
cd "$(dirname "$(readlink -f "$0")")" || exit 1

presets=(release dev tsan)
all=false
for argument in "$@"; do
  case $argument in
    --quick) presets=(release) ;;
    --all) presets=(release dev-all tsan-all clang) all=true ;;
    -h | --help) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0"; exit 0 ;;
    *) echo "test.sh: unknown option $argument (see --help)" >&2; exit 2 ;;
  esac
done

passed=0 failed=0 skipped=0 finished=false building=
mkdir -p build
failures=build/failures.txt  # a line for each step that failed: a file, because some run in the background
: > "$failures"

# step PRESET WHAT COMMAND...    runs the command; its output is shown only when it fails
step() {
  local preset=$1 what=$2 log=build/$1-$2.log start=$SECONDS
  shift 2
  if "$@" > "$log" 2>&1 < /dev/null; then
    echo "-- $preset: $what, $((SECONDS - start)) s"
    return
  fi
  grep -vE '^ +Start +[0-9]+:| Passed +[0-9.]+ sec$' "$log" | tail -n 200
  echo "FAILED: $preset: $what (all of it in $log)"
  echo "$preset: $what (all of it in $log)" >> "$failures"
  return 1
}

# count PRESET WHAT    adds up the cases of a run of ctest: those of GoogleTest programs and pytest by what they print, other
# entries as one
count() {
  local numbers
  numbers=$(python3 tools/count_tests.py "build/$1-$2.log" "build/$1/Testing/Temporary/LastTest.log") || numbers="0 1 0"
  read -r good bad left_out <<< "$numbers"
  passed=$((passed + good)) failed=$((failed + bad)) skipped=$((skipped + left_out))
  # The names, from the list at the end of ctest's output.
  sed -nE 's/^[[:space:]]+[0-9]+ - (.+ \(.+\)).*$/    \1/p' "build/$1-$2.log" | grep -vF '(Skipped)' >> "$failures"
}

sum_up() {
  if [[ $building ]]; then kill -- "-$building" 2> /dev/null; fi
  $finished || echo "it did not come to its end" >> "$failures"
  if [[ -s $failures ]]; then
    echo "FAILED:"
    sed 's/^/  /' "$failures"
    ((failed)) || failed=1  # what did not build did not pass
  fi
  echo "$passed passed, $failed failed, $skipped skipped"
}
trap sum_up EXIT
trap 'exit 130' INT TERM

source tools/packages.sh
need_packages "${build_packages[@]}" "${test_packages[@]}" || exit 1
if $all; then
  export SPARSEWIRE_LONG_TESTS=1
  need_packages "${all_packages[@]}" || exit 1
fi

build() {
  local options=()
  # Where there is nvcc, the code for GPUs is compiled too, for one architecture. Its tests are skipped without a GPU.
  if [[ $1 == release ]]; then options=(-DSPARSEWIRE_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES=90-real); fi
  if [[ $1 == dev ]]; then options=("-DSPARSEWIRE_TEST_OBJECTS=$PWD/build/release"); fi  # the tests are compiled already
  step "$1" configure cmake --preset "$1" "${options[@]}" && step "$1" build cmake --build --preset "$1"
}

build_python() {
  # libtorch is the one inside PyTorch.
  local torch
  torch=$(build/venv/bin/python -c 'import torch; print(torch.utils.cmake_prefix_path)') &&
    step release configure-python cmake --preset release -DSPARSEWIRE_PYTHON=ON "-DPython_EXECUTABLE=$PWD/build/venv/bin/python" \
      -DSPARSEWIRE_TORCH=ON "-DTorch_DIR=$torch/Torch" &&
    step release build-python cmake --build --preset release
}

# run_ctest PRESET WHAT OPTION...
run_ctest() {
  local preset=$1 what=$2 command=(ctest --preset "$1")
  shift 2
  if $all && [[ $preset == release ]]; then command=(ctest --preset release-all); fi
  # The thread sanitizer cannot place its shadow memory where a new kernel randomises addresses widely.
  if [[ $preset == tsan* ]] && setarch -R true 2> /dev/null; then command=(setarch -R "${command[@]}"); fi
  step "$preset" "$what" "${command[@]}" "$@"
}

# The environment of the Python tests is made while the first preset is built.
step source layout tools/check_layout.sh
step source pages tools/check_links.py
step source results tools/results.py --check
(step python environment tools/python_environment.sh) > build/python.log 2>&1 &
environment=$!
build "${presets[0]}" && is_built=true || is_built=false
# Some tests mostly wait, so the other presets are built meanwhile, by what the tests leave of the processors.
others=("${presets[@]:1}")
if ((${#others[@]})); then
  rm -f build/built
  mkfifo build/built
  exec 3<> build/built
  set -m  # a process group of its own, which sum_up can end
  (renice -n 19 "$BASHPID" > /dev/null; for preset in "${others[@]}"; do build "$preset" && echo true >&3 || echo false >&3; done) &
  building=$!
  set +m
fi
without_python=
if ! wait "$environment"; then
  sed -i '/^python: environment/d' "$failures"
  without_python="the tests of the package and of deep networks were skipped, because the environment cannot be made"
  echo "-- python: $without_python:"
  tail -n 5 build/python-environment.log
  skipped=$((skipped + 1))
elif $is_built; then
  build_python
fi
built=()
for preset in "${presets[@]}"; do
  if [[ $preset != "${presets[0]}" ]]; then read -r is_built <&3; fi
  $is_built || continue
  built+=("$preset")
  run_ctest "$preset" test --label-exclude '^waits$'
  count "$preset" test
done
building=
# What waits for deadlines hardly computes: that of all presets at a time.
waiting=()
for preset in "${built[@]}"; do
  run_ctest "$preset" deadlines --label-regex '^waits$' --parallel 60 &
  waiting+=($!)
done
wait "${waiting[@]}"
for preset in "${built[@]}"; do count "$preset" deadlines; done
if $all; then
  step release benches cmake --build --preset release --target benches
  step release laboratory tools/check_lab.sh build/release
  step source names tools/check_names.sh build/clang
  if [[ ! $without_python ]]; then
    step python package tools/check_package.sh
    step python site tools/site.sh
  fi
fi
finished=true
if [[ $without_python ]]; then echo "-- python: $without_python"; fi
[[ ! -s $failures ]]
