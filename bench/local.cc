#include "local.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <exception>
#include <map>
#include <stdexcept>

#include "data.h"
#include "exchange/aggregator.h"
#include "exchange/exchange.h"
#include "exchange/messages.h"
#include "exchange/regions.h"
#include "sparsewire/support/pages.h"
#include "timing.h"

namespace sparsewire::bench {
namespace {

constexpr int kLocalRanks = 4;
constexpr float kLearningRate = 0.1F;
constexpr std::uint64_t kStepsApart = 100'000;  // the gradients of two ranks are those of steps so far apart
using Clock = std::chrono::steady_clock;

ExchangePlan plan_of(double ratio, std::size_t n) {
  ExchangePlan plan;
  plan.config.sparsifier = plan.config.downlink = fmt::format("topk:ratio={}", ratio);
  plan.config.downlink_codec = plan.config.codec;
  plan.dim = n;
  plan.weights.assign(kLocalRanks, 1.0F / kLocalRanks);
  return plan;
}

// A rank that is not timed: its sifter, its codec, and the server of its region.
struct OtherRank {
  OtherRank(const ExchangePlan& plan, int number, const Regions& all)
      : rank(number),
        sifter(plan.config.sparsifier, "ef", {.layout = plan.dim, .rank = number, .ranks = kLocalRanks}),
        regions(plan.dim, kLocalRanks),
        codec(plan.config.codec),
        aggregator(plan, {.region = number, .regions = kLocalRanks, .dim = all.size(number)}) {}

  // Sifts and encodes a part for each region.
  void send(std::span<float> gradient, std::uint64_t step) {
    fill_gradient(step + kStepsApart * static_cast<std::uint64_t>(rank), gradient);
    sifter.sift(Gradient(gradient), sent);
    regions.split(sent, parts);
    for (std::size_t r = 0; r < parts.size(); ++r) codec.encode(parts[r], frames[r]);
  }

  int rank;
  Sifter sifter;
  Regions regions;
  Codec codec;
  Aggregator aggregator;
  SparseVector sent;
  std::vector<SparseVector> parts;
  std::array<Message, kLocalRanks> frames;
  Message answer;
};

// What rank 0 sees of the other ranks. The first call of a step brings their frames, the second their answers.
class SimulatedRanks final : public Transport {
 public:
  explicit SimulatedRanks(const ExchangePlan& plan) : shares_(plan.weights) {
    const Regions regions(plan.dim, kLocalRanks);
    for (int r = 1; r < kLocalRanks; ++r) others_.push_back(std::make_unique<OtherRank>(plan, r, regions));
  }

  int rank() const noexcept override { return 0; }
  int size() const noexcept override { return kLocalRanks; }

  // The other ranks sift; to be called before rank 0 does.
  void begin_step(std::span<float> gradient, std::uint64_t step) {
    for (const auto& other : others_) other->send(gradient, step);
    trailer_.step = step;
    calls_ = 0;
  }

  void do_send_receive(std::span<const Outgoing> out, std::span<const Incoming> in) override {
    ended[static_cast<std::size_t>(calls_)] = Clock::now();
    if (state != nullptr) state->PauseTiming();
    if (calls_ == 0) serve(out);
    for (const Incoming& message : in) {
      message.bytes->clear();
      if (message.rank == 0) {
        const auto mine = std::find_if(out.begin(), out.end(), [](const Outgoing& one) { return one.rank == 0; });
        message.bytes->assign(mine->bytes.begin(), mine->bytes.end());
        continue;
      }
      OtherRank& other = *others_[static_cast<std::size_t>(message.rank) - 1];
      trailer_.rank = message.rank;
      *message.bytes = calls_ == 0 ? other.frames[0] : other.answer;
      if (calls_ == 0) append(*message.bytes, trailer_);
      if (calls_ == 1) append(*message.bytes, StepOutcome{}, trailer_);
    }
    if (state != nullptr) state->ResumeTiming();
    began[static_cast<std::size_t>(calls_)] = Clock::now();
    ++calls_;
  }

  benchmark::State* state = nullptr;  // its timer stops while the others compute
  std::array<Clock::time_point, 2> ended;
  std::array<Clock::time_point, 2> began;

  // The frame of a region's answer.
  std::span<const std::byte> answer(int region) const { return others_[static_cast<std::size_t>(region) - 1]->answer; }

 private:
  // The other ranks answer, given the messages of rank 0.
  void serve(std::span<const Outgoing> out) {
    for (const auto& other : others_) {
      const auto region = static_cast<std::size_t>(other->rank);
      const std::span<SparseVector> inputs = other->aggregator.inputs();
      const auto mine =
          std::find_if(out.begin(), out.end(), [&](const Outgoing& one) { return one.rank == other->rank; });
      bool fine = decode(mine->bytes.first(mine->bytes.size() - kTrailerSize), inputs[0]) == DecodeStatus::ok;
      for (const auto& from : others_) {
        fine = decode(from->frames[region], inputs[static_cast<std::size_t>(from->rank)]) == DecodeStatus::ok && fine;
      }
      other->aggregator.begin();
      if (!fine || other->aggregator.choose(shares_, 1.0F)) throw std::runtime_error("a region could not be served");
      other->aggregator.encode(other->answer);
      other->aggregator.finish();
    }
  }

