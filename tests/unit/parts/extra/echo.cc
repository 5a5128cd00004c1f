// An exchange that is not in the library: all frames go to all ranks twice, and must be the same.
#include "exchange/exchange.h"
#include "exchange/messages.h"
#include "merge/merger.h"

namespace sparsewire {
namespace {

class EchoExchange final : public Exchange {
 public:
  EchoExchange(const ExchangePlan& plan, Transport& transport)
      : plan_(plan), transport_(transport), codec_(plan.config.codec), vectors_(plan.weights.size()) {}

  StepOutcome run(const SparseVector& sent, const StepTrailer& trailer, std::vector<float>& received,
                  SparseVector& total) override {
    thrown_ = nullptr;
    write_message(codec_, sent, trailer, received, message_, thrown_);
    transport_.all_gather(message_, first_);
    transport_.all_gather(message_, all_);
    StepOutcome outcome = parse_trailers(all_, plan_.weights, shares_, frames_);
    for (std::size_t r = 0; r < frames_.size() && !outcome.failure; ++r) {
      const auto rank = static_cast<int>(r);
      outcome.failure = decode_from(frames_[r], rank, plan_.dim, vectors_[r]);
      if (first_[r] != all_[r]) outcome.fail({Failure::Kind::unreadable, rank, Failure::kNoTrailer});
    }
    if (!outcome.failure) merger_.sum(plan_.dim, vectors_, shares_, total);
    return outcome;
  }

 private:
  const ExchangePlan plan_;
  Transport& transport_;
  Codec codec_;
  Merger merger_;
  Message message_;
  std::vector<float> shares_;
  std::vector<Message> first_;
  std::vector<Message> all_;
  std::vector<std::span<const std::byte>> frames_;
  std::vector<SparseVector> vectors_;
};

}  // namespace

std::unique_ptr<Exchange> make_echo_exchange(Spec& /*spec*/, const ExchangePlan& plan, Transport& transport) {
  return std::make_unique<EchoExchange>(plan, transport);
}

}  // namespace sparsewire
