#!/bin/bash
# Packs the programs that need a GPU, with the libraries that they are linked to, into a folder that runs on another
# machine: one with a GPU, but without Highway, fmt, a compiler or a network. Only the NVIDIA driver has to be there.
#
#   tools/gpu_pack.sh BUILD FOLDER     BUILD: configured with -DSPARSEWIRE_CUDA=ON, with cuda_tests and cuda_sift_bench built
#   FOLDER/run.sh                      there: runs the tests and the bench, and prints a summary, failures first
#   FOLDER/run.sh PROGRAM ...          there: runs one of the programs
set -euo pipefail
if [[ $# != 2 ]]; then
  sed -n '2,7s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
if [[ ! -x $1/tests/cuda_tests ]]; then
  echo "gpu_pack.sh: '$1/tests/cuda_tests' is not there: configure with -DSPARSEWIRE_CUDA=ON and build cuda_tests" >&2
  exit 2
fi
build=$1
folder=$2
mkdir -p "$folder/lib/std" "$folder/lib/glibc"
programs=()
for program in tests/cuda_tests lab/tests/cuda_replica_tests bench/cuda_sift_bench bench/cuda_bench; do
  if [[ -x $build/$program ]]; then programs+=("$build/$program"); fi
done
for program in "${programs[@]}"; do
  strip -o "$folder/$(basename "$program")" "$program"
  ldd "$program" | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | while read -r library; do
    case $(basename "$library") in
      libc.so* | libm.so* | libpthread.so* | libdl.so* | librt.so*) to=lib/glibc ;;  # for a system that has older ones
      libstdc++.so* | libgcc_s.so*) to=lib/std ;;
      *) to=lib ;;
    esac
    cp -L "$library" "$folder/$to/"
  done
done
cp -L "$(ldd "$build/tests/cuda_tests" | awk '/ld-linux/ {print $1}')" "$folder/lib/glibc/loader"

cat > "$folder/run.sh" <<'RUN'
#!/bin/bash
# Runs the tests and the bench, or the program that is named, with the libraries of this system where they are new enough.
cd "$(dirname "$0")" || exit 1
libraries=$PWD/lib
start=()
if ! LD_LIBRARY_PATH=$libraries ./cuda_tests --gtest_list_tests > /dev/null 2>&1; then
  libraries=$libraries:$PWD/lib/std
  if ! LD_LIBRARY_PATH=$libraries ./cuda_tests --gtest_list_tests > /dev/null 2>&1; then
    start=("$PWD/lib/glibc/loader" --library-path "$libraries:$PWD/lib/glibc:/usr/lib/x86_64-linux-gnu:/usr/lib64")
  fi
fi
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2> /dev/null
if [[ ${1:-} == cuda_* ]]; then
  program=$1
  shift
  LD_LIBRARY_PATH=$libraries exec "${start[@]}" "./$program" "$@"
fi
run() {  # name, seconds, program, arguments
  local name=$1 seconds=$2
  shift 2
  LD_LIBRARY_PATH=$libraries timeout -k 2 "$seconds" "${start[@]}" "$@" > "out.$name.txt" 2>&1
  local status=$?
  if [[ $status != 0 ]]; then echo "== $name: status $status"; fi
}
# In several processes, so that one that breaks the device leaves the others alone.
shards=8
for ((shard = 0; shard < shards; ++shard)); do
  GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$shard run "tests$shard" 60 ./cuda_tests --gtest_brief=1 "$@" &
done
[[ -x cuda_replica_tests ]] && run tests-replicas 60 ./cuda_replica_tests --gtest_brief=1
wait
grep -h -A14 -E 'Failure|exception|terminate|what\(\)' out.tests*.txt | cut -c1-400 | head -150
grep -h -E '^\[  FAILED .*ms\)' out.tests*.txt | cut -c1-200 | sort | head -60
grep -E '^\[  (PASSED|SKIPPED)' out.tests*.txt
if [[ -x cuda_sift_bench ]]; then
  for entries in 25000000 100000000; do run "bench$entries" 25 ./cuda_sift_bench $entries; done
  cat out.bench*.txt
fi
# Some of the tests under compute-sanitizer, which takes many times as long.
sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda*/bin/compute-sanitizer 2> /dev/null | head -1)
if [[ -n $sanitizer && ${#start[@]} == 0 ]]; then
  few='OnTheGpu.ABad*:OnTheGpu.AGuess*:*ByLayer*/topk_ratio_0_01:*ByLayer*/regtopk_ratio_0_05_q__1_dense_below_100'
  few=$few:'*TakesABad*/topk_k_3_chunk_64:*TakesABad*/topk_ratio_0_02_dense_below_100:*FeedbackTypeAndScope/topk_k_3_chunk_64'
  few=$few:'*TakesABad*/topk_ratio_0_05_chunk_4096:*TakesABad*/rtopk_ratio_0_02_r_3:*TakesABad*/regtopk_ratio_0_02_mu_2'
  few=$few:'*SumOfVelocities*:*SparseSums*:WorkerOnADevice.*:FrameOnADevice.*ShortModels:FrameOnADevice.Leaves*'
  for tool in memcheck racecheck initcheck; do
    for ((shard = 0; shard < 5; ++shard)); do
      GTEST_TOTAL_SHARDS=5 GTEST_SHARD_INDEX=$shard run "$tool$shard" 60 "$sanitizer" --tool $tool ./cuda_tests \
        --gtest_brief=1 --gtest_filter="$few" &
    done
  done
  wait
  for tool in memcheck racecheck initcheck; do
    grep -E 'SUMMARY|^\[  (PASSED|FAILED)' out.$tool*.txt | cut -c1-160
    # With two threads of the host racecheck may lose track of a launch, and counts that as a hazard.
    grep -h -A6 -E '========= (Invalid|Error|Race|Warning|Uninit|Internal|Program hit)' out.$tool*.txt | cut -c1-200 |
      head -25
  done
fi
RUN
chmod +x "$folder/run.sh"
