#include "exchange/aggregator.h"

#include <algorithm>

#include "codec/value_format.h"
#include "core/room.h"
#include "exchange/messages.h"
#include "sparsewire/errors.h"

namespace sparsewire {
namespace {

SifterContext context_of(const ExchangePlan& plan, const ServedRegion& served) {
  if (Spec(plan.config.downlink).has("dense_below")) {
    throw UsageError("[downlink] dense_below= is for tensors, and a server does not know the tensors; leave it out");
  }
  SifterContext context = make_context(plan.config, served.dim);
  context.rank = served.region;
  context.ranks = served.regions;
  context.role = Role::server;
  context.model_dim = plan.dim;
  return context;
}

std::optional<Sifter> make_sifter(const ExchangePlan& plan, const ServedRegion& served) {
  if (plan.config.downlink.empty()) return std::nullopt;
  return Sifter(plan.config.downlink, plan.config.downlink_feedback, context_of(plan, served));
}

// Without a downlink the answer is not rounded: there would be no memory to keep the rounding loss.
std::string codec_of(const ExchangePlan& plan) {
  return plan.config.downlink.empty() ? std::string(exact_format().info.example) : plan.config.downlink_codec;
}

template <class T>
void copy_with_room(const std::vector<T>& from, std::vector<T>& to) {
  resize_with_room(to, from.size());
  std::copy(from.begin(), from.end(), to.begin());
}

}  // namespace

Aggregator::Aggregator(const ExchangePlan& plan, const ServedRegion& served)
    : dim_(served.dim),
      counts_senders_(plan.config.average == Average::senders),
      holds_lr_(parse_feedback(plan.config.feedback).scale_by_lr),
      pool_(plan.config.pool),
      inputs_(plan.weights.size()),
      merger_(plan.config.pool),
      sifter_(make_sifter(plan, served)),
      codec_(codec_of(plan)),
      rounding_(codec_of(plan)) {}

void check_downlink(const ExchangePlan& plan, const ServedRegion& served) {
  if (plan.config.downlink.empty()) return;
  Sifter(plan.config.downlink, plan.config.downlink_feedback,
         context_of(plan, {.region = served.region, .regions = served.regions}));
  Codec(plan.config.downlink_codec);
}

std::optional<std::uint64_t> Aggregator::choose(std::span<const float> shares, float lr) {
  if (counts_senders_) {
    merger_.mean_of_senders(dim_, inputs_, shares, sum_);
  } else {
    merger_.sum(dim_, inputs_, shares, sum_);
  }
  if (!sifter_) return find_overflow(sum_, pool_);
  try {
    sifter_->sift(sum_, answer_, holds_lr_ ? lr : 1.0F);
  } catch (const BadGradient& error) {
    return error.index();
  }
  has_sifted_ = true;
  return std::nullopt;
}

void Aggregator::encode(Message& frame) {
  codec_.encode(chosen(), frame, codec_.rounds() ? &received_ : nullptr, pool_);
}

void Aggregator::round() { rounding_.round(chosen(), received_); }

void Aggregator::read_answer(SparseVector& answer) const {
  answer.dim = dim_;
  answer.draw.units.clear();
  copy_with_room(chosen().indices, answer.indices);
  copy_with_room(codec_.rounds() ? received_ : chosen().values, answer.values);
}

void Aggregator::finish() {
  if (sifter_ && codec_.rounds()) sifter_->keep_rounding_loss(answer_, received_);
}

void Aggregator::undo() {
  if (has_sifted_) sifter_->undo(sum_, answer_);
  has_sifted_ = false;
}

}  // namespace sparsewire
