// Every rank sends its frame to every other, and each adds them up: the simplest exchange, read it first.
#include "exchange/clock.h"
#include "exchange/exchange.h"
#include "exchange/messages.h"
#include "merge/merger.h"

namespace sparsewire {
namespace {

class AllGatherExchange final : public Exchange {
 public:
  AllGatherExchange(const ExchangePlan& plan, Transport& transport)
      : plan_(plan),
        transport_(transport),
        codec_(plan.config.codec),
        reader_(plan.config.pool, transport.size()),
        merger_(plan.config.pool),
        vectors_(plan.weights.size()) {
    message_.reserve(kMostTrailerSize);
  }

  StepOutcome run(const SparseVector& sent, const StepTrailer& trailer, std::vector<float>& received,
                  SparseVector& total) override {
    traffic_ = {};
    thrown_ = nullptr;
    StageClock clock;
    const std::size_t frame_size = write_message(codec_, sent, trailer, received, message_, thrown_, plan_.config.pool);
    clock.lap(traffic_.ns_encode);
    transport_.all_gather(message_, all_);
    keep_room(all_);
    clock.lap(traffic_.ns_transport);

    StepOutcome outcome = parse_trailers(all_, plan_.weights, shares_, frames_);
    if (!outcome.failure)
      outcome.failure = reader_.decode(
          frames_, -1, [&](int) { return plan_.dim; }, vectors_);
    for (const auto& frame : frames_) traffic_.bytes_down += frame.size();
    traffic_.bytes_down -= frames_[static_cast<std::size_t>(transport_.rank())].size();
    clock.lap(traffic_.ns_decode);
    if (outcome.failure) return outcome;
    merger_.sum(plan_.dim, vectors_, shares_, total);
    if (plan_.config.average == Average::senders) {
      undivided_ = total.values;
      merger_.divide_by_senders(vectors_, shares_, total);
    }
    if (const auto bad = find_overflow(total, plan_.config.pool))
      outcome.fail({.rank = 0, .index = *bad});  // all ranks find the same
    const auto others = static_cast<std::size_t>(transport_.size() - 1);
    traffic_.bytes_up = frame_size * others;
    traffic_.trailers_up = traffic_.trailers_down = others;
    clock.lap(traffic_.ns_merge);
    return outcome;
  }

  const std::vector<float>* undivided() const noexcept override { return &undivided_; }

 private:
  const ExchangePlan plan_;
  Transport& transport_;
  Codec codec_;
  FrameReader reader_;
  Merger merger_;
  Message message_;
  std::vector<Message> all_;
  std::vector<float> shares_;  // of all ranks in the sum
  std::vector<std::span<const std::byte>> frames_;
  std::vector<SparseVector> vectors_;  // of all ranks
  std::vector<float> undivided_;
};

}  // namespace

std::unique_ptr<Exchange> make_allgather_exchange(Spec& /*spec*/, const ExchangePlan& plan, Transport& transport) {
  return std::make_unique<AllGatherExchange>(plan, transport);
}

}  // namespace sparsewire
