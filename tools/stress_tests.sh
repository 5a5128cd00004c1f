#!/bin/bash
# Runs what depends on deadlines again and again, four at a time beside four busy loops, and counts what fails or hangs.
#
#   tools/stress_tests.sh ROUNDS                on virtual time: a round is the tests of transport_tests with deadlines of
#                                               threads, and those of exchange_tests in which a rank fails
#   tools/stress_tests.sh --processes ROUNDS    in real time: a round is deadlines_tests (TCP), and of ctest MPI, netlab, the
#                                               hook and other Python processes, and trainings that are killed
#
#   -h, --help    this text
#
# It takes what is built in build/release, the Python tests only if they are part of that. 200 rounds on virtual time take
# about a quarter of an hour on 2 cores, a round of processes some minutes. SPARSEWIRE_TEST_PATIENCE scales the limit of a
# run, 1000 s. The outputs of runs that failed stay in build/stress. Returns 1 if one failed or hung.
set -uo pipefail
cd "$(dirname "$(readlink -f "$0")")/.." || exit 1

die() {
  echo "stress_tests: $1" >&2
  exit 2
}

processes=false rounds=''
for argument in "$@"; do
  case $argument in
    --processes) processes=true ;;
    -h | --help) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0"; exit 0 ;;
    *) [[ $argument =~ ^[1-9][0-9]*$ && ! $rounds ]] || die "'$argument' is no option and no number of rounds (see --help)"
       rounds=$argument ;;
  esac
done
[[ $rounds ]] || die "how many rounds? (see --help)"

tests=build/release/tests logs=build/stress
[[ -x $tests/transport_tests ]] || die "build the preset release first"
limit=$(PYTHONPATH=tests python3 -Bc 'from patience import *; print(f"{patient(1000):.0f}")') || exit 1
rm -rf "$logs"
mkdir -p "$logs"
printf 'subdirs("%s")\n' "$PWD/$tests" > "$logs/CTestTestfile.cmake"

names=(transport exchange)
if $processes; then
  mapfile -t names < <(ctest --test-dir "$logs" -N -R '^(Mpi\.[^E]|Netlab|Python\.(hook|local_steps|fsdp|silent|processes|threads)$|Train\.(Killed|Stopped)$)' |
    sed -n 's/^ *Test *#[0-9]*: //p')
  names+=(tcp)
fi
echo "a round: ${names[*]}"

# start NAME ROUND
start() {
  local log=$logs/$1.$2.log folder=$logs/$1.$2 command
  case $1 in
    transport) command=("$tests/transport_tests" '--gtest_filter=ThreadTransport*:*OfThreads.*:*OfTests.*:Watch.*') ;;
    exchange) command=("$tests/exchange_tests" '--gtest_filter=*DamagedMessages*:*FailsOnAllRanks*:*OnOneRankFails*') ;;
    tcp) command=("$tests/deadlines_tests" "--gtest_filter=TcpProcesses.*:TcpSetup*:*Late*:*IsNotBlamed*:*LongerThan*") ;;
    *) mkdir "$folder"  # ctest writes there
       cp "$logs/CTestTestfile.cmake" "$folder"
       command=(ctest --test-dir "$folder" --output-on-failure -R "^${1//./\\.}\$") ;;
  esac
  # `wait -n` of bash 5.2 does not see every job that died from a signal: the shell in between makes an exit code of it.
  timeout --kill-after=60 "$limit" bash -c '"$@"; exit $?' stress "${command[@]}" > "$log" 2>&1 < /dev/null &
  running[$!]=$log
}

# Waits for one of them.
finish() {
  local ended status=0 log
  wait -n -p ended "${!running[@]}" || status=$?
  log=${running[$ended]}
  unset "running[$ended]"
  runs=$((runs + 1))
  if ((status == 0)); then
    rm "$log"
  elif ((status == 124 || status == 137)) || grep -qE 'this test hangs|\*\*\*Timeout|run_mpi: the job did not end' "$log"; then
    hung=$((hung + 1))
    echo "hung: $log"
  else
    failed=$((failed + 1))
    echo "failed: $log"
  fi
  rm -rf "${log%.log}"
}

declare -A running=()  # the output of each, by its process
busy=() runs=0 failed=0 hung=0
trap 'kill "${busy[@]}" "${!running[@]}" 2> /dev/null; wait' EXIT
trap 'exit 130' INT TERM
for ((i = 0; i < 4; ++i)); do
  while :; do :; done &
  busy+=($!)
done
for ((round = 1; round <= rounds; ++round)); do
  for name in "${names[@]}"; do
    if ((${#running[@]} == 4)); then finish; fi
    start "$name" "$round"
  done
done
while ((${#running[@]})); do finish; done
echo "$runs runs, $failed failed, $hung hung"
((failed + hung == 0))