  const std::vector<float> shares_;  // of all ranks in the sum
  std::vector<std::unique_ptr<OtherRank>> others_;
  StepTrailer trailer_;
  int calls_ = 0;
};

}  // namespace

// Rank 0 with its memory and weights, and the others.
struct Local::World {
  World(Bench& shared, double ratio)
      : bench(shared),
        plan(plan_of(ratio, shared.n())),
        ranks(plan),
        regions(plan.dim, kLocalRanks),
        sifter(plan.config.sparsifier, "ef", {.layout = plan.dim, .ranks = kLocalRanks}),
        exchange(make_exchange("sharded", plan, ranks)),
        weights(plan.dim) {}

  void set_up() {
    ranks.begin_step(bench.gradient(), number);
    fill_gradient(number, bench.gradient());
  }

  // The timed part.
  void step() {
    const Clock::time_point begin = Clock::now();
    sifter.sift(Gradient(bench.gradient()), sent);
    const Clock::time_point sifted = Clock::now();
    trailer.step = number;
    trailer.entries = sent.size();
    const StepOutcome outcome = exchange->run(sent, trailer, received, total);
    const Clock::time_point collected = Clock::now();
    if (outcome.failure) throw std::runtime_error("the step failed");
    float* const to = weights.data();
    for (std::size_t i = 0; i < total.size(); ++i) to[total.indices[i]] -= kLearningRate * total.values[i];
    const Clock::time_point end = Clock::now();
    const std::array stages = {sifted - begin, ranks.ended[0] - sifted, ranks.ended[1] - ranks.began[0],
                               collected - ranks.began[1], end - collected};
    for (std::size_t s = 0; s < stages.size(); ++s) {
      milliseconds[s] += std::chrono::duration<double, std::milli>(stages[s]).count();
    }
    ++number;
  }

  // The update holds the answers of all regions, each entry at its place.
  void check() {
    set_up();
    const std::vector<float> before(weights.begin(), weights.end());
    step();
    std::map<std::uint32_t, float> expected;
    std::size_t in_region_0 = total.size();
    for (int region = 1; region < kLocalRanks; ++region) {
      SparseVector part;
      if (decode(ranks.answer(region), part) != DecodeStatus::ok) throw std::runtime_error("an answer is broken");
      for (std::size_t i = 0; i < part.size(); ++i) expected[regions.global(region, part.index(i))] = part.values[i];
      in_region_0 -= part.size();
    }
    const std::size_t k = entries(plan_ratio(), regions.size(0));
    if (!total.is_valid() || in_region_0 != k) throw std::runtime_error("the update has not the right entries");
    for (std::size_t i = 0; i < total.size(); ++i) {
      const auto found = expected.find(total.indices[i]);
      const bool is_known = found != expected.end();
      if (is_known && found->second != total.values[i]) throw std::runtime_error("the update has a wrong value");
      if (is_known) expected.erase(found);
      const std::uint32_t at = total.indices[i];
      if (weights[at] != before[at] - kLearningRate * total.values[i]) throw std::runtime_error("a weight is wrong");
    }
    if (!expected.empty()) throw std::runtime_error("entries of an answer are missing in the update");
  }

  double plan_ratio() const { return std::stod(plan.config.downlink.substr(plan.config.downlink.find('=') + 1)); }

  Bench& bench;
  ExchangePlan plan;
  SimulatedRanks ranks;
  Regions regions;
  Sifter sifter;
  std::unique_ptr<Exchange> exchange;
  LongVector weights;
  SparseVector sent;
  std::vector<float> received;
  SparseVector total;
  StepTrailer trailer;
  std::uint64_t number = 0;
  std::array<double, std::size(kLocalStages)> milliseconds{};
};

std::string local_name(double ratio, std::size_t n) { return fmt::format("local/sharded/ratio:{}/n:{}", ratio, n); }

Local::Local(Bench& bench, double ratio) : bench_(bench), ratio_(ratio), text_(local_name(ratio, bench.n())) {}
Local::~Local() = default;

void Local::run(benchmark::State& state) {
  try {
    if (world_ == nullptr && !bench_.failures.contains(text_)) {
      world_ = std::make_unique<World>(bench_, ratio_);
      for (int step = 0; step < bench_.warmup_steps(); ++step) {
        bench_.progress(fmt::format("preparing {}", text_), step, bench_.warmup_steps());
        world_->set_up();
        world_->step();
      }
      world_->check();
      bench_.clear_progress();
    }
  } catch (const std::exception& error) {
    bench_.failures[text_] = error.what();
  }
  if (const auto failure = bench_.failures.find(text_); failure != bench_.failures.end()) {
    return state.SkipWithError(failure->second.c_str());
  }
  bench_.running(text_);
  World& world = *world_;
  world.milliseconds = {};
  world.ranks.state = &state;
  time_steps(
      state, kStepsPerRepetition, [&] { world.set_up(); }, [&] { world.step(); }, [] {});
  world.ranks.state = nullptr;
  for (std::size_t s = 0; s < world.milliseconds.size(); ++s) {
    state.counters[kLocalStages[s]] = benchmark::Counter(world.milliseconds[s], benchmark::Counter::kAvgIterations);
  }
  bench_.clear_progress();
}

std::vector<std::unique_ptr<Local>> register_locals(Bench& bench) {
  std::vector<std::unique_ptr<Local>> locals;
  for (const double ratio : kRatios) {
    Local* const local = locals.emplace_back(std::make_unique<Local>(bench, ratio)).get();
    benchmark::RegisterBenchmark(local_name(ratio, bench.n()).c_str(), [local](benchmark::State& state) {
      local->run(state);
    })->Unit(benchmark::kMillisecond);
  }
  return locals;
}

}  // namespace sparsewire::bench
