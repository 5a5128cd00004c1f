// Frames, timed: what a Top-k step sends, encoded and decoded, for codecs of both kinds.
#pragma once

#include <benchmark/benchmark.h>

#include <memory>
#include <string>
#include <vector>

#include "bench.h"
#include "sparsewire/codec.h"
#include "sparsewire/sparse_vector.h"

namespace sparsewire::bench {

// "codec/encode/golomb:values=f32/ratio:0.01/n:25000000", or with decode.
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
  SparseVector fresh_;  // a copy, just written when it is encoded, as a sift leaves its entries
  std::vector<std::byte> frame_;
  std::vector<std::byte> arrived_;  // likewise
  std::vector<float> received_;
  SparseVector decoded_;
};

// Keep the result until the run is over; `bench` likewise.
std::vector<std::unique_ptr<CodecBench>> register_codecs(Bench& bench);

}  // namespace sparsewire::bench
