#include "codec/packed.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "codec/blocks.h"
#include "codec/fields.h"
#include "kernels/entries.h"
#include "kernels/unpack.h"

namespace sparsewire {
namespace {

constexpr int kLeastParameter = 1;  // for the sign, which no parameter of 0 could make shorter
constexpr std::size_t kPackedHead = 1 + 4;
constexpr std::uint32_t kMostNumber = 0xFFFFFFFF;

using kernels::Fold;

// Codes of kBits bits, as a magnitude and a sign.
template <int kBits>
struct Codes {
  static constexpr int kWidth = kBits;
  static constexpr bool kAreFloats = kBits >= 16;

  static std::uint32_t get(const std::byte* codes, std::size_t i) noexcept {
    if constexpr (kBits == 32) return read_field<std::uint32_t>(codes + 4 * i);
    if constexpr (kBits == 16) return read_field<std::uint16_t>(codes + 2 * i);
    if constexpr (kBits <= 8) return code_at<kBits>(codes, i);
  }
  static std::uint32_t minus(std::uint32_t code) noexcept { return code >> (kBits - 1); }
  static std::uint32_t magnitude(std::uint32_t code) noexcept {
    if constexpr (kAreFloats) {
      return code & ((1U << (kBits - 1)) - 1);
    } else {
      const std::uint32_t negative = 0 - minus(code);
      return ((code ^ negative) - negative) & ((1U << kBits) - 1);
    }
  }
};

// Calls visit(Codes<...>()) for the codes of a format.
template <class Visit>
auto with_codes(const ValueFormat& format, Visit&& visit) {
  switch (static_cast<int>(format.bits)) {
    case 32:
      return visit(Codes<32>());
    case 16:
      return visit(Codes<16>());
    case 8:
      return visit(Codes<8>());
    default:
      return visit(Codes<4>());
  }
}

// The largest magnitude that a code has.
std::uint32_t most_magnitude(const ValueFormat& format) noexcept {
  return (std::uint32_t{1} << (static_cast<int>(format.bits) - 1)) - 1;
}

using Range = kernels::MagnitudeRange;

template <int kBits>
constexpr auto kFloatCodes = kBits == 32 ? kernels::FloatCodes::of_32_bits : kernels::FloatCodes::of_16_bits;

template <class C>
Range range_of(const std::byte* codes, std::size_t count) noexcept {
  if constexpr (C::kAreFloats) return kernels::range_of(kFloatCodes<C::kWidth>, codes, count);
  Range range;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t magnitude = C::magnitude(C::get(codes, i));
    range.least = std::min(range.least, magnitude);
    range.most = std::max(range.most, magnitude);
  }
  return range;
}

struct Choice {
  Fold fold;
  NumberChoice numbers;
};

// The fold and the code that are best for a sample. Values above a threshold take fold 0 from the smallest magnitude;
// others, as sums of which some cancel, fold 1 from the middle.
template <class C>
Choice choose(const std::byte* codes, std::size_t count) noexcept {
  std::array<std::uint32_t, kMostNumberSample> sample;  // of codes
  std::size_t size = 0;
  kernels::number_sample(count).for_each([&](std::size_t i) { sample[size++] = C::get(codes, i); });
  const Range range = range_of<C>(codes, count);
  std::array<std::uint32_t, kMostNumberSample> numbers;
  const auto evaluate = [&](Fold fold) {
    for (std::size_t i = 0; i < size; ++i) numbers[i] = fold.number(C::magnitude(sample[i]), C::minus(sample[i]));
    return Choice{fold, choose_number_code(std::span(numbers).first(size), kLeastParameter)};
  };
  const Choice low = evaluate({.fold = 0, .reference = range.least});

  // Only if the smallest one is far from most others.
  constexpr double kFar = 2.5;  // deviations; of an exponential distribution it is 1.4
  double mean = 0;
  double deviation = 0;
  for (std::size_t i = 0; i < size; ++i) mean += C::magnitude(sample[i]);
  mean /= static_cast<double>(size);
  for (std::size_t i = 0; i < size; ++i) deviation += std::abs(C::magnitude(sample[i]) - mean);
  deviation /= static_cast<double>(size);
  if (mean - range.least <= kFar * deviation || range.most - range.least >= 1U << 30) return low;
  const auto middle = numbers.begin() + static_cast<std::ptrdiff_t>(size / 2);
  for (std::size_t i = 0; i < size; ++i) numbers[i] = C::magnitude(sample[i]);
  std::nth_element(numbers.begin(), middle, numbers.begin() + static_cast<std::ptrdiff_t>(size));
  const Choice folded = evaluate({.fold = 1, .reference = *middle});
  return folded.numbers.bits < low.numbers.bits ? folded : low;
}

// The numbers of the codes from number `begin` on.
template <class C>
void fold_piece(Fold fold, const std::byte* codes, std::size_t begin, std::span<std::uint32_t> numbers) noexcept {
  if constexpr (C::kAreFloats) {
    return kernels::fold_codes(kFloatCodes<C::kWidth>, fold, codes + C::kWidth / 8 * begin, numbers);
  }
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const std::uint32_t code = C::get(codes, begin + i);
    numbers[i] = fold.number(C::magnitude(code), C::minus(code));
  }
}

