// Fuzzes Sifter::load(). Any bytes give a UsageError and change nothing, or a sifter that can continue.
//
// The first byte chooses the sifter. The checksums would stop almost every mutation, so the bytes are tried a second
// time with correct ones, also in the state of the sparsifier inside. The corpus has states of versions 1 and 2.
#include <vector>

#include "reference/state.h"
#include "require.h"
#include "sifters.h"
#include "sparsewire/errors.h"

namespace sparsewire {
namespace {

void step(Sifter& sifter) {
  std::vector<float> gradient(sifter.layout().dim());
  for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] = static_cast<float>(i) - 9.5F;
  SparseVector sent;
  sifter.sift(Gradient(gradient), sent, 0.5F);
  require(sent.is_valid() && sent.dim == gradient.size(), "what is sent is valid");
  sifter.observe(sent, sent.values);
  if (const auto vote = sifter.vote()) sifter.set_vote(*vote * 2);
}

void check(std::size_t number, std::span<const std::byte> bytes) {
  Sifter sifter = fuzzed_sifter(number);
  step(sifter);
  const std::vector<std::byte> before = sifter.save();
  try {
    sifter.load(bytes);
  } catch (const UsageError&) {
    require(sifter.save() == before, "refused: nothing has changed");
    return;
  }
  const std::vector<std::byte> saved = sifter.save();
  Sifter other = fuzzed_sifter(number);
  other.load(saved);
  require(other.save() == saved, "load, then save is identity");
  try {
    for (int i = 0; i < 3; ++i) step(sifter);
  } catch (const BadGradient&) {  // the sum of memory and gradient can overflow
  }
}

}  // namespace
}  // namespace sparsewire

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sparsewire;
  if (size == 0) return 0;
  const auto bytes = std::as_bytes(std::span(data, size)).subspan(1);
  check(data[0], bytes);
  check(data[0], reference::with_checksums({bytes.begin(), bytes.end()}));
  return 0;
}
