#!/bin/bash
# Builds and tests everything; on a bare Debian it installs what is missing first.
#
#   ./test.sh            release, dev (address and undefined sanitizers), tsan (thread sanitizer), fuzz (built by clang)
#   ./test.sh --quick    release only
#   ./test.sh --all      and the unit tests built by clang
#
# Stops at the first failure. The last line sums up all tests: "N passed, N failed".
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")"

presets=(release dev tsan fuzz)
for argument in "$@"; do
  case $argument in
    --quick) presets=(release) ;;
    --all) presets=(release dev tsan clang fuzz) ;;
    -h | --help) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0"; exit 0 ;;
    *) echo "test.sh: unknown option $argument (see --help)" >&2; exit 2 ;;
  esac
done

passed=0 failed=0 finished=false

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
  return 1
}

# Adds up ctest's "98% tests passed, 2 tests failed out of 100", of which a skipped one counts as neither.
count() {
  local log=$1 bad all skipped
  read -r bad all < <(sed -n 's/.*tests passed, \([0-9]*\) tests failed out of \([0-9]*\)$/\1 \2/p' "$log")
  skipped=$(grep -c '\*\*\*Skipped ' "$log" || true)
  passed=$((passed + all - bad - skipped)) failed=$((failed + bad))
}

sum_up() {
  # What did not build, or was interrupted, did not pass.
  if ! $finished && ((failed == 0)); then failed=1; fi
  echo "$passed passed, $failed failed"
}
trap sum_up EXIT

source tools/packages.sh
need_packages "${build_packages[@]}" "${test_packages[@]}"

mkdir -p build
for preset in "${presets[@]}"; do
  run_tests=(ctest --preset "$preset")
  # g++ 12's thread sanitizer cannot place its shadow memory where a new kernel randomises addresses widely.
  if [[ $preset == tsan ]] && setarch -R true 2> /dev/null; then
    run_tests=(setarch -R "${run_tests[@]}")
  fi
  step "$preset" configure cmake --preset "$preset"
  step "$preset" build cmake --build --preset "$preset"
  tests_ok=true
  step "$preset" test "${run_tests[@]}" || tests_ok=false
  count "build/$preset-test.log"
  $tests_ok
done
finished=true
