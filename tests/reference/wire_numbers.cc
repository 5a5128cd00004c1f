#include "reference/wire_numbers.h"

#include <algorithm>

namespace sparsewire::reference {
namespace {

int bits_for(std::uint64_t divisor) {
  int bits = 1;
  while ((std::uint64_t{1} << bits) < divisor) ++bits;
  return bits;
}

constexpr std::uint64_t kNumberBlock = 32;
constexpr std::size_t kNumberGroup = 4;  // blocks

void put_unary(BitWriter& out, std::uint64_t zeros) {
  for (; zeros > 0; --zeros) out.bit(false);
  out.bit(true);
}

std::uint64_t get_unary(BitReader& in) {
  std::uint64_t zeros = 0;
  while (!in.bit()) ++zeros;
  return zeros;
}

// Where a class starts and how many bits its rests have.
struct NumberClass {
  std::uint64_t start;
  std::uint64_t bits;
};

NumberClass class_number(std::uint64_t c, std::uint64_t linear, std::uint64_t parameter) {
  const std::uint64_t e = c > linear ? c - linear : 0;
  require(parameter + e <= 32);
  const std::uint64_t ones = (std::uint64_t{1} << e) - 1;
  return {(std::min(c, linear) + ones) << parameter, parameter + e};
}

void put_parameters(BitWriter& out, const std::vector<int>& blocks) {
  int before = 0;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (i % kNumberGroup == 0) {
      bool same = true;
      for (std::size_t j = i; j < std::min(i + kNumberGroup, blocks.size()); ++j) same = same && blocks[j] == before;
      out.bit(!same);
      if (same) {
        i += kNumberGroup - 1;
        continue;
      }
    }
    const int change = blocks[i] - before;
    out.bit(change != 0);
    if (change != 0) {
      out.bit(change < 0);
      put_unary(out, static_cast<std::uint64_t>(std::abs(change)) - 1);
    }
    before = blocks[i];
  }
}

std::vector<int> get_parameters(BitReader& in, std::uint64_t blocks, int least) {
  std::vector<int> parameters;
  int parameter = 0;
  bool same = false;
  for (std::uint64_t i = 0; i < blocks; ++i) {
    if (i % kNumberGroup == 0) same = !in.bit();
    if (!same && in.bit()) {
      const bool minus = in.bit();
      const auto size = static_cast<int>(std::min<std::uint64_t>(get_unary(in), 100)) + 1;
      parameter += minus ? -size : size;
    }
    require(parameter >= least && parameter <= 31);
    parameters.push_back(parameter);
  }
  in.end();
  return parameters;
}

}  // namespace

void put_golomb(BitWriter& out, std::uint64_t x, std::uint64_t divisor) {
  const int b = bits_for(divisor);
  const std::uint64_t u = (std::uint64_t{1} << b) - divisor;
  const std::uint64_t r = x % divisor;
  for (std::uint64_t q = x / divisor; q > 0; --q) out.bit(false);
  out.bit(true);
  if (r < u) {
    out.number(r, b - 1);
  } else {
    out.number((r + u) / 2, b - 1);
    out.bit((r + u) % 2 != 0);
  }
}

std::uint64_t get_golomb(BitReader& in, std::uint64_t divisor) {
  const int b = bits_for(divisor);
  const std::uint64_t u = (std::uint64_t{1} << b) - divisor;
  std::uint64_t q = 0;
  while (!in.bit()) ++q;
  require(q < (std::uint64_t{1} << 32U));  // no gap is that large, and the product must not overflow
  const std::uint64_t s = in.number(b - 1);
  const std::uint64_t r = s < u ? s : 2 * s + (in.bit() ? 1 : 0) - u;
  return q * divisor + r;
}

void put_numbers(Writer& out, const std::vector<std::uint64_t>& numbers, const Form& form) {
  std::vector<int> blocks;
  for (std::size_t i = 0; i < numbers.size(); i += kNumberBlock) {
    blocks.push_back(form.parameters[i / kNumberBlock % form.parameters.size()]);
  }
  BitWriter parameters;
  put_parameters(parameters, blocks);
  BitWriter classes;
  BitWriter rests;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const auto p = static_cast<std::uint64_t>(blocks[i / kNumberBlock]);
    std::uint64_t c = 0;
    while (c < 200 &&
           class_number(c, form.linear, p).start + (std::uint64_t{1} << class_number(c, form.linear, p).bits) <=
               numbers[i]) {
      ++c;
    }
    put_unary(classes, c);
    const NumberClass found = class_number(c, form.linear, p);
    rests.number(numbers[i] - found.start, static_cast<int>(found.bits));
  }
  out.u8(form.linear);
  out.u32(parameters.take().size());
  out.u32(classes.take().size());
  out.bytes(parameters.take());
  out.bytes(classes.take());
  out.bytes(rests.take());
}

std::vector<std::uint64_t> get_numbers(Reader& in, std::uint64_t count, int least, Form& form) {
  form.linear = in.u8();
  require(form.linear <= 63);
  const std::uint64_t parameter_bytes = in.u32();
  const std::uint64_t class_bytes = in.u32();
  BitReader parameter_stream(in.bytes(parameter_bytes));
  BitReader classes(in.bytes(class_bytes));
  BitReader rests(in.rest());
  const auto blocks = get_parameters(parameter_stream, (count + kNumberBlock - 1) / kNumberBlock, least);
  form.parameters.assign(blocks.begin(), blocks.end());
  std::vector<std::uint64_t> numbers;
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto parameter = static_cast<std::uint64_t>(blocks[i / kNumberBlock]);
    const NumberClass found = class_number(get_unary(classes), form.linear, parameter);
    numbers.push_back(found.start + rests.number(static_cast<int>(found.bits)));
    require(numbers.back() < (std::uint64_t{1} << 32U));
  }
  classes.end();
  rests.end();
  return numbers;
}

}  // namespace sparsewire::reference
