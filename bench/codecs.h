// Times the encoding and decoding of what a Top-k step sends, for index codecs and value formats.
#pragma once

#include <benchmark/benchmark.h>

#include <memory>
#include <string>
#include <vector>

#include "bench.h"
#include "sparsewire/codec.h"
#include "sparsewire/sparse_vector.h"

namespace sparsewire::bench {

// The name of a bench: "codec/encode/golomb:values=f32/ratio:0.01/n:25000000", or with decode.
std::string codec_name(const char* what, const std::string& spec, double ratio, std::size_t n);

class CodecBench {
 public:
  CodecBench(Bench& bench, std::string spec, double ratio);

  void encode(benchmark::State& state);
  void decode(benchmark::State& state);

 private:
  bool is_ready(benchmark::State& state);
  void prepare();
  void report(benchmark::State& state) const;

  Bench& bench_;
  const std::string spec_;
  const double ratio_;
  bool prepared_ = false;
  Codec codec_;
  const SparseVector* sent_ = nullptr;
  SparseVector fresh_;  // a copy made just before encoding, so that it is in the cache as after a sift
  std::vector<std::byte> frame_;
  std::vector<std::byte> arrived_;  // a copy made just before decoding
  std::vector<float> received_;
  SparseVector decoded_;
};

// The result and `bench` must outlive the run.
std::vector<std::unique_ptr<CodecBench>> register_codecs(Bench& bench);

}  // namespace sparsewire::bench
