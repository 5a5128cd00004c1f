// All values, without indices, by the transport's own all-reduce. It is the baseline, so it must be as fast as a bare
// all-reduce. Where all ranks are threads of one process and have their gradients on one device, the values stay there.
#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>

#include "codec/value_format.h"
#include "exchange/clock.h"
#include "exchange/exchange.h"
#include "exchange/messages.h"
#include "sparsewire/errors.h"
#include "sparsewire/support/half.h"
#include "sparsify/device_memory.h"

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

  void sift(Sifter& sifter, const Gradient& gradient, float lr, float unscale, SparseVector& sent) override {
    taken_.reset();
    const bool is_on_device = gradient.device.kind != Device::host;
    if (is_on_device && transport_.is_one_process() && !bf16_) {  // else `sent` keeps its size: nothing has to fill it
      sent.clear(dim_);
      taken_ = sifter.sift_all(gradient, lr, unscale);
    }
    if (!taken_) sifter.sift(gradient, sent, lr, unscale);
  }

  StepOutcome run(const SparseVector& given, const StepTrailer& trailer, std::vector<float>& received,
                  SparseVector& total) override {
    traffic_ = {};
    thrown_ = nullptr;
    StageClock clock;
    // An all-reduce cannot carry a trailer, so the trailers go first.
    StepTrailer own = trailer;
    message_.clear();
    if (taken_) append_part(own);
    append(message_, own);
    clock.lap(traffic_.ns_encode);
    transport_.all_gather(message_, trailers_);
    StepOutcome outcome = parse_trailers(trailers_, weights_, shares_, frames_);
    clock.lap(traffic_.ns_transport);
    has_sum_on_device_ = false;
    received.clear();
    total.clear(dim_);
    if (!outcome.failure && find_parts()) {
      add_on_device(outcome, clock);
      return outcome;
    }
    const SparseVector& sent = taken_ && !outcome.failure ? bring(clock) : given;

    // One entry more than the model has says how many ranks could not read the trailers.
    const bool failed = outcome.failure.has_value();
    const bool is_unread = failed && outcome.failure->kind > Failure::Kind::error;
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
  DeviceSum* sum_on_device() noexcept override { return has_sum_on_device_ ? sum_.get() : nullptr; }

 private:
  // Where a rank has its part of the sum. It travels where other exchanges have a frame, between threads of a process.
  struct Part {
    int device;
    const float* numbers;
  };

  // If that fails, the trailer says so.
  void append_part(StepTrailer& trailer) {
    try {
      if (sum_ == nullptr || sum_device_ != taken_->device) {
        sum_ = make_device_sum(taken_->device, dim_);
        sum_device_ = taken_->device;
      }
      const Part part{sum_device_.index, sum_->give(*taken_, weight_)};
      const auto bytes = std::as_bytes(std::span(&part, 1));
      message_.insert(message_.end(), bytes.begin(), bytes.end());
    } catch (const std::exception& error) {
      thrown_ = std::current_exception();
      trailer.failure = failure_of(trailer.rank, error);
    }
  }

  // Whether all ranks have their parts on one device: the same on all ranks.
  bool find_parts() {
    parts_.clear();
    for (const std::span<const std::byte> bytes : frames_) {
      if (bytes.size() != sizeof(Part)) return false;
      Part part;
      std::memcpy(&part, bytes.data(), sizeof(Part));
      if (part.device != sum_device_.index) return false;
      parts_.push_back(part.numbers);
    }
    return true;
  }

  // A rank may leave only when the others have read its part. (If one of them is late beyond the deadline, it is lost
  // anyway, and its device may fail.)
  void add_on_device(StepOutcome& outcome, StageClock& clock) {
    const auto bad = sum_->add(parts_);
    clock.lap(traffic_.ns_merge);
    transport_.barrier();
    clock.lap(traffic_.ns_transport);
    if (bad) return outcome.fail({.rank = 0, .index = *bad});  // all ranks find the same
    has_sum_on_device_ = true;
    count_bytes();
  }

  // What stayed on the device, for ranks that have theirs elsewhere.
  const SparseVector& bring(StageClock& clock) {
    brought_.dim = dim_;
    brought_.values.resize(dim_);
    make_device_arrays(taken_->device)->read(*taken_, brought_.values.data());
    clock.lap(traffic_.ns_encode);
    return brought_;
  }

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
  const std::vector<float> weights_;
  std::vector<float> shares_;  // the same: an all-reduce knows no weights of a step
  float weight_;
  bool bf16_;
  SparseVector nothing_;
  Message message_;
  std::vector<Message> trailers_;
  std::vector<std::span<const std::byte>> frames_;  // empty, or a Part each
  std::vector<std::uint16_t> halves_;

  std::optional<Gradient> taken_;  // what this rank sends, if it stays on a device
  std::unique_ptr<DeviceSum> sum_;
  Device sum_device_;
  std::vector<const float*> parts_;  // of all ranks
  bool has_sum_on_device_ = false;
  SparseVector brought_;
};

}  // namespace

std::unique_ptr<Exchange> make_dense_exchange(Spec& /*spec*/, const ExchangePlan& plan, Transport& transport) {
  return std::make_unique<AllReduceExchange>(plan, transport);
}

}  // namespace sparsewire
