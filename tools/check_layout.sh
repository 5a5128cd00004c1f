#!/bin/bash
# Whether all C++ and JavaScript files are laid out as clang-format 14 does it (.clang-format). `--fix` lays them out so.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."

command -v clang-format-14 > /dev/null || { echo "check_layout: clang-format-14 is missing (Debian: clang-format-14)"; exit 1; }
mode=(--dry-run -Werror)
if [[ ${1-} == --fix ]]; then mode=(-i); fi
find bench examples fuzz include lab python src tests '(' -name '*.cc' -o -name '*.h' -o -name '*.js' ')' -print0 |
  xargs -0 -P 2 -n 40 clang-format-14 "${mode[@]}"
