// The number of bytes: the statistics agree with a transport that counts, and `sharded` with a downlink sends hardly
// more than the least possible for any number of ranks. Ranks are threads.
#include <gtest/gtest.h>

#include <cstdio>
#include <memory>

#include "exchange/tampering.h"
#include "sparsewire/sifter.h"
#include "unit/exchange_cases.h"

namespace sparsewire::traffic_test {
namespace {

using bodies::kRanks;
using bodies::kSlowBuild;
using bodies::Numbers;
using bodies::Plan;
using bodies::Runner;

// Counts the bytes of frames to and from other ranks, apart for each call of a step.
class CountingTransport final : public WrappedTransport {
 public:
  using WrappedTransport::WrappedTransport;

  struct Call {
    std::uint64_t out = 0;
    std::uint64_t in = 0;
  };
  std::vector<Call> calls;
  std::uint64_t trailers = 0;  // bytes of messages outside frames
  std::uint64_t reduced = 0;   // bytes given to all-reduces

  void do_send_receive(std::span<const Outgoing> out, std::span<const Incoming> in) override {
    WrappedTransport::do_send_receive(out, in);
    Call call;
    for (const Outgoing& message : out) {
      if (message.rank != rank()) call.out += frame_bytes(message.bytes);
    }
    for (const Incoming& message : in) {
      if (message.rank != rank()) call.in += frame_bytes(*message.bytes);
    }
    calls.push_back(call);
  }
  void do_all_reduce_sum(WritableNumbers numbers) override {
    reduced += numbers.size_bytes();
    WrappedTransport::do_all_reduce_sum(numbers);
  }

