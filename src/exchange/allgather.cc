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

    Verdict verdict = hear_all(all_);
    if (verdict.failure) return verdict;
    for (int r = 0; r < transport_.size(); ++r) {
      const std::span<const std::byte> frame = take_apart(at(r), r).frame;
      decode_from(frame, r, plan_.dim, one_);
      clock.lap(traffic_.ns_decode);
      merger_.add(one_, plan_.weights[static_cast<std::size_t>(r)]);
      clock.lap(traffic_.ns_merge);
      if (r != transport_.rank()) traffic_.bytes_down += frame.size();
    }
    merger_.copy_to(total);
    merger_.clear();
    if (const auto bad = find_overflow(total)) verdict.failure = Verdict::Failure{0, *bad};  // all see the same
    traffic_.bytes_up = frame_size * static_cast<std::size_t>(transport_.size() - 1);
    clock.lap(traffic_.ns_merge);
    return verdict;
  }

 private:
  const Message& at(int rank) const { return all_[static_cast<std::size_t>(rank)]; }

  const ExchangePlan plan_;
  Transport& transport_;
  Codec codec_;
  Merger merger_;
  Message message_;
  std::vector<Message> all_;
  SparseVector one_;
};

}  // namespace

std::unique_ptr<Exchange> make_allgather_exchange(Spec& /*spec*/, const ExchangePlan& plan, Transport& transport) {
  return std::make_unique<AllGather>(plan, transport);
}

}  // namespace sparsewire
