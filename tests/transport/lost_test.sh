#!/bin/bash
# Ranks that are killed, that never respond, or that exit early: the job fails, says why, and leaves no process behind. A rank
# that works for longer than the deadline after its last call is no failure.
#
#   tests/transport/lost_test.sh PYTHON MPIRUN MPI_PROGRAM HOW
set -uo pipefail
# run_mpi.py sets the time limit, and returns 125 if a process is left.
tests=$(dirname "$(dirname "$0")")
deadline=$(PYTHONPATH=$tests "$1" -Bc 'from patience import *; print(f"{1000 * DEADLINE_THAT_PASSES:.0f} ms")')
run_mpi=("$1" "$(dirname "$0")/run_mpi.py" 100 "$2")
program=$3

fail() {
  echo "lost_test: $*"
  exit 1
}

# expect_failure HOW RANKS WORDS...    WORDS: what must be in the output
expect_failure() {
  local output status words
  echo "== $1, $2 ranks"
  output=$("${run_mpi[@]}" -n "$2" "$program" "$1" 2>&1)
  status=$?
  echo "$output"
  ((status != 0)) || fail "the job returned 0"
  ((status != 124)) || fail "the job did not end"
  ((status != 125)) || fail "a process is left"
  for words in "${@:3}"; do grep -q "$words" <<< "$output" || fail "the output does not say '$words'"; done
}

case $4 in
  killed)
    expect_failure killed 2 "signal 9"
    expect_failure killed 4 "signal 9"
    ;;
  stuck) expect_failure stuck 4 "rank 3 did not respond within $deadline" ;;
  absent)
    expect_failure absent 3 "not all ranks called make_mpi_transport within $deadline" "an earlier make_mpi_transport failed"
    ;;
  exits) expect_failure exits 3 "rank 2 has ended" ;;
  busy)
    echo "== busy, 3 ranks"
    "${run_mpi[@]}" -n 3 "$program" busy || fail "a rank that works after its last call is no failure: $?"
    ;;
  *) fail "'$4' is no way to be lost" ;;
esac
