#include "reference/feedback.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace sparsewire::reference {

Feedback::Feedback(std::string_view sparsifier, std::string_view feedback, const Setting& setting)
    : keys_(feedback), ranks_(setting.ranks), sparsifier_(make(sparsifier, setting)) {
  memory_.resize(std::accumulate(setting.tensors.begin(), setting.tensors.end(), std::uint64_t{0}));
  if (keys_.name == "momentum") velocity_.resize(memory_.size());
}

Round Feedback::sift(std::span<const float> gradient, float lr) {
  Round round;
  if (keys_.name == "momentum") {
    round = sift_velocity(gradient);
  } else {
    const float scale = keys_.word("scale", "1") == "lr" ? lr : 1.0F;
    round = sparsifier_->sift(gradient, memory_, scale, static_cast<float>(keys_.number("decay", 1)));
  }
  ++totals_.step;
  totals_.entries = round.out.size();
  totals_.sent_norm2 = round.sent_norm2;
  totals_.memory_norm2 = norm2(memory_);
  totals_.total_error += totals_.memory_norm2;
  if (keys_.name == "none") std::fill(memory_.begin(), memory_.end(), 0.0F);
  return round;
}

// Deep Gradient Compression: the memory accumulates a velocity, which is cleared where an entry is sent.
Round Feedback::sift_velocity(std::span<const float> gradient) {
  const float m = static_cast<float>(keys_.number("m", 0.9));
  float factor = 1;
  if (keys_.has("clip")) {
    const double most = keys_.number("clip", 0) / std::sqrt(static_cast<double>(ranks_));
    factor = static_cast<float>(std::min(1.0, most / std::sqrt(norm2(gradient))));
  }
  velocity_ = accumulated(velocity_, gradient, factor, m);
  Round round = sparsifier_->sift(velocity_, memory_);
  for (std::size_t i = 0; i < round.out.size(); ++i) velocity_[round.out.index(i)] = 0.0F;
  return round;
}

}  // namespace sparsewire::reference
