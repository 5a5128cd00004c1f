#include <algorithm>
#include <cmath>

#include "reference/half.h"
#include "reference/wire_numbers.h"
#include "reference/wire_sections.h"

namespace sparsewire::reference {
namespace {

int bits_of(ValueCodec codec) {
  switch (codec) {
    case ValueCodec::f32:
      return 32;
    case ValueCodec::f16:
    case ValueCodec::bf16:
      return 16;
    case ValueCodec::int8:
      return 8;
    case ValueCodec::int4:
      return 4;
    case ValueCodec::int2:
      return 2;
  }
  return 0;
}

bool has_blocks(ValueCodec codec) { return bits_of(codec) <= 8; }
int largest_code(ValueCodec codec) { return codec == ValueCodec::int8 ? 127 : 7; }

void put_blocks(Writer& out, const std::vector<float>& values, const Form& form) {
  out.u32(form.block);
  BitWriter codes;
  for (std::size_t begin = 0; begin < values.size(); begin += form.block) {
    const std::size_t end = std::min<std::size_t>(begin + form.block, values.size());
    double sum = 0;
    double largest = 0;
    for (std::size_t i = begin; i < end; ++i) {
      sum += std::fabs(double{values[i]});
      largest = std::max(largest, std::fabs(double{values[i]}));
    }
    if (form.values == ValueCodec::int2) {
      const std::uint16_t mean = to_bf16(static_cast<float>(sum / static_cast<double>(end - begin)));
      out.u16(mean);
      out.u16(mean);
      for (std::size_t i = begin; i < end; ++i) codes.number(std::signbit(values[i]) ? 2 : 0, 2);
      continue;
    }
    // Slightly smaller, so that the largest code times the scale cannot overflow.
    const float scale = static_cast<float>(largest / largest_code(form.values) * (1 - 0x1p-22));
    out.f32(scale);
    for (std::size_t i = begin; i < end; ++i) {
      const double q = scale == 0 ? 0 : std::nearbyint(double{values[i]} / double{scale});
      const double limit = largest_code(form.values);
      const int code = static_cast<int>(std::clamp(q, -limit, limit));
      codes.number(static_cast<std::uint64_t>(static_cast<std::int64_t>(code)), bits_of(form.values));
    }
  }
  out.bytes(codes.take());
}

Bytes plain_section(const SparseVector& vector, const Form& form) {
  Writer out;
  if (has_blocks(form.values)) {
    put_blocks(out, vector.values, form);
    return out.take();
  }
  for (const float x : vector.values) {
    if (form.values == ValueCodec::f32) out.f32(x);
    if (form.values == ValueCodec::f16) out.u16(to_f16(x));
    if (form.values == ValueCodec::bf16) out.u16(to_bf16(x));
  }
  return out.take();
}

// The codes of a plain section, with their sign bits; and the scales before them.
struct PlainCodes {
  Bytes scales;
  std::vector<std::uint64_t> codes;
};

PlainCodes codes_of(const Bytes& plain, std::uint64_t count, const Form& form) {
  PlainCodes found;
  Reader in(plain);
  if (has_blocks(form.values)) {
    const auto scales = in.bytes(4 + 4 * up(count, form.block));
    found.scales.assign(scales.begin(), scales.end());
  }
  BitReader bits(in.rest());
  for (std::uint64_t i = 0; i < count; ++i) found.codes.push_back(bits.number(bits_of(form.values)));
  return found;
}

Bytes packed_section(const Bytes& plain, std::uint64_t count, const Form& form) {
  const PlainCodes found = codes_of(plain, count, form);
  const std::uint64_t half = std::uint64_t{1} << static_cast<unsigned>(bits_of(form.values) - 1);
  std::vector<std::uint64_t> numbers;
  for (const std::uint64_t code : found.codes) {
    const bool minus = code >= half;
    const std::uint64_t magnitude = !minus ? code : has_blocks(form.values) ? 2 * half - code : code - half;
    const auto above = static_cast<std::int64_t>(magnitude) - static_cast<std::int64_t>(form.reference);
    const std::int64_t y = form.fold == 0 ? above : above >= 0 ? 2 * above : -2 * above - 1;
    numbers.push_back(2 * static_cast<std::uint64_t>(y) + (minus ? 1 : 0));
  }
  Writer rest;
  rest.bytes(found.scales);
  rest.u8(form.fold);
  rest.u32(form.reference);
  put_numbers(rest, numbers, form);
  const Bytes bytes = rest.take();
  Writer out;
  out.u32(bytes.size());
  out.bytes(bytes);
  return out.take();
}

float value_of(std::uint64_t code, std::size_t block, const Frame& frame) {
  if (frame.form.values == ValueCodec::int2) {
    const float magnitude = (code & 1U) != 0 ? frame.high[block] : frame.low[block];
    return (code & 2U) != 0 ? -magnitude : magnitude;
  }
  const int bits = bits_of(frame.form.values);
  const int size = 1 << bits;
  const int q = static_cast<int>(code) >= size / 2 ? static_cast<int>(code) - size : static_cast<int>(code);
  require(std::abs(q) <= largest_code(frame.form.values));
  return static_cast<float>(q) * frame.low[block];
}

void get_blocks(Reader& in, std::uint64_t count, Frame& frame) {
  frame.form.block = in.u32();
  require(frame.form.block >= 16 && frame.form.block <= 65536);
  for (std::uint64_t block = 0; block < up(count, frame.form.block); ++block) {
    if (frame.form.values == ValueCodec::int2) {
      frame.low.push_back(from_bf16(in.u16()));
      frame.high.push_back(from_bf16(in.u16()));
      require(std::isfinite(frame.high.back()) && frame.low.back() <= frame.high.back());
      require(!std::signbit(frame.high.back()));
    } else {
      frame.low.push_back(in.f32());
      require(std::isfinite(frame.low.back() * static_cast<float>(largest_code(frame.form.values))));
    }
    require(std::isfinite(frame.low.back()) && !std::signbit(frame.low.back()));
  }
  const int bits = bits_of(frame.form.values);
  BitReader codes(in.bytes(up(count * static_cast<std::uint64_t>(bits), 8)));
  for (std::uint64_t i = 0; i < count; ++i) {
    frame.vector.values.push_back(value_of(codes.number(bits), i / frame.form.block, frame));
  }
  codes.end();
}

void get_plain_values(Reader& in, std::uint64_t count, Frame& frame) {
  require(count <= 4 * in.left());  // no format takes less than two bits
  if (has_blocks(frame.form.values)) get_blocks(in, count, frame);
  for (std::uint64_t i = 0; i < count && !has_blocks(frame.form.values); ++i) {
    if (frame.form.values == ValueCodec::f32) frame.vector.values.push_back(in.f32());
    if (frame.form.values == ValueCodec::f16) frame.vector.values.push_back(from_f16(in.u16()));
    if (frame.form.values == ValueCodec::bf16) frame.vector.values.push_back(from_bf16(in.u16()));
  }
  for (const float x : frame.vector.values) require(std::isfinite(x));
}

// Unpacks the section, and reads the plain one that it stands for.
void get_packed_values(Reader& in, std::uint64_t count, Frame& frame) {
  Form& form = frame.form;
  require(form.values != ValueCodec::int2);
  Reader section(in.bytes(in.u32()));
  Writer plain;
  if (has_blocks(form.values)) {
    form.block = section.u32();
    require(form.block >= 16 && form.block <= 65536);
    plain.u32(form.block);
    for (const std::byte byte : section.bytes(4 * up(count, form.block)))
      plain.u8(std::to_integer<std::uint64_t>(byte));
  }
  form.fold = section.u8();
  form.reference = section.u32();
  require(count <= 8 * section.left());
  const std::int64_t half = std::int64_t{1} << static_cast<unsigned>(bits_of(form.values) - 1);
  require(form.fold <= 1 && form.reference < half);
  BitWriter codes;
  for (const std::uint64_t number : get_numbers(section, count, 1, form)) {
    const auto y = static_cast<std::int64_t>(number / 2);
    const bool minus = number % 2 != 0;
    std::int64_t magnitude = form.reference;
    if (form.fold == 0) magnitude += y;
    if (form.fold == 1) magnitude += y % 2 == 0 ? y / 2 : -(y + 1) / 2;
    require(magnitude >= 0 && magnitude < half);
    require(!has_blocks(form.values) || !minus || magnitude > 0);
    const std::int64_t code = !minus ? magnitude : has_blocks(form.values) ? 2 * half - magnitude : half + magnitude;
    codes.number(static_cast<std::uint64_t>(code), bits_of(form.values));
  }
  plain.bytes(codes.take());
  const Bytes bytes = plain.take();
  Reader again(bytes);
  get_plain_values(again, count, frame);
  require(again.left() == 0);
}

}  // namespace

Bytes values_section(const SparseVector& vector, const Form& form) {
  const Bytes plain = plain_section(vector, form);
  return form.packed ? packed_section(plain, vector.size(), form) : plain;
}

void get_values(Reader& in, std::uint64_t count, Frame& frame) {
  if (frame.form.packed) return get_packed_values(in, count, frame);
  get_plain_values(in, count, frame);
}

}  // namespace sparsewire::reference
