#!/bin/bash
# How many lines of the engine the unit tests reach, folder by folder. build/coverage/missed.txt lists the others.
#
# The library is built by g++ with --coverage. The tests are not: they are linked from build/release where they are built already
# (SPARSEWIRE_TEST_OBJECTS names another such build), and do as much as under sanitizers. What runs in other processes does not
# count: MPI, TCP between processes, the program, Python. Nor does the laboratory.
#
#   tools/coverage.sh [JOBS]
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."

modules=(core kernels sparsify codec transport merge exchange worker)
folders=(core sparsify codec transport exchange device memory parts)  # of tests/unit; not deadlines, which mostly waits
objects=${SPARSEWIRE_TEST_OBJECTS-$PWD/build/release}
options=(-DCMAKE_BUILD_TYPE=Release "-DCMAKE_CXX_FLAGS=--coverage -DSPARSEWIRE_SLOW_BUILD" "-DCMAKE_CXX_FLAGS_RELEASE=-O1 -DNDEBUG"
         -DSPARSEWIRE_BUILD_TESTS=ON -DSPARSEWIRE_BUILD_APPS=OFF -DSPARSEWIRE_BUILD_BENCH=OFF -DSPARSEWIRE_MPI=OFF)
if [[ -d $objects/tests ]]; then options+=("-DSPARSEWIRE_TEST_OBJECTS=$objects"); fi
cmake -S . -B build/coverage -G Ninja "${options[@]}" > /dev/null
programs=()
for folder in "${folders[@]}"; do
  if [[ -d tests/unit/$folder ]]; then programs+=("${folder}_tests"); fi
done
cmake --build build/coverage -j "${1:-2}" --target "${programs[@]}" > /dev/null

find build/coverage -name '*.gcda' -delete
for program in "${programs[@]}"; do
  log=build/coverage/$program.log
  "build/coverage/tests/$program" --gtest_brief=1 > "$log" 2>&1 || { echo "coverage.sh: $program failed: see $log" >&2; exit 1; }
done
python3 - "${modules[@]}" << 'END'
import collections, json, os, subprocess, sys

root = os.getcwd()
lines = collections.defaultdict(dict)  # of each file: how often a line was reached, in any copy of it
for folder, _, names in os.walk("build/coverage"):
    data = [name for name in names if name.endswith(".gcda")]
    if not data:
        continue
    said = subprocess.run(["gcov", "--json-format", "--stdout", *data], cwd=folder, capture_output=True, text=True, check=True)
    for one in map(json.loads, said.stdout.splitlines()):
        for file in one["files"]:
            name = os.path.relpath(os.path.join(one["current_working_directory"], file["file"]), root)
            for line in file["lines"]:
                number, count = line["line_number"], line["count"]
                lines[name][number] = max(count, lines[name].get(number, 0))
everything = [0, 0]
with open("build/coverage/missed.txt", "w") as missed:
    for module in sys.argv[1:]:
        reached = total = 0
        for name in sorted(name for name in lines if name.startswith(f"src/{module}/")):
            counts = lines[name]
            total += len(counts)
            reached += sum(count > 0 for count in counts.values())
            missed.writelines(f"{name}:{number}\n" for number, count in sorted(counts.items()) if count == 0)
        if total:
            print(f"{module:10} {100 * reached / total:5.1f} %  of {total:6,} lines")
            everything[0] += reached
            everything[1] += total
print(f"{'all':10} {100 * everything[0] / everything[1]:5.1f} %  of {everything[1]:6,} lines")
END
