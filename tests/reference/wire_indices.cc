#include <algorithm>

#include "reference/wire_numbers.h"
#include "reference/wire_sections.h"

namespace sparsewire::reference {
namespace {

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

}  // namespace

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

}  // namespace sparsewire::reference
