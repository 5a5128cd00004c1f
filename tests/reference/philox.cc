#include "reference/philox.h"

namespace sparsewire::reference {
namespace {

std::uint32_t low(std::uint64_t x) { return static_cast<std::uint32_t>(x & 0xffffffffU); }
std::uint32_t high(std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32U); }

}  // namespace

Counter philox(Counter counter, Key key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{0xD2511F53U} * counter[0];
    const std::uint64_t product1 = std::uint64_t{0xCD9E8D57U} * counter[2];
    counter = {high(product1) ^ counter[1] ^ key[0], low(product1), high(product0) ^ counter[3] ^ key[1],
               low(product0)};
    key = {low(std::uint64_t{key[0]} + 0x9E3779B9U), low(std::uint64_t{key[1]} + 0xBB67AE85U)};
  }
  return counter;
}

Counter Stream::block(std::uint32_t word0) const {
  const std::uint32_t last = (role << 24U) | (high(step) & 0xffffffU);
  return philox({word0, low(step), rank, last}, {low(seed), high(seed)});
}

}  // namespace sparsewire::reference