 private:
  std::uint64_t frame_bytes(std::span<const std::byte> message) {
    if (!is_frame(message)) {
      trailers += message.size();
      return 0;
    }
    trailers += trailer_size();
    return message.size() - trailer_size();
  }
};

TEST_P(EveryExchangeCase, CountsTheBytesOfItsFrames) {
  for (const char* codec : {"auto", "auto:values=bf16"}) {
    for (const int ranks : kRanks) {
      Plan plan = EveryExchangeCase::plan(codec);
      plan.config.check_every = 0;
      run_on_threads(ranks, [&](Transport& transport) {
        CountingTransport counting(transport);
        Runner run(plan, counting);
        for (std::uint64_t t = 0; t < 5; ++t) {
          counting.calls.clear();
          counting.trailers = counting.reduced = 0;
          const StepStats& stats = run.step(t);
          SCOPED_TRACE(run.at(t) + ", rank " + std::to_string(transport.rank()));
          EXPECT_EQ(stats.dense_bytes, 4 * plan.layout.dim());
          EXPECT_EQ(stats.trailer_bytes_up + stats.trailer_bytes_down + stats.trailer_bytes_served, counting.trailers);
          if (is_all_reduce()) {  // (P-1)/P of the vector out, and as much in
            const std::uint64_t width = plan.config.codec == "auto" ? 4 : 2;
            EXPECT_EQ(counting.reduced, (plan.layout.dim() + 1) * width);  // and one entry for failures
            const auto part =
                plan.layout.dim() * width * static_cast<std::uint64_t>(ranks - 1) / static_cast<std::uint64_t>(ranks);
            EXPECT_EQ(stats.bytes_up, part);
            EXPECT_EQ(stats.bytes_down, part);
            EXPECT_EQ(stats.bytes_served, 0U);
            continue;
          }
          ASSERT_GE(counting.calls.size(), 1U);
          if (plan.config.exchange == "allgather") {
            EXPECT_EQ(stats.bytes_up, counting.calls[0].out);
            EXPECT_EQ(stats.bytes_down, counting.calls[0].in);
            EXPECT_EQ(stats.bytes_served, 0U);
            continue;
          }
          ASSERT_GE(counting.calls.size(), 2U);
          EXPECT_EQ(stats.bytes_up, counting.calls[0].out);
          EXPECT_EQ(stats.bytes_down, counting.calls[1].in);
          EXPECT_EQ(stats.bytes_served, counting.calls[0].in + counting.calls[1].out);
        }
      });
    }
  }
}

// Every byte that a worker sends or receives was received or sent by a server.
TEST_P(EveryExchangeCase, SendsAsManyBytesAsItReceives) {
  if (exchange_case().exchange == "allgather" || is_all_reduce()) GTEST_SKIP() << "there are no servers";
  const Plan plan = EveryExchangeCase::plan();
  run_on_threads(5, [&](Transport& transport) {
    Runner run(plan, transport);
    for (std::uint64_t t = 0; t < 3; ++t) {
      const StepStats& stats = run.step(t);
      const std::uint64_t mine[] = {stats.bytes_up, stats.bytes_down, stats.bytes_served};
      std::uint64_t moved = 0;
      std::uint64_t served = 0;
      for (const auto& one : bodies::from_all(transport, std::span<const std::uint64_t>(mine))) {
        moved += one[0] + one[1];
        served += one[2];
      }
      bodies::require_equal(moved, served, run.at(t) + ": bytes served");
    }
  });
}

// ---- The least possible number of bytes ----

// Like the gradient of a network: in matrices of 1024 columns some columns have larger entries, and some layers have
// entries that are ten times as large.
void fill_layers(std::span<float> gradient, int rank, std::uint64_t step, bool has_hot = true) {
  const std::uint64_t key = bodies::mixed(bodies::mixed(static_cast<std::uint64_t>(rank)) + step);
  const std::size_t layer_size = gradient.size() / 16 + 1;
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    const std::uint64_t bits = bodies::mixed(key + i);
    // The sum of four uniform numbers is close enough to normal.
    const auto sum =
        static_cast<std::int32_t>((bits & 0xFFFFU) + (bits >> 16 & 0xFFFFU) + (bits >> 32 & 0xFFFFU) + (bits >> 48));
    float number = static_cast<float>(sum - 131070) * 0x1p-15F;
    if (has_hot && i / layer_size % 5 == 2) number *= 10;
    if (has_hot && i % 1024 % 100 == 7) number *= 5;
    gradient[i] = number;
  }
}

struct Row {
  double mean = 0;
  double worst = 0;
};

// Bytes of a step over those of 2k(P-1)/P entries, each as long as in one frame of the whole vector.
Row bytes_over_least(int ranks, std::uint64_t dim, const std::string& codec, bool has_hot = true) {
  constexpr double kRatio = 0.01;
  const std::uint64_t steps = kSlowBuild || ranks > 16 ? 2 : 3;
  const WorkerConfig config{.sparsifier = "topk:ratio=0.01",
                            .exchange = "sharded",
                            .codec = codec,
                            .downlink = "topk:ratio=0.01",
                            .check_every = 0};
  const double k = std::floor(kRatio * static_cast<double>(dim) + 0.5);
  Row row;
  run_on_threads(ranks, [&](Transport& transport) {
    double bytes_per_entry = 0;
    Numbers gradient(dim);
    if (transport.rank() == 0) {
      Sifter sifter(config.sparsifier, "ef", {.layout = dim});
      SparseVector sent;
      bodies::Bytes frame;
      fill_layers(gradient, 0, 0, has_hot);
      sifter.sift(gradient, sent);
      Codec(codec).encode(sent, frame);
      bytes_per_entry = static_cast<double>(frame.size()) / static_cast<double>(sent.size());
    }
    Worker worker(config, dim, transport);
    std::uint64_t bytes = 0;
    for (std::uint64_t t = 0; t < steps; ++t) {
      fill_layers(gradient, transport.rank(), t, has_hot);
      worker.step(gradient);
      const StepStats& stats = worker.stats();
      bytes += stats.bytes_up + stats.bytes_down;
    }
    const auto all = bodies::from_all(transport, std::span<const std::uint64_t>(&bytes, 1));
    if (transport.rank() != 0) return;
    const double bytes_at_least = static_cast<double>(steps) * 2 * k * (ranks - 1) / ranks * bytes_per_entry;
    for (const auto& one : all) {
      row.mean += static_cast<double>(one[0]) / bytes_at_least / ranks;
      row.worst = std::max(row.worst, static_cast<double>(one[0]) / bytes_at_least);
    }
  });
  return row;
}

TEST(ShardedWithDownlink, SendsHardlyMoreThanTheLeastForAnyNumberOfRanks) {
  std::printf("  bytes over those of 2k(P-1)/P entries, 1 %%\n  %-18s %5s %9s %7s %7s\n", "codec", "P", "d", "mean",
              "worst");
  for (const char* codec : {"auto", "auto:values=bf16"}) {
    double least = 10;
    double most = 0;
    for (const int ranks : {2, 4, 8, 16, 32, 64}) {
      if (ranks > 16 && (kSlowBuild || !long_tests())) continue;
      // The more ranks, the larger: of packed frames with fewer than 600 entries, headers are a tenth and more.
      const std::uint64_t dim = kSlowBuild && ranks < 16 ? 400'000U
                                : kSlowBuild             ? 1'000'000U
                                                         : effort(1'000'000U, 4'000'000U);
      const Row row = bytes_over_least(ranks, dim, codec);
      std::printf("  %-18s %5d %9llu %7.3f %7.3f\n", codec, ranks, static_cast<unsigned long long>(dim), row.mean,
                  row.worst);
      EXPECT_LE(row.mean, 1.15) << codec << ", " << ranks << " ranks";
      EXPECT_LE(row.worst, 1.25) << codec << ", " << ranks << " ranks";
      least = std::min(least, row.mean);
      most = std::max(most, row.mean);
    }
    EXPECT_LE(most - least, 0.1) << codec << ": the factor grows with the number of ranks";
  }
}

TEST(ShardedWithDownlink, SendsHardlyMoreThanTheLeastWithoutHotLayersToo) {
  const Row row =
      bytes_over_least(8, kSlowBuild ? 400'000U : effort(1'000'000U, 4'000'000U), "auto:values=bf16", false);
  std::printf("  without hot layers, 8 ranks: mean %.3f, worst %.3f\n", row.mean, row.worst);
  EXPECT_LE(row.mean, 1.15);
  EXPECT_LE(row.worst, 1.25);
}

}  // namespace
}  // namespace sparsewire::traffic_test
