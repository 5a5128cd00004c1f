#!/bin/bash
# Installs a build and uses it as another project would: with find_package, with pkg-config, header by header, as a program.
#
#   CXX=g++ CXXFLAGS=... tests/install_test.sh BUILD_DIR     the flags that the library was built with
set -euo pipefail

build=$(realpath "$1")
sources=$(realpath "$(dirname "$0")")
work=$build/install_test
prefix=$work/prefix

limit=$(awk "BEGIN { print 240 * ${SPARSEWIRE_TEST_PATIENCE:-1} }")  # seconds: see patience.py

fail() {
  echo "install_test: $*"
  exit 1
}

# An installed copy must not depend on where it was installed to first.
rm -rf "$work"
cmake --install "$build" --prefix "$work/first" > /dev/null
mv "$work/first" "$prefix"

# The consumer and an example are those of 0.7.0: what was written for it must build against today's library.
echo "== written for 0.7.0"
(cd "$sources/.." && sha256sum --check --quiet tests/consumer_0_7_0.sha256) ||
  fail "these files are no longer those of 0.7.0: keep its files as tests/consumer_0_7_0 (git show e7f2230:FILE), and build both"

echo "== find_package"
cmake -S "$sources/consumer" -B "$work/consumer" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" \
  -DCMAKE_CXX_COMPILER="$CXX" -DCMAKE_CXX_FLAGS="$CXXFLAGS" > /dev/null
cmake --build "$work/consumer" > /dev/null
"$work/consumer/consumer" | tee "$work/output"
diff "$work/output" - << 'END' || fail "the consumer printed something else"
sent 1: -3
sent 4: 2
sent 2: 4.5
sent 5: -1.5
nothing lost
END

# Versions before 0.7 have other interfaces, and later ones may.
cat > "$work/wanted.cmake" << 'END'
include(${FILE})
message(STATUS "${PACKAGE_FIND_VERSION}: ${PACKAGE_VERSION_COMPATIBLE}")
END
for wanted in 0.6 0.7 1.0; do
  cmake -DFILE="$(find "$prefix" -name sparsewireConfigVersion.cmake)" -DPACKAGE_FIND_VERSION=$wanted \
    -DPACKAGE_FIND_VERSION_MAJOR=${wanted%.*} -P "$work/wanted.cmake"
done | diff - <(printf -- '-- %s\n' "0.6: FALSE" "0.7: TRUE" "1.0: FALSE") || fail "find_package() takes other versions than it should"

echo "== a transport of its own"
timeout "$limit" "$work/consumer/transport_test" --gtest_brief=1 || fail "a transport that another project wrote fails its tests: $?"
echo "== a sparsifier of its own"
timeout "$limit" "$work/consumer/sparsifier_test" --gtest_brief=1 || fail "a sparsifier that another project wrote fails its tests: $?"

