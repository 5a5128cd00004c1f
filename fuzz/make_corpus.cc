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

void write_libsvm(const std::filesystem::path& folder) {
  int number = 0;
  const auto add = [&](std::string_view file) {
    write(folder, std::to_string(number++), std::as_bytes(std::span(file)));
  };
  add("+1 1:0.5 7:-2e3\n-1 2:+.25\n");
  add("# head\r\n\r\nspam 1:1 # tail\r\nham\t3:1e-3  4:.5");
  add("1 268435456:1\n1.0 1:1 1:2\n");
  // printf '+1 1:1 3:0.5\n-1 2:1\n' | gzip -9n
  constexpr unsigned char kCompressed[] = {0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x03,
                                           0xd3, 0x36, 0x54, 0x30, 0xb4, 0x32, 0x54, 0x30, 0xb6, 0x32,
                                           0xd0, 0x33, 0xe5, 0xd2, 0x35, 0x54, 0x30, 0xb2, 0x32, 0xe4,
                                           0x02, 0x00, 0x5c, 0x1b, 0x10, 0xa6, 0x14, 0x00, 0x00, 0x00};
  add({reinterpret_cast<const char*>(kCompressed), sizeof(kCompressed)});
}

void write_metrics(const std::filesystem::path& folder) {
  int number = 0;
  const auto add = [&](std::string_view file) {
    write(folder, std::to_string(number++), std::as_bytes(std::span(file)));
  };
  add("{\"step\":1,\"loss\":0.5,\"lr\":0.1,\"flags\":0,\"went_dense\":false,\"ns_sift\":5}\n"
      "{\"step\":2,\"loss\":null,\"test_loss\":1e-3,\"total_bytes_up\":12,\"steps\":2}\n");
  add("{\"step\": 1, \"loss\": NaN, \"x\\u0041\": -Infinity, \"note\": \"</script>\"}\r\n{\"step\":");
  add("{\"step\":4}\n{\"step\":4,\"changed\":{\"lr\":{\"from\":[1],\"to\":2}}}\nrubbish\n{\"step\":3,\"loss\":1e999}"
      "\n");
}

void write_images(const std::filesystem::path& folder) {
  using namespace std::string_view_literals;
  const auto add = [&](const char* format, const char* name, std::string_view file) {
    write(folder / format, name, std::as_bytes(std::span(file)));
  };
  add("idx", "images", "\0\0\x08\x03\0\0\0\2\0\0\0\1\0\0\0\2abcd"sv);
  add("idx", "labels", "\0\0\x08\x01\0\0\0\3\1\2\3"sv);
  // The labels by gzip -9n.
  constexpr unsigned char kCompressed[] = {0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x03, 0x63,
                                           0x60, 0xe0, 0x60, 0x64, 0x60, 0x60, 0x60, 0x66, 0x64, 0x62, 0x06,
                                           0x00, 0x8b, 0xe5, 0xbd, 0xa4, 0x0b, 0x00, 0x00, 0x00};
  add("idx", "labels_gz", {reinterpret_cast<const char*>(kCompressed), sizeof(kCompressed)});
  const std::string record = '\7' + std::string(3072, 'x');
  add("cifar10", "two_records", record + record);
  add("cifar10", "text",
      "Now is the winter of our discontent made glorious summer by this sun of York; and all the "
      "clouds that lour'd upon our house in the deep bosom of the ocean buried.\n");
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
  sparsewire::write_libsvm(folder / "libsvm");
  sparsewire::write_metrics(folder / "metrics");
  sparsewire::write_images(folder);
  return 0;
}
