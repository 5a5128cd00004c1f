#include "data/md5.h"

#include <fmt/core.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

namespace sparsewire::train {
namespace {

constexpr std::size_t kBlock = 64;

using State = std::array<std::uint32_t, 4>;

std::uint32_t little_endian(const char* bytes) {
  std::uint32_t number = 0;
  for (int i = 3; i >= 0; --i) number = number << 8 | static_cast<std::uint8_t>(bytes[i]);
  return number;
}

// floor(2^32 * |sin(i + 1)|), as the RFC defines it; a double has bits to spare.
std::array<std::uint32_t, 64> make_sines() {
  std::array<std::uint32_t, 64> sines{};
  for (std::size_t i = 0; i < sines.size(); ++i) {
    sines[i] = static_cast<std::uint32_t>(std::floor(0x1p32 * std::abs(std::sin(static_cast<double>(i + 1)))));
  }
  return sines;
}

// One of the four rounds: 16 steps with the function `mix`, the word number `factor*i + offset`, and four rotations
// that take turns.
template <class Mix>
void add_round(const std::array<std::uint32_t, 16>& words, const std::uint32_t* sines, std::size_t factor,
               std::size_t offset, const std::array<int, 4>& rotations, State& state, Mix mix) {
  auto [a, b, c, d] = state;
  for (std::size_t i = 0; i < 16; ++i) {
    const std::uint32_t sum = a + mix(b, c, d) + words[(factor * i + offset) % 16] + sines[i];
    a = d;
    d = c;
    c = b;
    b += std::rotl(sum, rotations[i % 4]);
  }
  state = {a, b, c, d};
}

void add_block(const char* block, const std::array<std::uint32_t, 64>& sines, State& state) {
  using Word = std::uint32_t;
  std::array<Word, 16> words{};
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = little_endian(block + 4 * i);
  const State before = state;
  const Word* sine = sines.data();
  add_round(words, sine, 1, 0, {7, 12, 17, 22}, state, [](Word b, Word c, Word d) { return (b & c) | (~b & d); });
  add_round(words, sine + 16, 5, 1, {5, 9, 14, 20}, state, [](Word b, Word c, Word d) { return (b & d) | (c & ~d); });
  add_round(words, sine + 32, 3, 5, {4, 11, 16, 23}, state, [](Word b, Word c, Word d) { return b ^ c ^ d; });
  add_round(words, sine + 48, 7, 0, {6, 10, 15, 21}, state, [](Word b, Word c, Word d) { return c ^ (b | ~d); });
  for (std::size_t i = 0; i < state.size(); ++i) state[i] += before[i];
}

}  // namespace

std::string md5(std::string_view bytes) {
  const std::array<std::uint32_t, 64> sines = make_sines();
  State state{0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476};
  const std::size_t whole = bytes.size() / kBlock * kBlock;
  for (std::size_t at = 0; at < whole; at += kBlock) add_block(bytes.data() + at, sines, state);
  // The rest, a bit that is 1, zeros, and the length in bits.
  std::string end(bytes.substr(whole));
  end += '\x80';
  end.resize((end.size() + 8 + kBlock - 1) / kBlock * kBlock - 8);
  const std::uint64_t bits = 8 * std::uint64_t{bytes.size()};
  for (int i = 0; i < 8; ++i) end += static_cast<char>(bits >> (8 * i) & 0xFF);
  for (std::size_t at = 0; at < end.size(); at += kBlock) add_block(end.data() + at, sines, state);
  std::string text;
  for (const std::uint32_t word : state) text += fmt::format("{:08x}", __builtin_bswap32(word));
  return text;
}

}  // namespace sparsewire::train
