// The papers' parameter server: all frames go to rank 0, which answers all alike.
#include "exchange/clock.h"
#include "exchange/serving.h"

namespace sparsewire {
namespace {

constexpr int kServer = 0;

class Server final : public Exchange {
 public:
  Server(const ExchangePlan& plan, Transport& transport) : plan_(plan), transport_(transport), codec_(plan.codec) {
    if (transport.rank() == kServer) serving_.emplace(plan, ServedRegion{.region = 0, .regions = 1, .dim = plan.dim});
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
    decode_from(heard.frame, kServer, plan_.dim, total);
    clock.lap(traffic_.ns_decode);
    return heard.verdict;
  }

  Sifter* server() noexcept override { return serving_ ? serving_->memory() : nullptr; }

 private:
  // Makes the answer to all that came in.
  void serve(StageClock& clock) {
    Verdict verdict = hear_all(all_);
    answer_.clear();
    if (!verdict.failure) {
      for (std::size_t r = 0; r < all_.size(); ++r) {
        const std::span<const std::byte> frame = take_apart(all_[r], static_cast<int>(r)).frame;
        decode_from(frame, static_cast<int>(r), plan_.dim, one_);
        clock.lap(traffic_.ns_decode);
        serving_->add(one_, plan_.weights[r]);
        clock.lap(traffic_.ns_merge);
        if (r != kServer) traffic_.bytes_served += frame.size();
      }
      if (const auto bad = serving_->answer(answer_)) {
        verdict.failure = Verdict::Failure{kServer, *bad};
        answer_.clear();
      }
      clock.lap(traffic_.ns_merge);
    }
    append(answer_, verdict);
  }

  const ExchangePlan plan_;
  Transport& transport_;
  Codec codec_;
  std::optional<Serving> serving_;
  Message message_;
  Message answer_;
  std::vector<Message> all_;
  SparseVector one_;
};

}  // namespace

std::unique_ptr<Exchange> make_server_exchange(Spec& /*spec*/, const ExchangePlan& plan, Transport& transport) {
  return std::make_unique<Server>(plan, transport);
}

}  // namespace sparsewire
