#include "reference/wire.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <set>

#include "reference/half.h"
#include "reference/philox.h"

namespace sparsewire::reference {
namespace {

struct Refused {};

void require(bool good) {
  if (!good) throw Refused();
}

std::uint64_t up(std::uint64_t x, std::uint64_t y) { return x / y + (x % y != 0 ? 1 : 0); }

class Writer {
 public:
  void bytes(const Bytes& more) { out_.insert(out_.end(), more.begin(), more.end()); }
  void number(std::uint64_t x, int size) {
    for (int i = 0; i < size; ++i) out_.push_back(static_cast<std::byte>((x >> (8 * i)) & 0xFFU));
  }
  void u8(std::uint64_t x) { number(x, 1); }
  void u16(std::uint64_t x) { number(x, 2); }
  void u32(std::uint64_t x) { number(x, 4); }
  void u64(std::uint64_t x) { number(x, 8); }
  void f32(float x) { u32(std::bit_cast<std::uint32_t>(x)); }
  Bytes take() { return std::move(out_); }

 private:
  Bytes out_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : left_(bytes) {}

  std::span<const std::byte> bytes(std::uint64_t size) {
    require(size <= left_.size());
    const auto taken = left_.first(size);
    left_ = left_.subspan(size);
    return taken;
  }
  std::uint64_t number(int size) {
    std::uint64_t x = 0;
    int shift = 0;
    for (const std::byte byte : bytes(static_cast<std::uint64_t>(size))) {
      x |= std::to_integer<std::uint64_t>(byte) << shift;
      shift += 8;
    }
    return x;
  }
  std::uint8_t u8() { return static_cast<std::uint8_t>(number(1)); }
  std::uint16_t u16() { return static_cast<std::uint16_t>(number(2)); }
  std::uint32_t u32() { return static_cast<std::uint32_t>(number(4)); }
  std::uint64_t u64() { return number(8); }
  float f32() { return std::bit_cast<float>(u32()); }
  std::size_t left() const { return left_.size(); }
  std::span<const std::byte> rest() { return bytes(left_.size()); }

 private:
  std::span<const std::byte> left_;
};

class BitWriter {
 public:
  void bit(bool one) { bits_.push_back(one); }
  void number(std::uint64_t x, int bits) {
    for (int i = 0; i < bits; ++i) bit(((x >> i) & 1U) != 0);
  }
  Bytes take() const {
    Bytes out(up(bits_.size(), 8));
    for (std::size_t i = 0; i < bits_.size(); ++i) {
      if (bits_[i]) out[i / 8] |= static_cast<std::byte>(1U << (i % 8));
    }
    return out;
  }

 private:
  std::vector<bool> bits_;
};

class BitReader {
 public:
  explicit BitReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  bool bit() {
    require(next_ < bytes_.size() * 8);
    const bool one = ((std::to_integer<unsigned>(bytes_[next_ / 8]) >> (next_ % 8)) & 1U) != 0;
    ++next_;
    return one;
  }
  std::uint64_t number(int bits) {
    std::uint64_t x = 0;
    for (int i = 0; i < bits; ++i) x |= static_cast<std::uint64_t>(bit() ? 1 : 0) << i;
    return x;
  }
  // Only zero bits up to the next byte may follow.
  void end() {
    require(bytes_.size() == up(next_, 8));
    while (next_ < bytes_.size() * 8) require(!bit());
  }

