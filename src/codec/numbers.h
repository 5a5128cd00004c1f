// A section of numbers in blocks, which follow the size of the numbers from place to place. The index codec `adaptive`
// uses it for gaps, packed values for magnitudes.
//
//   numbers = linear:u8 parameter_bytes:u32 class_bytes:u32 parameters classes rests
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "core/buffer.h"
#include "kernels/numbers.h"
#include "kernels/stretches.h"
#include "sparsewire/codec.h"

namespace sparsewire {

using Bytes = std::span<const std::byte>;
using kernels::kMostNumberSample;

inline constexpr std::size_t kNumbersHead = 1 + 4 + 4;
inline constexpr std::size_t kNumberPiece = kernels::kMostNumbers;  // numbers that are computed at a time

// The best `linear` for a sample, and what the sample takes with it.
struct NumberChoice {
  kernels::NumberCode code;
  double bits = 0;  // of one number
};
// The sample: stretches of 32 neighbours. REQUIRES: at most kMostNumberSample numbers.
NumberChoice choose_number_code(std::span<const std::uint32_t> sample, int least_parameter) noexcept;

// Writes the section of `count` numbers to `out`, after `head` bytes that it leaves alone, and returns the size of
// both. Nothing if that is more than `limit` bytes, or too long for the format. `piece(begin, numbers)` computes the
// numbers from number `begin` on; it is called twice for each.
template <class Piece>
std::optional<std::size_t> write_number_section(const kernels::NumberCode& code, std::size_t count, std::size_t head,
                                                std::size_t limit, Buffer<std::byte>& out, Piece&& piece);

// The parts of a section. False if it is too short for them. `classes` has at least a bit for each number then.
bool parse_numbers(Bytes section, std::size_t count, int least_parameter, kernels::NumberCode& code,
                   kernels::NumberReader& reader) noexcept;

// How long the parts are that parse_numbers() found, or would find in a section of indices.
NumberBytes bytes_of(const kernels::NumberReader& reader) noexcept;
NumberBytes bytes_of_section(Bytes section) noexcept;

// How long the parts of a section become, in bytes.
struct NumberSizes {
  std::size_t parameters = 0;
  std::size_t classes = 0;
  std::size_t rests = 0;

  std::size_t all() const noexcept { return kNumbersHead + parameters + classes + rests; }
};
// Nothing if the format has no room for such lengths.
std::optional<NumberSizes> sizes_of(const kernels::NumberPlan& plan) noexcept;

// A BitWriter may write so many bytes after the end of its stream.
inline constexpr std::size_t kWriterMargin = 8;
// Writes the head of the section, and returns writers for its streams. The rests, which are the longest, are written in
// their place; the other two behind the section.
kernels::NumberWriter begin_numbers(const kernels::NumberCode& code, const NumberSizes& sizes, std::byte* out) noexcept;
// Copies the streams that are not in their place.
void finish_numbers(const NumberSizes& sizes, std::byte* out) noexcept;

template <class Piece>
std::optional<std::size_t> write_number_section(const kernels::NumberCode& code, std::size_t count, std::size_t head,
                                                std::size_t limit, Buffer<std::byte>& out, Piece&& piece) {
  const std::size_t blocks = (count + kernels::kNumberBlock - 1) / kernels::kNumberBlock;
  std::uint32_t numbers[kNumberPiece];
  const auto each_piece = [&](auto&& visit) {
    for (std::size_t begin = 0; begin < count; begin += kNumberPiece) {
      const std::span<std::uint32_t> part(numbers, std::min(kNumberPiece, count - begin));
      piece(begin, part);
      visit(part, begin / kernels::kNumberBlock);
    }
  };
  // The parameters wait after the head, and later behind all that is written.
  out.reserve_with_room(head + blocks);
  kernels::NumberPlan plan;
  auto* parameters = reinterpret_cast<std::uint8_t*>(out.data() + head);
  each_piece([&](auto part, std::size_t block) { kernels::plan_numbers(code, part, parameters + block, plan); });
  const auto sizes = sizes_of(plan);
  if (!sizes || head + sizes->all() > limit) return std::nullopt;

  const std::size_t end = head + sizes->all() + sizes->parameters + sizes->classes + 3 * kWriterMargin;
  if (end + blocks > out.capacity()) out.reserve(end + blocks + (end + blocks) / 4, head + blocks);
  parameters = reinterpret_cast<std::uint8_t*>(out.data() + end);
  std::memmove(parameters, out.data() + head, blocks);
  kernels::NumberWriter writer = begin_numbers(code, *sizes, out.data() + head);
  each_piece([&](auto part, std::size_t block) { kernels::write_numbers(code, part, parameters + block, writer); });
  finish_numbers(*sizes, out.data() + head);
  return head + sizes->all();
}

}  // namespace sparsewire
