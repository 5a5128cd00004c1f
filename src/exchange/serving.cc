#include "exchange/serving.h"

#include <algorithm>
#include <cmath>

#include "sparsewire/errors.h"

namespace sparsewire {
namespace {

Place place_of(const ExchangePlan& plan, const ServedRegion& served) {
  if (Spec(plan.downlink).has("dense_below")) {
    throw UsageError("[downlink] dense_below= is for tensors, and a server knows none");
  }
  Place place{.layout = served.dim};
  place.rank = served.region;
  place.ranks = served.regions;
  place.seed = plan.seed;
  place.first_step = plan.first_step;
  place.role = Role::server;
  place.whole = plan.dim;
  place.pool = plan.pool;
  return place;
}

std::optional<Sifter> make_sifter(const ExchangePlan& plan, const ServedRegion& served) {
  if (plan.downlink.empty()) return std::nullopt;
  return Sifter(plan.downlink, "ef", place_of(plan, served));
}

// The union must arrive as it is: a server without a memory could not keep what rounding takes.
std::string codec_of(const ExchangePlan& plan) {
  return plan.downlink.empty() ? "auto:values=f32" : plan.downlink_codec;
}

}  // namespace

Serving::Serving(const ExchangePlan& plan, const ServedRegion& served)
    : merger_(served.dim), sifter_(make_sifter(plan, served)), codec_(codec_of(plan)) {}

void check_downlink(const ExchangePlan& plan, const ServedRegion& served) {
  if (plan.downlink.empty()) return;
  make_sparsifier(plan.downlink, place_of(plan, served));
  Codec(plan.downlink_codec);
}

std::optional<std::uint64_t> Serving::answer(Message& frame) {
  has_answered_ = false;
  if (sifter_) {
    try {
      sifter_->sift(Gradient(merger_.sums()), answer_);
    } catch (const BadGradient& error) {
      return error.index();
    }
    has_answered_ = true;
  } else {
    merger_.copy_to(answer_);
    if (const auto bad = find_overflow(answer_)) return bad;
  }
  codec_.encode(answer_, frame, sifter_ ? &received_ : nullptr);
  return std::nullopt;
}

void Serving::finish() {
  if (sifter_) sifter_->keep_rounding_loss(answer_, received_);
  has_answered_ = false;
  merger_.clear();
}

void Serving::undo() {
  if (has_answered_) sifter_->undo(Gradient(merger_.sums()), answer_);
  has_answered_ = false;
  merger_.clear();
}

std::optional<std::uint64_t> find_overflow(const SparseVector& total) noexcept {
  const auto bad = std::find_if(total.values.begin(), total.values.end(), [](float v) { return !std::isfinite(v); });
  if (bad == total.values.end()) return std::nullopt;
  return total.index(static_cast<std::size_t>(bad - total.values.begin()));
}

std::size_t write_message(Codec& codec, const SparseVector& sent, const Word& mine, std::vector<float>& received,
                          Message& message) {
  received.clear();
  message.clear();
  if (!mine.failed) codec.encode(sent, message, codec.rounds() ? &received : nullptr);
  const std::size_t frame_size = message.size();
  append(message, mine);
  return frame_size;
}

std::optional<Failure> decode_from(std::span<const std::byte> frame, int from, std::uint64_t dim,
                                   SparseVector& vector) {
  const DecodeStatus status = decode(frame, vector);
  if (status != DecodeStatus::ok) {
    return Failure{Failure::Kind::unreadable, from, static_cast<std::uint64_t>(status)};
  }
  if (vector.dim != dim) return Failure{Failure::Kind::unreadable, from, Failure::kOtherEntries};
  return std::nullopt;
}

}  // namespace sparsewire
