// Writes the initial corpus of the fuzz targets: make_corpus FOLDER
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>

#include "exchange/step_trailer.h"
#include "reference/wire.h"
#include "sifters.h"
#include "sparsewire/codec.h"

namespace sparsewire {
namespace {

using Bytes = reference::Bytes;

void write(const std::filesystem::path& folder, const std::string& name, std::span<const std::byte> bytes) {
  std::filesystem::create_directories(folder);
  std::ofstream file(folder / name, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  if (!file.flush()) throw std::runtime_error("cannot write " + (folder / name).string());
}

// `count` entries as Random-k draws them from two tensors, with values around 1.
SparseVector drawn(std::uint32_t count, std::uint32_t dim) {
  SparseVector vector;
  vector.dim = dim;
  vector.draw = {.seed = 1, .step = 2, .rank = 3};
  vector.draw.units = {{dim / 2, count / 2}, {dim - dim / 2, count - count / 2}};
  for (std::uint32_t u = 0; u < 2; ++u) {
    const Draw::Unit& unit = vector.draw.units[u];
    for (const std::uint32_t i : reference::draw_positions(vector.draw, u, unit.k, unit.size)) {
      vector.indices.push_back(i + u * (dim / 2));
    }
  }
  for (std::uint32_t i = 0; i < count; ++i) vector.values.push_back(0.25F * static_cast<float>(i % 16) - 1.75F);
  return vector;
}

// Values that packing makes shorter.
SparseVector nearly_equal(std::uint32_t count, std::uint32_t dim) {
  SparseVector vector = drawn(count, dim);
  for (std::size_t i = 0; i < vector.size(); ++i)
    vector.values[i] = (i % 3 == 0 ? -1.0F : 1.0F) + (i % 5 == 0 ? 0.125F : 0);
  return vector;
}

Bytes encoded(const std::string& spec, const SparseVector& vector) {
  Bytes frame;
  Codec(spec).encode(vector, frame);
  return frame;
}

void write_frames(const std::filesystem::path& folder) {
  for (const CodecInfo& codec : codecs()) {
    if (codec.name == "auto") continue;
    write(folder, std::string(codec.name), encoded(std::string(codec.name), drawn(6, 40)));
  }
  for (const CodecInfo& format : value_formats()) {
    write(folder, std::string(format.name), encoded("golomb:values=" + std::string(format.name), drawn(20, 100)));
  }
  for (const char* const format : {"f32", "f16", "bf16", "int8", "int4"}) {
    write(folder, "packed_" + std::string(format),
          encoded("adaptive:pack=yes,values=" + std::string(format), nearly_equal(70, 900)));
  }
  // Long enough for vectors.
  write(folder, "steady", encoded("adaptive:pack=yes,values=bf16", nearly_equal(400, 6000)));
  SparseVector full = drawn(9, 9);
  full.indices.clear();
  write(folder, "full", encoded("auto:values=f16", full));
  write(folder, "empty", encoded("golomb", drawn(0, 0)));
  write(folder, "four_lanes", encoded("golomb:values=int2", drawn(1030, 5000)));
  write(folder, "four_lanes_far_apart", encoded("golomb:values=int2", drawn(1030, 3'000'000'000U)));
  SparseVector runs = drawn(40, 40);
  runs.dim = 1000;
  for (std::size_t i = 20; i < 40; ++i) runs.indices[i] += 500;
  write(folder, "long_runs", encoded("runs:values=int4", runs));
}

// Those of version 1, which are in the corpus too, were written by 0.1.
void write_states(const std::filesystem::path& folder) {
  for (std::size_t number = 0; number < kSifters.size(); ++number) {
    Sifter sifter = fuzzed_sifter(number);
    std::vector<float> gradient(sifter.layout().dim(), 0.5F);
    SparseVector sent;
    sifter.sift(Gradient(gradient), sent);
    sifter.observe(sent, sent.values);
    Bytes bytes = sifter.save();
    bytes.insert(bytes.begin(), static_cast<std::byte>(number));
    write(folder, "version_2_" + std::to_string(number), bytes);
  }
}

// Messages and answers, with and without a failure. The frame is two bytes: the trailer does not look at it.
void write_trailers(const std::filesystem::path& folder) {
  const Failure bad{Failure::Kind::bad_gradient, 3, 17};
  const Failure error{Failure::Kind::error, 3, 0, Cause("no memory")};
  const Failure late{Failure::Kind::out_of_step, 2, 5};
  const auto frame = [](bool failed) { return failed ? Bytes() : Bytes(2, std::byte{7}); };
  int number = 0;
  for (const auto& failure : {std::optional<Failure>(), std::optional(bad), std::optional(error)}) {
    Bytes message = frame(failure.has_value());
    append(message, StepTrailer{.rank = 3, .fingerprint = 5, .step = 9, .lr = 0.5F, .loss = 2, .failure = failure});
    write(folder, "message" + std::to_string(number++), message);
  }
  for (const auto& failure : {std::optional<Failure>(), std::optional(error), std::optional(late)}) {
    Bytes message = frame(failure.has_value());
    append(message, StepOutcome{.failure = failure, .flags = 1, .entries = 7, .loss = 2},
           {.fingerprint = 5, .step = 9});
    write(folder, "answer" + std::to_string(number++), message);
  }
}

void write_specs(const std::filesystem::path& folder) {
  int number = 0;
  const auto add = [&](std::string_view spec) {
    write(folder, std::to_string(number++), std::as_bytes(std::span(spec)));
  };
  for (const SparsifierInfo& info : sparsifiers()) add(info.example);
  add("ef:decay=0.95,scale=lr");
  add("momentum:m=0.9,clip=1");
  add("topk:k=3,chunk=8,dense_below=6");
  add("topk:ratio=0.01,warmup_from=0.5,warmup_steps=3");
  add("auto:values=int4,block=64");
}

// encode_fuzz reads its choices and numbers from bytes that have no format, so any bytes are good.
void write_choices(const std::filesystem::path& folder) {
  for (std::uint32_t number = 0; number < 4; ++number) {
    Bytes bytes;
    for (std::uint32_t i = 0; i < 300 * (number + 1); ++i) {
      bytes.push_back(static_cast<std::byte>((i * i + number * 77) * 2654435761U >> 24U));
    }
    write(folder, std::to_string(number), bytes);
  }
}

}  // namespace
}  // namespace sparsewire

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: make_corpus FOLDER\n";
    return 2;
  }
  const std::filesystem::path folder = argv[1];
  sparsewire::write_frames(folder / "decode");
  sparsewire::write_choices(folder / "encode");
  sparsewire::write_states(folder / "state");
  sparsewire::write_trailers(folder / "trailer");
  sparsewire::write_specs(folder / "spec");
  return 0;
}
