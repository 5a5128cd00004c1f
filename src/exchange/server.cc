// The papers' parameter server: all frames go to rank 0, which sends the same answer to all.
#include "exchange/aggregator.h"
#include "exchange/clock.h"
#include "exchange/messages.h"

namespace sparsewire {
namespace {

constexpr int kServer = 0;

class ServerExchange final : public Exchange {
 public:
  ServerExchange(const ExchangePlan& plan, Transport& transport)
      : plan_(plan), transport_(transport), codec_(plan.config.codec), reader_(plan.config.pool, transport.size()) {
    const ServedRegion all{.region = 0, .regions = 1, .dim = plan.dim};
    check_downlink(plan, all);
    if (transport.rank() == kServer) aggregator_.emplace(plan, all);
    message_.reserve(kMostTrailerSize);
    answer_.reserve(kMostTrailerSize);
  }

  StepOutcome run(const SparseVector& sent, const StepTrailer& trailer, std::vector<float>& received,
                  SparseVector& total) override {
    traffic_ = {};
    thrown_ = nullptr;
    StageClock clock;
    const std::size_t frame_size = write_message(codec_, sent, trailer, received, message_, thrown_, plan_.config.pool);
    if (!aggregator_) traffic_.bytes_up = frame_size;
    clock.lap(traffic_.ns_encode);
    transport_.gather(kServer, message_, all_);
    keep_room(all_);
    clock.lap(traffic_.ns_transport);
    if (aggregator_) serve(trailer, clock);
    transport_.broadcast(kServer, answer_);
    keep_room({&answer_, 1});
    clock.lap(traffic_.ns_transport);

    const ParsedAnswer answer = split_answer(answer_, kServer, trailer);
    if (answer.outcome.failure) {
      if (aggregator_) aggregator_->undo();
      return answer.outcome;
    }
    if (aggregator_) {
      aggregator_->finish();
      const auto others = static_cast<std::size_t>(transport_.size() - 1);
      traffic_.bytes_served += answer.frame.size() * others;
      traffic_.trailers_served = 2 * others;
    } else {
      traffic_.bytes_down = answer.frame.size();
      traffic_.trailers_up = traffic_.trailers_down = 1;
    }
    StepOutcome outcome = answer.outcome;
    outcome.failure = decode_from(answer.frame, kServer, plan_.dim, total, plan_.config.pool);
    clock.lap(traffic_.ns_decode);
    return outcome;
  }

  void take_back() override {
    if (aggregator_) aggregator_->undo();
  }
  Sifter* server() noexcept override { return aggregator_ ? aggregator_->sifter() : nullptr; }

 private:
  // Writes the answer to the messages of all ranks.
  void serve(const StepTrailer& own, StageClock& clock) {
    StepOutcome outcome = parse_trailers(all_, plan_.weights, shares_, frames_);
    answer_.clear();
    aggregator_->begin();
    try {
      if (!outcome.failure) aggregate(outcome, clock);
    } catch (const std::exception& error) {
      thrown_ = std::current_exception();
      outcome.fail(failure_of(kServer, error));
    }
    if (outcome.failure) answer_.clear();
    append(answer_, outcome, own);
  }

  void aggregate(StepOutcome& outcome, StageClock& clock) {
    const auto failure = reader_.decode(
        frames_, -1, [&](int) { return plan_.dim; }, aggregator_->inputs());
    if (failure) return outcome.fail(*failure);
    for (std::size_t r = kServer + 1; r < frames_.size(); ++r) traffic_.bytes_served += frames_[r].size();
    clock.lap(traffic_.ns_decode);
    const auto bad = aggregator_->choose(shares_, outcome.lr);
    clock.lap(traffic_.ns_merge);
    if (bad) {
      outcome.fail({.rank = kServer, .index = *bad});
    } else {
      aggregator_->encode(answer_);
    }
    make_room_for_trailer(answer_);
    clock.lap(traffic_.ns_encode);
  }

  const ExchangePlan plan_;
  Transport& transport_;
  Codec codec_;
  FrameReader reader_;
  std::optional<Aggregator> aggregator_;
  Message message_;
  Message answer_;
  std::vector<Message> all_;
  std::vector<float> shares_;  // of all ranks in the sum
  std::vector<std::span<const std::byte>> frames_;
};

}  // namespace

std::unique_ptr<Exchange> make_server_exchange(Spec& /*spec*/, const ExchangePlan& plan, Transport& transport) {
  return std::make_unique<ServerExchange>(plan, transport);
}

}  // namespace sparsewire
