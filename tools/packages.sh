# shellcheck shell=bash disable=SC2034  # the lists are for whoever sources this
#
# The Debian packages that sparsewire is built and tested with, and how to get them. Sourced by run.sh and test.sh.

build_packages=(g++ cmake ninja-build libhwy-dev libcli11-dev libfmt-dev nlohmann-json3-dev libbenchmark-dev libopenmpi-dev
                zlib1g-dev)
test_packages=(chromium chromium-driver clang-14 clang-format-14 iproute2 libclang-rt-14-dev libgmock-dev
               libgtest-dev openmpi-bin pkg-config procps python3 python3-dev python3-selenium python3-venv)
all_packages=(clang-tidy-14)
site_packages=(doxygen git python3 python3-venv)

# need_packages PACKAGE...    installs those that are missing; silent, offline and without root when none is
need_packages() {
  if ! { command -v dpkg-query && command -v apt-get; } > /dev/null; then
    echo "-- not Debian, so nothing is installed; needed is what Debian 12 calls: $*"
    local tool
    for tool in cmake ninja c++; do
      command -v "$tool" > /dev/null || { echo "error: $tool is missing"; return 1; }
    done
    return 0
  fi

  local package missing=() as_root=()
  for package in "$@"; do
    if [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2> /dev/null) != installed ]]; then
      missing+=("$package")
    fi
  done
  ((${#missing[@]})) || return 0

  if ((EUID)); then
    command -v sudo > /dev/null || { echo "error: as root, run: apt-get install ${missing[*]}"; return 1; }
    as_root=(sudo)
  fi
  echo "-- installing ${missing[*]}"
  as_root+=(env DEBIAN_FRONTEND=noninteractive apt-get -qq)
  "${as_root[@]}" update < /dev/null &&
    "${as_root[@]}" install --no-install-recommends -y "${missing[@]}" < /dev/null > /dev/null
}
