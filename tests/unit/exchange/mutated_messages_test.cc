// Messages that are mutated in flight, over every exchange and with every value format: no mutation is silent. The
// ranks are threads, with messages between them as between processes.
#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <random>

#include "codec/value_format.h"
#include "exchange/tampering.h"

namespace sparsewire::mutated_messages_test {
namespace {

using bodies::Bytes;
using bodies::ExchangeCase;
using bodies::Plan;

constexpr int kRanks = 3;

// Bits flipped, words swapped, parts cleared, lost, repeated.
Bytes mutated(const Bytes& given, std::mt19937_64& random) {
  Bytes bytes = given;
  const auto below = [&](std::size_t limit) { return static_cast<std::size_t>(random() % limit); };
  const auto place = [&](std::size_t size) { return bytes.begin() + static_cast<std::ptrdiff_t>(below(size)); };
  switch (below(6)) {
    case 0:
      *place(bytes.size()) ^= std::byte{1} << below(8);
      break;
    case 1:
      for (std::size_t i = 2 + below(10); i > 0; --i) *place(bytes.size()) ^= std::byte{1} << below(8);
      break;
    case 2: {
      const auto word = [&] { return below((bytes.size() + 3) / 4) * 4; };
      const std::size_t a = word();
      const std::size_t b = word();
      for (std::size_t i = 0; i < 4; ++i) {
        if (std::max(a, b) + i < bytes.size()) std::swap(bytes[a + i], bytes[b + i]);
      }
      break;
    }
    case 3: {
      const auto from = place(bytes.size());
      std::fill(from, from + static_cast<std::ptrdiff_t>(below(static_cast<std::size_t>(bytes.end() - from)) + 1),
                std::byte{0});
      break;
    }
    case 4: {
      const auto from = place(bytes.size());
      bytes.erase(from, from + static_cast<std::ptrdiff_t>(below(static_cast<std::size_t>(bytes.end() - from)) + 1));
      break;
    }
    default: {
      const auto from = below(bytes.size());
      const Bytes part(given.begin() + static_cast<std::ptrdiff_t>(from), given.end());
      bytes.insert(bytes.end(), part.begin(), part.end());
    }
  }
  return bytes;
}

// Mutates one of the messages that this rank receives from others.
class MutatingTransport final : public WrappedTransport {
 public:
  using WrappedTransport::WrappedTransport;

  // The message number `at` from here on, counted from 0.
  void mutate(std::size_t at, std::uint64_t seed) {
    left_ = at;
    random_.emplace(seed);
  }
  std::size_t messages = 0;  // with content, since it was made

  void do_send_receive(std::span<const Outgoing> out, std::span<const Incoming> in) override {
    WrappedTransport::do_send_receive(out, in);
    for (const Incoming& message : in) {
      if (message.rank == rank() || message.bytes->empty()) continue;
      ++messages;
      if (!random_ || left_-- > 0) continue;
      const Bytes was = *message.bytes;
      while (*message.bytes == was) *message.bytes = mutated(was, *random_);
      random_.reset();
    }
  }
  void do_all_reduce_sum(WritableNumbers numbers) override { Transport::do_all_reduce_sum(numbers); }

 private:
  std::size_t left_ = 0;
  std::optional<std::mt19937_64> random_;
};

// The messages that a rank receives in the second step.
std::size_t count_messages(const Plan& plan, int victim) {
  std::size_t count = 0;
  run_on_threads(kRanks, [&](Transport& transport) {
    MutatingTransport link(transport);
    bodies::Runner run(plan, link);
    run.step(0);
    const std::size_t before = link.messages;
    run.step(1);
    if (transport.rank() == victim) count = link.messages - before;
  });
  return count;
}

// Whether any rank failed, in the step of the mutation or in the next one.
bool is_noticed(const Plan& plan, int victim, std::size_t message, std::uint64_t seed) {
  std::atomic<bool> noticed = false;
  run_on_threads(kRanks, [&](Transport& transport) {
    MutatingTransport link(transport);
    bodies::Runner run(plan, link);
    run.step(0);
    if (transport.rank() == victim) link.mutate(message, seed);
    try {
      run.step(1);
      run.step(2);
    } catch (const TransportError&) {
      noticed = true;
    }
  });
  return noticed;
}

std::vector<Plan> plans() {
  std::vector<Plan> plans;
  for (const ExchangeCase& setup : bodies::every_exchange_case()) {
    for (const ValueFormat& format : value_format_table()) {
      if (setup.exchange == "dense" && format.reduced_as == ReducedAs::nothing) continue;
      const std::string codec = "auto:values=" + std::string(format.info.name);
      Plan plan = bodies::plan_of("topk:ratio=0.1", setup, codec);
      plan.layout = 300;
      plan.config.check_every = 0;  // replicas are not compared: the messages themselves tell
      plans.push_back(plan);
    }
  }
  return plans;
}

TEST(MutatedMessages, AreNeverSilent) {
  const std::size_t mutations = kSlowBuild ? 300 : 10'000;
  const std::vector<Plan> all = plans();
  std::vector<std::vector<std::size_t>> messages;
  for (const Plan& plan : all) {
    messages.emplace_back();
    for (int victim = 0; victim < kRanks; ++victim) messages.back().push_back(count_messages(plan, victim));
  }
  std::size_t silent = 0;
  for (std::size_t i = 0; i < mutations; ++i) {
    const std::size_t which = i % all.size();
    const auto victim = static_cast<int>(i / all.size() % kRanks);
    const std::size_t received = messages[which][static_cast<std::size_t>(victim)];
    ASSERT_GT(received, 0U);
    if (is_noticed(all[which], victim, bodies::mixed(i) % received, i)) continue;
    ++silent;
    ADD_FAILURE() << all[which].name() << ", mutation " << i << " of a message to rank " << victim << " was silent";
  }
  EXPECT_EQ(silent, 0U) << "of " << mutations;
}

}  // namespace
}  // namespace sparsewire::mutated_messages_test
