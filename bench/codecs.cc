#include "codecs.h"

#include <fmt/format.h>

#include <exception>
#include <stdexcept>
#include <utility>

#include "timing.h"

namespace sparsewire::bench {

std::string codec_name(const char* what, const std::string& spec, double ratio, std::size_t n) {
  return fmt::format("codec/{}/{}/ratio:{}/n:{}", what, spec, ratio, n);
}

CodecBench::CodecBench(Bench& bench, std::string spec, double ratio)
    : bench_(bench), spec_(std::move(spec)), ratio_(ratio), codec_(spec_) {}

void CodecBench::encode(benchmark::State& state) {
  if (!is_ready(state)) return;
  const bool is_rounded = codec_.rounds();  // then a worker needs `received`
  time_steps(
      state, kStepsPerRepetition, [&] { fresh_ = *sent_; },
      [&] { codec_.encode(fresh_, frame_, is_rounded ? &received_ : nullptr); }, [] {});
  report(state);
}

void CodecBench::decode(benchmark::State& state) {
  if (!is_ready(state)) return;
  time_steps(
      state, kStepsPerRepetition, [&] { arrived_ = frame_; },
      [&] { benchmark::DoNotOptimize(sparsewire::decode(arrived_, decoded_)); }, [] {});
  report(state);
}

bool CodecBench::is_ready(benchmark::State& state) {
  const std::string name = codec_name("encode", spec_, ratio_, bench_.n());
  try {
    if (!std::exchange(prepared_, true)) prepare();
  } catch (const std::exception& error) {
    bench_.failures[name] = error.what();
  }
  const auto failure = bench_.failures.find(name);
  if (failure != bench_.failures.end()) state.SkipWithError(failure->second.c_str());
  return failure == bench_.failures.end();
}

void CodecBench::prepare() {
  sent_ = &bench_.sent(ratio_);
  codec_.encode(*sent_, frame_, &received_);
  if (sparsewire::decode(frame_, decoded_) != DecodeStatus::ok || decoded_.dim != sent_->dim ||
      decoded_.indices != sent_->indices || decoded_.values != received_) {
    throw std::runtime_error("what was decoded is not what was encoded");
  }
}

void CodecBench::report(benchmark::State& state) const {
  state.counters["bits_per_entry"] = 8.0 * static_cast<double>(frame_.size()) / static_cast<double>(sent_->size());
}

std::vector<std::unique_ptr<CodecBench>> register_codecs(Bench& bench) {
  std::vector<std::unique_ptr<CodecBench>> all;
  for (const double ratio : kRatios) {
    for (const char* const indices : {"auto", "golomb", "adaptive", "raw32"}) {
      for (const CodecInfo& values : value_formats()) {
        const std::string spec = fmt::format("{}:values={}", indices, values.name);
        CodecBench* const codec = all.emplace_back(std::make_unique<CodecBench>(bench, spec, ratio)).get();
        for (const auto& [what, run] :
             {std::pair("encode", &CodecBench::encode), std::pair("decode", &CodecBench::decode)}) {
          benchmark::RegisterBenchmark(codec_name(what, spec, ratio, bench.n()).c_str(), [codec, run = run](
                                                                                             benchmark::State& state) {
            (codec->*run)(state);
          })->Unit(benchmark::kMillisecond);
        }
      }
    }
  }
  return all;
}

}  // namespace sparsewire::bench
