#!/bin/bash
# A rank that is killed, one that never comes, and one that leaves: the job ends, not well, says why, and leaves no
# process behind. One that works on for longer than the deadline after its last call is no reason to fail.
#
#   tests/transport/lost_test.sh MPIRUN MPI_PROGRAM
set -uo pipefail
mpirun=$1 program=$2
mark=lost_test_$$  # an argument that nobody else's process has

fail() {
  echo "lost_test: $*"
  exit 1
}

# lose HOW RANKS WORDS    WORDS: what must be in the output
lose() {
  local output status
  echo "== $1, $2 ranks"
  output=$(timeout --kill-after=5 120 "$mpirun" -n "$2" "$program" "$1" 0 "$mark" 2>&1 < /dev/null)
  status=$?
  echo "$output"
  ((status != 0)) || fail "the job returned 0"
  ((status != 124)) || fail "the job did not end"
  grep -q "$3" <<< "$output" || fail "nothing about '$3'"
  # mpirun may return a little earlier than what it killed has gone.
  for ((i = 0; i < 100; ++i)); do
    pgrep -f "$mark\$" > /dev/null || return 0
    sleep 0.1
  done
  fail "still there: $(pgrep -af "$mark\$")"
}

lose killed 2 "signal 9"
lose killed 4 "signal 9"
lose stuck 2 "rank 1 did not come within 1000 ms"
lose stuck 4 "rank 3 did not come within 1000 ms"
lose exits 3 "rank 2 has ended"
echo "== busy, 3 ranks"
timeout --kill-after=5 120 "$mpirun" -n 3 "$program" busy 0 "$mark" < /dev/null || fail "a busy end is no failure: $?"