# docs/guides/extending.md shows both whole.
shown() {  # the block of C++ on that page that has these words
  sed -n '/^```cpp$/,/^```$/p' "$sources/../docs/guides/extending.md" | awk -v words="$1" '/^```cpp$/ { block = ""; next }
    /^```$/ { if (index(block, words)) { printf "%s", block; exit } next } { block = block $0 "\n" }'
}
diff <(shown "class QueueTransport") "$sources/consumer/queue_transport.h" ||
  fail "docs/guides/extending.md shows another transport than tests/consumer/"
diff <(shown "class SteadyThreshold") "$sources/consumer/steady_threshold.h" ||
  fail "docs/guides/extending.md shows another sparsifier than tests/consumer/"

echo "== examples"
cmake -S "$sources/../examples" -B "$work/examples" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" \
  -DCMAKE_CXX_COMPILER="$CXX" -DCMAKE_CXX_FLAGS="$CXXFLAGS" > /dev/null
cmake --build "$work/examples" --target example_named_layers_bf16 > /dev/null  # the build has built them all
"$work/examples/named_layers_bf16" || fail "the example, built against the installed copy, failed"

echo "== pkg-config"
pc=$(find "$prefix" -name sparsewire.pc)
# It is installed on other machines, too: every path in it starts with ${pcfiledir} or ${prefix}.
if grep -nE '(^|[[:space:]=:,;"]|-[LI])/' "$pc"; then fail "sparsewire.pc holds an absolute path"; fi
PKG_CONFIG_PATH=$(dirname "$pc")
export PKG_CONFIG_PATH
read -r -a flags <<< "$CXXFLAGS $(pkg-config --cflags sparsewire)"
read -r -a libraries <<< "$(pkg-config --libs sparsewire)"
# Where CUDA's runtime is depends on the machine, so users say it, and we do.
cuda=$(sed -n 's/^CUDA_cudart_static_LIBRARY:.*=//p' "$build/CMakeCache.txt")
if [[ $cuda ]]; then libraries+=("-L$(dirname "$cuda")"); fi
# The C++ of the README, with what it leaves to the reader: each worker pulls the weights to its own number.
readme=$work/readme.cc
block() { sed -n '/^```cpp$/,/^```$/{/^```/d;p}' "$sources/../README.md"; }
{
  echo '#include <sparsewire/transport.h>'
  echo '#include <cmath>'
  echo '#include <vector>'
  block | grep '^#include'
  cat << 'END'
int main() {
  const std::vector<float> start(100, 1.0F);
  const int steps = 1500;
  const float lr = 0.1F;
  const auto compute_gradient = [](int rank, const std::vector<float>& weights, std::vector<float>& gradient) {
    for (std::size_t i = 0; i < weights.size(); ++i) gradient[i] = weights[i] - static_cast<float>(rank);
  };
  float last = 0;
END
  block | grep -v '^#include' | sed 's|^});$|  if (transport.rank() == 0) last = weights[99];\n});|'
  echo '  return std::abs(last - 3.5F) < 1.0F ? 0 : 1;  // the mean of 0 to 7'
  echo '}'
} > "$readme"
"$CXX" -std=c++20 "${flags[@]}" "$readme" -o "$work/readme" "${libraries[@]}"
"$work/readme" || fail "the C++ of the README does not train"
"$CXX" -std=c++20 "${flags[@]}" "$sources/consumer/main.cc" -o "$work/by_pkg_config" "${libraries[@]}"
LD_LIBRARY_PATH=$(dirname "$(dirname "$pc")") "$work/by_pkg_config" | diff "$work/output" - ||
  fail "built with pkg-config, the consumer printed something else"
# The consumer has no transport, so the linker has not looked for MPI yet.
"$CXX" -std=c++20 "${flags[@]}" -x c++ - -o "$work/with_transport" -x none "${libraries[@]}" << 'END'
#include <sparsewire/transport.h>
int main() { return sparsewire::has_mpi() ? 0 : 3; }
END
status=0
LD_LIBRARY_PATH=$(dirname "$(dirname "$pc")") "$work/with_transport" || status=$?
((status == 0 || status == 3)) || fail "built with pkg-config, a program with a transport does not run: $status"

echo "== headers"
diff <(cd "$sources/../include" && find . -name '*.h' | sort) <(cd "$prefix/include" && find . -name '*.h' | sort) ||
  fail "the installed headers are not those of include/"
for header in "$prefix"/include/sparsewire/{,support/,testing/}*.h; do
  "$CXX" -std=c++20 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -I "$prefix/include" -include "$header" -x c++ /dev/null ||
    fail "${header##*/} does not compile on its own"
done

echo "== program"
"$prefix/bin/sparsewire" list > /dev/null || fail "the installed program does not run"
# As docs/guides/extending.md says; that page shows the whole file.
"$CXX" -std=c++20 "${flags[@]}" -shared -fPIC "$sources/../examples/plugin.cc" -o "$work/libevery.so" "${libraries[@]}"
LD_LIBRARY_PATH=$(dirname "$(dirname "$pc")") "$prefix/bin/sparsewire" list --load "$work/libevery.so" > "$work/listed"
grep -q "^every " "$work/listed" || fail "a plugin that pkg-config has built cannot be loaded"
diff <(shown "SPARSEWIRE_PLUGIN(registrar)") <(sed -n '/^#include <sparsewire/,$p' "$sources/../examples/plugin.cc") ||
  fail "docs/guides/extending.md shows another plugin than examples/plugin.cc"
echo "all good"
