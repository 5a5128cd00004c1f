#!/bin/bash
# Whether names are written as .clang-tidy says (PascalCase types, snake_case functions, kConstant, member_).
#
#   tools/check_names.sh BUILD_DIR    a build folder of clang, with compile_commands.json: cmake --preset clang
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."

build=${1-build/clang}
[[ -e $build/compile_commands.json ]] || { echo "check_names: no $build/compile_commands.json: cmake --preset clang"; exit 1; }
# What that build compiles of src/ and lab/: several files are one unit there, and would not parse each for itself.
python3 - "$build" << 'END' | xargs -0 -P 2 -n 2 clang-tidy-14 -p "$build" --quiet --checks='-*,readability-identifier-naming' \
  --warnings-as-errors='*'
import json, os, sys
build = os.path.abspath(sys.argv[1])
others = tuple(os.path.join(root, folder) + "/" for root in (build, os.getcwd()) for folder in ("tests", "lab/tests", "bench", "fuzz", "examples"))
with open(os.path.join(build, "compile_commands.json")) as file:
    found = sorted({one["file"] for one in json.load(file)})
print(*(one for one in found if not one.startswith(others)), sep="\0", end="")
END
