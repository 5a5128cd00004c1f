// All values, without indices, by the transport's own all-reduce. It is the baseline, so it must be as fast as a bare
// all-reduce.
#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "codec/value_format.h"
#include "core/half.h"
#include "exchange/clock.h"
#include "exchange/exchange.h"
#include "exchange/messages.h"
#include "sparsewire/errors.h"

namespace sparsewire {
namespace {

class AllReduceExchange final : public Exchange {
 public:
  AllReduceExchange(const ExchangePlan& plan, Transport& transport)
      : transport_(transport),
        dim_(plan.dim),
        weights_(plan.weights),
        weight_(plan.weights[static_cast<std::size_t>(transport.rank())]),
        bf16_(is_bf16(plan.config.codec)) {
    nothing_.dim = plan.dim;
    message_.reserve(kMostTrailerSize);
  }

  StepOutcome run(const SparseVector& sent, const StepTrailer& trailer, std::vector<float>& received,
                  SparseVector& total) override {
    traffic_ = {};
    thrown_ = nullptr;
    StageClock clock;
    // An all-reduce cannot carry a trailer, so the trailers go first.
    message_.clear();
    append(message_, trailer);
    transport_.all_gather(message_, trailers_);
    StepOutcome outcome = parse_trailers(trailers_, weights_, frames_);
    clock.lap(traffic_.ns_transport);

    // One entry more than the model has says how many ranks could not read the trailers.
    const bool failed = outcome.failure.has_value();
    const bool is_unread = failed && outcome.failure->kind > Failure::Kind::error;
    received.clear();
    total.clear(dim_);
    float unread = 0;
    try {
      unread = bf16_ ? reduce_bf16(failed ? nothing_ : sent, is_unread ? 1.0F : 0.0F, received, total, clock)
                     : reduce_f32(failed ? nothing_ : sent, is_unread ? 1.0F : 0.0F, total, clock);
    } catch (const TransportError&) {
      if (!is_unread) throw;  // the ranks step different workers, say: the trailers explain it better
    }
    if (unread != 0 && is_unread) outcome.failure->found_here = false;  // the others know by the mark
    if (unread != 0 && !is_unread) outcome.fail({Failure::Kind::unreadable, -1, Failure::kElsewhere});
    if (outcome.failure) return outcome;
    if (const auto bad = find_overflow(total)) outcome.fail({.rank = 0, .index = *bad});  // all ranks find the same
    count_bytes();
    return outcome;
  }

  bool is_dense() const noexcept override { return true; }

 private:
  static bool is_bf16(const std::string& codec) {
    const ValueFormat& format = value_format_of(codec);
    if (format.reduced_as != ReducedAs::nothing) return format.reduced_as == ReducedAs::bf16;
    std::string names;
    for (const ValueFormat& other : value_format_table()) {
      if (other.reduced_as == ReducedAs::nothing) continue;
      names += fmt::format("{}{}", names.empty() ? "" : " or ", other.info.name);
    }
    throw UsageError(fmt::format("[dense] an all-reduce cannot add values={}; take {}", format.info.name, names));
  }

  // `total` becomes the sum over all ranks. Returns the sum of `mark` over all ranks.
  float reduce_f32(const SparseVector& sent, float mark, SparseVector& total, StageClock& clock) {
    total.values.resize(dim_ + 1);
    scatter(sent, total.values, [](float number) { return number; });
    total.values[dim_] = mark;
    clock.lap(traffic_.ns_encode);
    transport_.all_reduce_sum(total.values);
    clock.lap(traffic_.ns_transport);
    const float marks = total.values[dim_];
    total.values.resize(dim_);
    return marks;
  }

  // The same in bf16.
  float reduce_bf16(const SparseVector& sent, float mark, std::vector<float>& received, SparseVector& total,
                    StageClock& clock) {
    halves_.resize(dim_ + 1);
    total.values.resize(dim_);
    scatter(sent, halves_, [](float number) { return to_bf16(number); });
    halves_[dim_] = to_bf16(mark);
    keep_received(sent, received);
    clock.lap(traffic_.ns_encode);
    transport_.all_reduce_sum({halves_.data(), NumberType::bf16, halves_.size()});
    clock.lap(traffic_.ns_transport);
    for (std::size_t i = 0; i < dim_; ++i) total.values[i] = from_bf16(halves_[i]);
    clock.lap(traffic_.ns_decode);
    return from_bf16(halves_[dim_]);
  }

  // numbers = weight * sent, rounded; 0 where nothing is sent.
  template <class Number, class Rounded>
  void scatter(const SparseVector& sent, std::vector<Number>& numbers, Rounded rounded) const {
    if (sent.is_full()) {
      for (std::size_t i = 0; i < dim_; ++i) numbers[i] = rounded(weight_ * sent.values[i]);
      return;
    }
    std::fill(numbers.begin(), numbers.end(), Number{0});
    for (std::size_t i = 0; i < sent.size(); ++i) numbers[sent.indices[i]] = rounded(weight_ * sent.values[i]);
  }

  // What the other ranks get of this rank's values, before its weight.
  void keep_received(const SparseVector& sent, std::vector<float>& received) const {
    received.resize(sent.size());
    if (weight_ == 0) {  // they get nothing, so rounding loses nothing
      received = sent.values;
    } else if (sent.is_full()) {
      for (std::size_t i = 0; i < received.size(); ++i) received[i] = unweighted(halves_[i]);
    } else {
      for (std::size_t i = 0; i < received.size(); ++i) received[i] = unweighted(halves_[sent.indices[i]]);
    }
  }

  // Rounding up may have gone beyond the largest float.
  float unweighted(std::uint16_t half) const noexcept {
    constexpr float kLargest = std::numeric_limits<float>::max();
    return std::clamp(from_bf16(half) / weight_, -kLargest, kLargest);
  }

  // The least that an all-reduce can do with: (P-1)/P of the vector out, and as much in.
  void count_bytes() {
    const auto ranks = static_cast<std::uint64_t>(transport_.size());
    const std::uint64_t bytes = dim_ * (bf16_ ? sizeof(std::uint16_t) : sizeof(float)) * (ranks - 1) / ranks;
    traffic_.bytes_up = bytes;
    traffic_.bytes_down = bytes;
    traffic_.trailers_up = traffic_.trailers_down = ranks - 1;
  }

  Transport& transport_;
  std::uint64_t dim_;
  std::vector<float> weights_;
  float weight_;
  bool bf16_;
  SparseVector nothing_;
  Message message_;
  std::vector<Message> trailers_;
  std::vector<std::span<const std::byte>> frames_;  // empty ones: only trailers are sent as messages
  std::vector<std::uint16_t> halves_;
};

}  // namespace

std::unique_ptr<Exchange> make_dense_exchange(Spec& /*spec*/, const ExchangePlan& plan, Transport& transport) {
  return std::make_unique<AllReduceExchange>(plan, transport);
}

}  // namespace sparsewire