 private:
  std::span<const std::byte> bytes_;
  std::size_t next_ = 0;
};

// ---- Golomb code

int bits_for(std::uint64_t divisor) {
  int bits = 1;
  while ((std::uint64_t{1} << bits) < divisor) ++bits;
  return bits;
}

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

// ---- numbers in blocks

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

// ---- values

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

Bytes values_section(const SparseVector& vector, const Form& form) {
  const Bytes plain = plain_section(vector, form);
  return form.packed ? packed_section(plain, vector.size(), form) : plain;
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

void get_values(Reader& in, std::uint64_t count, Frame& frame) {
  if (frame.form.packed) return get_packed_values(in, count, frame);
  get_plain_values(in, count, frame);
}

// ---- indices

std::vector<std::uint64_t> gaps_of(const std::vector<std::uint32_t>& indices) {
  std::vector<std::uint64_t> gaps;
  std::int64_t last = -1;
  for (const std::uint32_t index : indices) {
    gaps.push_back(static_cast<std::uint64_t>(std::int64_t{index} - last - 1));
    last = index;
  }
  return gaps;
}

std::size_t lanes_of(std::uint64_t count) { return count < 1024 ? 1 : 4; }

Bytes golomb_section(const SparseVector& vector, const Form& form) {
  const std::vector<std::uint64_t> gaps = gaps_of(vector.indices);
  std::vector<BitWriter> lanes(lanes_of(gaps.size()));
  for (std::size_t i = 0; i < gaps.size(); ++i) put_golomb(lanes[i % lanes.size()], gaps[i], form.divisor);
  Writer out;
  out.u32(form.divisor);
  for (std::size_t j = 0; j + 1 < lanes.size(); ++j) out.u32(lanes[j].take().size());
  for (const BitWriter& lane : lanes) out.bytes(lane.take());
  return out.take();
}

void get_golomb_section(Reader& in, std::uint64_t count, Frame& frame) {
  frame.form.divisor = in.u32();
  require(frame.form.divisor >= 1);
  std::vector<std::uint64_t> sizes;
  for (std::size_t j = 0; j + 1 < lanes_of(count); ++j) sizes.push_back(in.u32());
  std::vector<BitReader> lanes;
  for (const std::uint64_t size : sizes) lanes.emplace_back(in.bytes(size));
  lanes.emplace_back(in.rest());
  std::uint64_t next = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t index = next + get_golomb(lanes[i % lanes.size()], frame.form.divisor);
    require(index < frame.vector.dim);
    frame.vector.indices.push_back(static_cast<std::uint32_t>(index));
    next = index + 1;
  }
  for (BitReader& lane : lanes) lane.end();
}

Bytes adaptive_section(const SparseVector& vector, const Form& form) {
  Writer out;
  put_numbers(out, gaps_of(vector.indices), form);
  return out.take();
}

void get_adaptive_section(Reader& in, std::uint64_t count, Frame& frame) {
  std::uint64_t next = 0;
  for (const std::uint64_t gap : get_numbers(in, count, 0, frame.form)) {
    require(gap < frame.vector.dim && next + gap < frame.vector.dim);
    frame.vector.indices.push_back(static_cast<std::uint32_t>(next + gap));
    next += gap + 1;
  }
}

Bytes bitmap_section(const SparseVector& vector) {
  std::vector<bool> present(vector.dim);
  for (const std::uint32_t index : vector.indices) present[index] = true;
  BitWriter out;
  for (const bool one : present) out.bit(one);
  return out.take();
}

void get_bitmap_section(Reader& in, std::uint64_t count, Frame& frame) {
  BitReader bits(in.bytes(up(frame.vector.dim, 8)));
  for (std::uint64_t i = 0; i < frame.vector.dim; ++i) {
    if (!bits.bit()) continue;
    require(frame.vector.indices.size() < count);
    frame.vector.indices.push_back(static_cast<std::uint32_t>(i));
  }
  bits.end();
}

struct Run {
  std::uint64_t first = 0;
  std::uint64_t length = 0;
};

std::vector<Run> runs_of(const std::vector<std::uint32_t>& indices) {
  std::vector<Run> runs;
  for (const std::uint32_t index : indices) {
    if (runs.empty() || runs.back().first + runs.back().length != index) runs.push_back({index, 0});
    ++runs.back().length;
  }
  return runs;
}

Bytes runs_section(const SparseVector& vector, const Form& form) {
  const std::vector<Run> runs = runs_of(vector.indices);
  BitWriter stream;
  std::uint64_t earliest = 0;  // the lowest index at which this run can start
  for (const Run& run : runs) {
    put_golomb(stream, run.first - earliest, form.divisor);
    put_golomb(stream, run.length - 1, form.divisor_of_length);
    earliest = run.first + run.length + 1;
  }
  Writer out;
  out.u32(form.divisor);
  out.u32(form.divisor_of_length);
  out.u32(runs.size());
  out.bytes(stream.take());
  return out.take();
}

void get_runs_section(Reader& in, std::uint64_t count, Frame& frame) {
  frame.form.divisor = in.u32();
  frame.form.divisor_of_length = in.u32();
  require(frame.form.divisor >= 1 && frame.form.divisor_of_length >= 1);
  const std::uint64_t runs = in.u32();
  BitReader stream(in.rest());
  std::uint64_t earliest = 0;
  for (std::uint64_t i = 0; i < runs; ++i) {
    const std::uint64_t first = earliest + get_golomb(stream, frame.form.divisor);
    const std::uint64_t length = get_golomb(stream, frame.form.divisor_of_length) + 1;
    require(length <= count - frame.vector.indices.size() && first + length <= frame.vector.dim);
    for (std::uint64_t j = 0; j < length; ++j) frame.vector.indices.push_back(static_cast<std::uint32_t>(first + j));
    earliest = first + length + 1;
  }
  stream.end();
}

Bytes as_u32(const std::vector<std::uint32_t>& numbers) {
  Writer out;
  for (const std::uint32_t x : numbers) out.u32(x);
  return out.take();
}

Bytes seed_section(const SparseVector& vector) {
  const Draw& draw = vector.draw;
  Writer out;
  out.u64(draw.seed);
  out.u64(draw.step);
  out.u32(draw.rank);
  out.u8(draw.role);
  const bool alone = draw.units.size() == 1;
  out.u32(alone ? 0 : draw.units.size());
  for (const Draw::Unit& unit : draw.units) {
    if (alone) break;
    out.u32(unit.size);
    out.u32(unit.k);
  }
  out.u32(crc32c(as_u32(vector.indices)));
  return out.take();
}

void get_seed_section(Reader& in, std::uint64_t count, Frame& frame) {
  Draw& draw = frame.vector.draw;
  draw.seed = in.u64();
  draw.step = in.u64();
  draw.rank = in.u32();
  draw.role = in.u8();
  const std::uint64_t units = in.u32();
  for (std::uint64_t u = 0; u < units; ++u) {
    const std::uint32_t size = in.u32();
    draw.units.push_back({size, in.u32()});
  }
  const std::uint32_t checksum = in.u32();
  require(in.left() == 0);
  if (units == 0) {
    draw.units.push_back({static_cast<std::uint32_t>(frame.vector.dim), static_cast<std::uint32_t>(count)});
  }
  std::uint64_t dim = 0;
  std::uint64_t k = 0;
  for (const Draw::Unit& unit : draw.units) {
    require(unit.k <= unit.size);
    dim += unit.size;
    k += unit.k;
  }
  require(dim == frame.vector.dim && k == count);
  std::uint64_t begin = 0;
  for (std::size_t u = 0; u < draw.units.size(); ++u) {
    for (const std::uint32_t position : draw_positions(draw, u, draw.units[u].k, draw.units[u].size)) {
      frame.vector.indices.push_back(static_cast<std::uint32_t>(begin + position));
    }
    begin += draw.units[u].size;
  }
  require(crc32c(as_u32(frame.vector.indices)) == checksum);
}

Bytes index_section(const SparseVector& vector, const Form& form) {
  switch (form.indices) {
    case IndexCodec::full:
      return {};
    case IndexCodec::golomb:
      return golomb_section(vector, form);
    case IndexCodec::bitmap:
      return bitmap_section(vector);
    case IndexCodec::raw32:
      return as_u32(vector.indices);
    case IndexCodec::seed:
      return seed_section(vector);
    case IndexCodec::runs:
      return runs_section(vector, form);
    case IndexCodec::adaptive:
      return adaptive_section(vector, form);
  }
  return {};
}

void get_indices(Reader& in, std::uint64_t count, Frame& frame) {
  switch (frame.form.indices) {
    case IndexCodec::full:
      require(count == frame.vector.dim);
      break;
    case IndexCodec::golomb:
      get_golomb_section(in, count, frame);
      break;
    case IndexCodec::bitmap:
      get_bitmap_section(in, count, frame);
      break;
    case IndexCodec::raw32:
      for (std::uint64_t i = 0; i < count; ++i) frame.vector.indices.push_back(in.u32());
      break;
    case IndexCodec::seed:
      get_seed_section(in, count, frame);
      break;
    case IndexCodec::runs:
      get_runs_section(in, count, frame);
      break;
    case IndexCodec::adaptive:
      get_adaptive_section(in, count, frame);
      break;
  }
  require(in.left() == 0);
  if (frame.form.indices == IndexCodec::full) return;
  const std::vector<std::uint32_t>& indices = frame.vector.indices;
  require(indices.size() == count);
  for (std::size_t i = 0; i < indices.size(); ++i) {
    require(indices[i] < frame.vector.dim && (i == 0 || indices[i - 1] < indices[i]));
  }
}

Frame read_or_refuse(std::span<const std::byte> bytes) {
  require(bytes.size() >= 28);
  require(Reader(bytes.last(4)).u32() == crc32c(bytes.first(bytes.size() - 4)));
  Reader in(bytes.first(bytes.size() - 4));
  for (const char letter : {'S', 'W', 'F', 'R'}) require(in.u8() == static_cast<std::uint8_t>(letter));
  require(in.u8() == 1);
  const std::uint8_t index_codec = in.u8();
  const std::uint8_t value_codec = in.u8();
  require(index_codec <= 6 && (value_codec <= 5 || (value_codec >= 128 && value_codec <= 132)));
  require(in.u8() == 0);
  Frame frame;
  frame.form.indices = static_cast<IndexCodec>(index_codec);
  frame.form.packed = value_codec >= 128;
  frame.form.values = static_cast<ValueCodec>(value_codec % 128);
  frame.vector.dim = in.u64();
  const std::uint64_t count = in.u64();
  require(frame.vector.dim < (std::uint64_t{1} << 32U) && count <= frame.vector.dim);
  const std::size_t before = in.left();
  get_values(in, count, frame);
  frame.value_bytes = before - in.left();
  frame.index_bytes = in.left();
  get_indices(in, count, frame);
  return frame;
}

}  // namespace

std::uint32_t crc32c(std::span<const std::byte> bytes) {
  static const std::vector<std::uint32_t> table = [] {
    std::vector<std::uint32_t> rows;
    for (std::uint32_t row = 0; row < 256; ++row) {
      std::uint32_t rest = row;
      for (int bit = 0; bit < 8; ++bit) rest = (rest & 1U) != 0 ? (rest >> 1U) ^ 0x82F63B78U : rest >> 1U;
      rows.push_back(rest);
    }
    return rows;
  }();
  std::uint32_t rest = ~0U;
  for (const std::byte byte : bytes) rest = (rest >> 8U) ^ table[(rest ^ std::to_integer<std::uint32_t>(byte)) & 0xFFU];
  return ~rest;
}

Bytes with_checksum(Bytes bytes) {
  if (bytes.size() < 4) return bytes;
  bytes.resize(bytes.size() - 4);
  Writer out;
  out.bytes(bytes);
  out.u32(crc32c(bytes));
  return out.take();
}

Bytes write_frame(const SparseVector& vector, const Form& form) {
  Writer out;
  for (const char letter : {'S', 'W', 'F', 'R'}) out.u8(static_cast<std::uint64_t>(letter));
  out.u8(1);
  out.u8(static_cast<std::uint64_t>(form.indices));
  out.u8(static_cast<std::uint64_t>(form.values) + (form.packed ? 128 : 0));
  out.u8(0);
  out.u64(vector.dim);
  out.u64(vector.size());
  out.bytes(values_section(vector, form));
  out.bytes(index_section(vector, form));
  out.u32(0);
  return with_checksum(out.take());
}

std::optional<Frame> read_frame(std::span<const std::byte> bytes) {
  try {
    return read_or_refuse(bytes);
  } catch (const Refused&) {
    return std::nullopt;
  }
}

std::vector<std::uint32_t> draw_positions(const Draw& draw, std::uint64_t unit, std::uint64_t k, std::uint64_t n) {
  const Stream stream{
      .seed = draw.seed + unit * 0x9E3779B97F4A7C15U, .step = draw.step, .rank = draw.rank, .role = draw.role};
  const bool left_out = 2 * k > n;
  const std::uint64_t wanted = left_out ? n - k : k;
  std::set<std::uint32_t> drawn;
  for (std::uint64_t i = 0; drawn.size() < wanted; ++i) {
    const Counter c = stream.block(static_cast<std::uint32_t>(i / 2));
    const std::uint64_t high = i % 2 == 0 ? c[1] : c[3];
    const std::uint64_t low = i % 2 == 0 ? c[0] : c[2];
    drawn.insert(static_cast<std::uint32_t>((high * n + ((low * n) >> 32U)) >> 32U));
  }
  if (!left_out) return {drawn.begin(), drawn.end()};
  std::vector<std::uint32_t> all(n);
  std::iota(all.begin(), all.end(), 0U);
  std::vector<std::uint32_t> rest;
  std::set_difference(all.begin(), all.end(), drawn.begin(), drawn.end(), std::back_inserter(rest));
  return rest;
}

}  // namespace sparsewire::reference
