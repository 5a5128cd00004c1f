// Every frame goes to everybody, and everybody adds them up: the simplest exchange, read it first.
#include "exchange/clock.h"
#include "exchange/serving.h"

namespace sparsewire {
namespace {

class AllGather final : public Exchange {
 public:
  AllGather(const ExchangePlan& plan, Transport& transport)
      : plan_(plan), transport_(transport), codec_(plan.codec), merger_(plan.dim) {}

  Verdict run(SparseVector& sent, const Word& mine, std::vector<float>& received, SparseVector& total) override {
    traffic_ = {};
    StageClock clock;
    const std::size_t frame_size = write_message(codec_, sent, mine, received, message_);
    clock.lap(traffic_.ns_encode);
    transport_.all_gather(message_, all_);
    clock.lap(traffic_.ns_transport);

    Verdict verdict = hear_all(all_, plan_.weights, frames_);
    for (std::size_t r = 0; r < frames_.size() && !verdict.failure; ++r) {
      const auto rank = static_cast<int>(r);
      verdict.failure = decode_from(frames_[r], rank, plan_.dim, one_);
      if (verdict.failure) break;
      clock.lap(traffic_.ns_decode);
      merger_.add(one_, plan_.weights[r]);
      clock.lap(traffic_.ns_merge);
      if (rank != transport_.rank()) traffic_.bytes_down += frames_[r].size();
    }
    if (!verdict.failure) merger_.copy_to(total);
    merger_.clear();
    if (verdict.failure) return verdict;
    if (const auto bad = find_overflow(total)) verdict.fail({.rank = 0, .index = *bad});  // all see the same
    traffic_.bytes_up = frame_size * static_cast<std::size_t>(transport_.size() - 1);
    clock.lap(traffic_.ns_merge);
    return verdict;
  }

 private:
  const ExchangePlan plan_;
  Transport& transport_;
  Codec codec_;
  Merger merger_;
  Message message_;
  std::vector<Message> all_;
  std::vector<std::span<const std::byte>> frames_;
  SparseVector one_;
};

}  // namespace

std::unique_ptr<Exchange> make_allgather_exchange(Spec& /*spec*/, const ExchangePlan& plan, Transport& transport) {
  return std::make_unique<AllGather>(plan, transport);
}

}  // namespace sparsewire
