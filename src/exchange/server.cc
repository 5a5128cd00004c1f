// The papers' parameter server: all frames go to rank 0, which answers all alike.
#include "exchange/clock.h"
#include "exchange/serving.h"

namespace sparsewire {
namespace {

constexpr int kServer = 0;

class Server final : public Exchange {
 public:
  Server(const ExchangePlan& plan, Transport& transport) : plan_(plan), transport_(transport), codec_(plan.codec) {
    const ServedRegion all{.region = 0, .regions = 1, .dim = plan.dim};
    check_downlink(plan, all);
    if (transport.rank() == kServer) serving_.emplace(plan, all);
  }

  Verdict run(SparseVector& sent, const Word& mine, std::vector<float>& received, SparseVector& total) override {
    traffic_ = {};
    StageClock clock;
    const std::size_t frame_size = write_message(codec_, sent, mine, received, message_);
    if (!serving_) traffic_.bytes_up = frame_size;
    clock.lap(traffic_.ns_encode);
    transport_.gather(kServer, message_, all_);
    clock.lap(traffic_.ns_transport);
    if (serving_) serve(clock);
    transport_.broadcast(kServer, answer_);
    clock.lap(traffic_.ns_transport);

    const HeardVerdict heard = take_verdict_apart(answer_, kServer);
    if (heard.verdict.failure) {
      if (serving_) serving_->undo();
      return heard.verdict;
    }
    if (serving_) {
      serving_->finish();
      traffic_.bytes_served += heard.frame.size() * static_cast<std::size_t>(transport_.size() - 1);
    } else {
      traffic_.bytes_down = heard.frame.size();
    }
    Verdict verdict = heard.verdict;
    verdict.failure = decode_from(heard.frame, kServer, plan_.dim, total);
    clock.lap(traffic_.ns_decode);
    return verdict;
  }

  Sifter* server() noexcept override { return serving_ ? serving_->memory() : nullptr; }

 private:
  // Makes the answer to all that came in.
  void serve(StageClock& clock) {
    Verdict verdict = hear_all(all_, plan_.weights, frames_);
    answer_.clear();
    for (std::size_t r = 0; r < frames_.size() && !verdict.failure; ++r) {
      verdict.failure = decode_from(frames_[r], static_cast<int>(r), plan_.dim, one_);
      clock.lap(traffic_.ns_decode);
      if (verdict.failure) break;
      serving_->add(one_, plan_.weights[r]);
      clock.lap(traffic_.ns_merge);
      if (r != kServer) traffic_.bytes_served += frames_[r].size();
    }
    if (!verdict.failure) {
      if (const auto bad = serving_->answer(answer_)) verdict.fail({.rank = kServer, .index = *bad});
      clock.lap(traffic_.ns_merge);
    }
    if (verdict.failure) answer_.clear();
    append(answer_, verdict);
  }

  const ExchangePlan plan_;
  Transport& transport_;
  Codec codec_;
  std::optional<Serving> serving_;
  Message message_;
  Message answer_;
  std::vector<Message> all_;
  std::vector<std::span<const std::byte>> frames_;
  SparseVector one_;
};

}  // namespace

std::unique_ptr<Exchange> make_server_exchange(Spec& /*spec*/, const ExchangePlan& plan, Transport& transport) {
  return std::make_unique<Server>(plan, transport);
}

}  // namespace sparsewire
