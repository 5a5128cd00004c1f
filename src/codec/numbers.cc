#include "codec/numbers.h"

#include <array>
#include <limits>

#include "codec/fields.h"

namespace sparsewire {

NumberChoice choose_number_code(std::span<const std::uint32_t> sample, int least_parameter) noexcept {
  // 63: Rice's code, for random supports and for values above a threshold. The smaller it is, the less do large numbers
  // among small ones cost, and the more all others.
  constexpr std::array kLinear = {63, 4, 2, 1};
  std::array<std::uint8_t, kMostNumberSample / kernels::kNumberBlock> parameters;
  NumberChoice best{.code = {.linear = kLinear[0], .least_parameter = least_parameter}};
  std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
  for (const int linear : kLinear) {
    const kernels::NumberCode code{.linear = linear, .least_parameter = least_parameter};
    kernels::NumberPlan plan;
    kernels::plan_numbers(code, sample, parameters.data(), plan);
    if (plan.bits() >= least) continue;
    least = plan.bits();
    best.code = code;
  }
  best.bits = sample.empty() ? 0 : static_cast<double>(least) / static_cast<double>(sample.size());
  return best;
}

std::optional<NumberSizes> sizes_of(const kernels::NumberPlan& plan) noexcept {
  const NumberSizes sizes{.parameters = static_cast<std::size_t>((plan.parameter_bits + 7) / 8),
                          .classes = static_cast<std::size_t>((plan.class_bits + 7) / 8),
                          .rests = static_cast<std::size_t>((plan.rest_bits + 7) / 8)};
  constexpr std::size_t kMost = std::numeric_limits<std::uint32_t>::max();
  if (sizes.parameters > kMost || sizes.classes > kMost) return std::nullopt;
  return sizes;
}

kernels::NumberWriter begin_numbers(const kernels::NumberCode& code, const NumberSizes& sizes,
                                    std::byte* out) noexcept {
  write_field(out, static_cast<std::uint8_t>(code.linear));
  write_field(out, static_cast<std::uint32_t>(sizes.parameters));
  write_field(out, static_cast<std::uint32_t>(sizes.classes));
  std::byte* const rests = out + sizes.parameters + sizes.classes;
  std::byte* const parameters = rests + sizes.rests + kWriterMargin;
  return {.parameters = kernels::BitWriter(parameters),
          .classes = kernels::BitWriter(parameters + sizes.parameters + kWriterMargin),
          .rests = kernels::BitWriter(rests)};
}

void finish_numbers(const NumberSizes& sizes, std::byte* out) noexcept {
  const std::byte* const parameters = out + sizes.all() + kWriterMargin;
  out += kNumbersHead;
  std::memcpy(out, parameters, sizes.parameters);
  std::memcpy(out + sizes.parameters, parameters + sizes.parameters + kWriterMargin, sizes.classes);
}

bool parse_numbers(Bytes section, std::size_t count, int least_parameter, kernels::NumberCode& code,
                   kernels::NumberReader& reader) noexcept {
  if (section.size() < kNumbersHead) return false;
  const std::byte* at = section.data();
  const auto linear = next_field<std::uint8_t>(at);
  const std::size_t parameters = next_field<std::uint32_t>(at);
  const std::size_t classes = next_field<std::uint32_t>(at);
  const std::size_t left = section.size() - kNumbersHead;
  if (linear > kernels::kMostLinear || parameters > left || classes > left - parameters || (count + 7) / 8 > classes) {
    return false;
  }
  code = {.linear = linear, .least_parameter = least_parameter};
  const Bytes streams = section.subspan(kNumbersHead);
  reader.parameters.bytes = streams.first(parameters);
  reader.classes.bytes = streams.subspan(parameters, classes);
  reader.rests.bytes = streams.subspan(parameters + classes);
  return true;
}

NumberBytes bytes_of(const kernels::NumberReader& reader) noexcept {
  return {.parameters = reader.parameters.bytes.size(),
          .classes = reader.classes.bytes.size(),
          .rests = reader.rests.bytes.size()};
}

NumberBytes bytes_of_section(Bytes section) noexcept {
  kernels::NumberCode code;
  kernels::NumberReader reader;
  return parse_numbers(section, 0, 0, code, reader) ? bytes_of(reader) : NumberBytes();
}

}  // namespace sparsewire
