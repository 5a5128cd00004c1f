#!/bin/bash
# Whether names are written as .clang-tidy says (PascalCase types, snake_case functions, kConstant, member_).
#
#   tools/check_names.sh BUILD_DIR    a build folder of clang, with compile_commands.json: cmake --preset clang
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."

build=${1-build/clang}
[[ -e $build/compile_commands.json ]] || { echo "check_names: no $build/compile_commands.json: cmake --preset clang"; exit 1; }
find src apps -name '*.cc' -print0 |
  xargs -0 -P 2 -n 4 clang-tidy-14 -p "$build" --quiet --checks='-*,readability-identifier-naming' --warnings-as-errors='*'