template <class C>
std::optional<std::size_t> pack(std::size_t count, Bytes scales, Bytes plain, Buffer<std::byte>& out) {
  const std::byte* const codes = plain.data() + scales.size();
  const std::size_t head = sizeof(std::uint32_t) + scales.size() + kPackedHead;
  const Choice choice = choose<C>(codes, count);
  const double expected = static_cast<double>(head) + choice.numbers.bits / 8 * static_cast<double>(count);
  if (expected > 1.01 * static_cast<double>(plain.size())) return std::nullopt;
  const Fold fold = choice.fold;
  const auto size = write_number_section(
      choice.numbers.code, count, head, plain.size() - 1, out,
      [&](std::size_t begin, std::span<std::uint32_t> numbers) { fold_piece<C>(fold, codes, begin, numbers); });
  if (!size || *size - sizeof(std::uint32_t) > kMostNumber) return std::nullopt;
  std::byte* at = out.data();
  write_field(at, static_cast<std::uint32_t>(*size - sizeof(std::uint32_t)));
  at = std::copy(scales.begin(), scales.end(), at);
  write_field(at, fold.fold);
  write_field(at, fold.reference);
  return size;
}

// The values of numbers that share a scale, of which the first is the value number `begin`.
bool unpack_piece(const ValueFormat& format, const PackedValues& packed, std::size_t begin,
                  std::span<const std::uint32_t> numbers, float* values) {
  const Fold fold{packed.fold, packed.reference};
  switch (format.packing) {
    case Packing::none:
      return false;
    case Packing::f32:
      return kernels::unpack_f32(fold, numbers, values);
    case Packing::f16:
      return kernels::unpack_f16(fold, numbers, values);
    case Packing::bf16:
      return kernels::unpack_bf16(fold, numbers, values);
    case Packing::integers:
      break;
  }
  const auto scale = read_field<float>(packed.scales.data() + (1 + begin / block_of(packed)) * kScaleSize);
  const std::uint32_t most = most_magnitude(format);
  return is_scale(scale, static_cast<float>(most)) && kernels::unpack_integers(most, scale, fold, numbers, values);
}

}  // namespace

std::optional<std::size_t> pack_values(const ValueFormat& format, std::size_t count, std::size_t block, Bytes plain,
                                       Buffer<std::byte>& out) {
  if (format.packing == Packing::none || count == 0) return std::nullopt;
  const std::size_t scales = format.has_blocks ? (1 + blocks_in(count, block)) * kScaleSize : 0;
  return with_codes(format, [&](auto codes) { return pack<decltype(codes)>(count, plain.first(scales), plain, out); });
}

std::optional<PackedValues> parse_packed(const ValueFormat& format, std::size_t count, Bytes rest) {
  if (rest.size() < sizeof(std::uint32_t)) return std::nullopt;
  const std::size_t bytes = read_field<std::uint32_t>(rest.data());
  if (bytes > rest.size() - sizeof(std::uint32_t)) return std::nullopt;
  PackedValues packed;
  packed.section = rest.first(sizeof(std::uint32_t) + bytes);
  Bytes left = packed.section.subspan(sizeof(std::uint32_t));
  if (format.has_blocks) {
    if (left.size() < kScaleSize) return std::nullopt;
    const std::size_t block = read_field<std::uint32_t>(left.data());
    if (block < kLeastBlock || block > kMostBlock) return std::nullopt;
    const std::size_t size = (1 + blocks_in(count, block)) * kScaleSize;
    if (size > left.size()) return std::nullopt;
    packed.scales = left.first(size);
    left = left.subspan(size);
  }
  if (left.size() < kPackedHead) return std::nullopt;
  const std::byte* at = left.data();
  packed.fold = next_field<std::uint8_t>(at);
  packed.reference = next_field<std::uint32_t>(at);
  if (packed.fold > 1 || packed.reference > most_magnitude(format)) return std::nullopt;
  const Bytes numbers = left.subspan(kPackedHead);
  if (!parse_numbers(numbers, count, kLeastParameter, packed.code, packed.numbers)) return std::nullopt;
  if ((count + 7) / 8 > packed.numbers.rests.bytes.size()) return std::nullopt;
  return packed;
}

std::size_t block_of(const PackedValues& packed) noexcept {
  return packed.scales.empty() ? 0 : read_field<std::uint32_t>(packed.scales.data());
}

bool unpack_values(const ValueFormat& format, PackedValues packed, std::span<float> values) {
  std::uint32_t numbers[kNumberPiece];
  const std::size_t block = block_of(packed);
  for (std::size_t begin = 0; begin < values.size(); begin += kNumberPiece) {
    const std::size_t end = std::min(begin + kNumberPiece, values.size());
    const std::span<std::uint32_t> piece(numbers, end - begin);
    if (!kernels::read_numbers(packed.code, packed.numbers, piece)) return false;
    for (std::size_t from = begin; from < end;) {  // as many at a time as share a scale
      const std::size_t to = block == 0 ? end : std::min(end, (from / block + 1) * block);
      if (!unpack_piece(format, packed, from, piece.subspan(from - begin, to - from), &values[from])) return false;
      from = to;
    }
  }
  return packed.numbers.is_finished();
}

}  // namespace sparsewire
