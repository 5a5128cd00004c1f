#include "sharded.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>

#include "exchange/exchange.h"
#include "exchange/messages.h"
#include "exchange/regions.h"
#include "merge/merger.h"

namespace sparsewire::bench {
namespace {

constexpr int kSteps = 15;

// Every other rank sends what this one sends to rank 1; to itself it sends no frame.
class Echo final : public Transport {
 public:
  int rank() const noexcept override { return 0; }
  int size() const noexcept override { return kShardedRanks; }

  void begin_step(std::uint64_t step) {
    trailer_.step = step;
    calls_ = 0;
  }

  void do_send_receive(std::span<const Outgoing> out, std::span<const Incoming> in) override {
    const auto mine = std::find_if(out.begin(), out.end(), [](const Outgoing& one) { return one.rank == 1; });
    const std::span<const std::byte> frame = mine->bytes.first(mine->bytes.size() - kTrailerSize);
    for (const Incoming& message : in) {
      message.bytes->assign(frame.begin(), frame.end());
      trailer_.rank = message.rank;
      if (calls_ == 0) append(*message.bytes, trailer_);
      if (calls_ == 1) append(*message.bytes, StepOutcome{}, trailer_);
    }
    ++calls_;
  }

 private:
  StepTrailer trailer_;
  int calls_ = 0;
};

bool are_equally_large(const Regions& regions) {
  for (int r = 1; r < kShardedRanks; ++r) {
    if (regions.size(r) != regions.size(0)) return false;
  }
  return true;
}

double median(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

}  // namespace

std::optional<double> sharded_codec_time(const SparseVector& sent, double ratio, Pool* pool) {
  if (!are_equally_large(Regions(sent.dim, kShardedRanks))) return std::nullopt;
  ExchangePlan plan;
  plan.config.sparsifier = plan.config.downlink = fmt::format("topk:ratio={}", ratio);
  plan.config.downlink_codec = plan.config.codec;
  plan.config.pool = pool;
  plan.dim = sent.dim;
  plan.weights.assign(kShardedRanks, 1.0F / kShardedRanks);
  Echo ranks;
  const std::unique_ptr<Exchange> exchange = make_exchange("sharded", plan, ranks);
  std::vector<float> received;
  SparseVector total;
  std::vector<double> times;
  for (int step = 0; step < kSteps; ++step) {
    StepTrailer trailer;
    trailer.step = static_cast<std::uint64_t>(step);
    ranks.begin_step(trailer.step);
    const StepOutcome outcome = exchange->run(sent, trailer, received, total);
    if (outcome.failure || total.size() == 0) throw std::runtime_error("a step of sharded failed");
    times.push_back(1e-6 * static_cast<double>(exchange->traffic().ns_encode + exchange->traffic().ns_decode));
  }
  return median(times);
}

std::optional<double> sharded_merge_time(const SparseVector& sent, Pool* pool) {
  Regions regions(sent.dim, kShardedRanks);
  if (!are_equally_large(regions)) return std::nullopt;
  const std::vector<float> weights(kShardedRanks, 1.0F / kShardedRanks);
  std::vector<SparseVector> of_ranks;
  regions.split(sent, of_ranks);
  std::vector<SparseVector> of_regions = of_ranks;
  for (int r = 0; r < kShardedRanks; ++r) regions.make_global(r, of_regions[static_cast<std::size_t>(r)]);

  SparseVector sum;
  SparseVector model;
  const auto merge = [&](Merger& server, Merger& collector) {
    server.sum(regions.size(0), of_ranks, weights, sum);
    collector.unite(sent.dim, of_regions, model);
  };
  Merger server(pool);
  Merger collector(pool);
  std::vector<double> times;
  for (int step = 0; step < kSteps; ++step) {
    const auto begin = std::chrono::steady_clock::now();
    merge(server, collector);
    times.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
  }
  const SparseVector found = sum;
  Merger one_thread;
  Merger another;
  merge(one_thread, another);
  if (found != sum || model != sent) throw std::runtime_error("a merge of sharded found other entries");
  return median(times);
}

}  // namespace sparsewire::bench
