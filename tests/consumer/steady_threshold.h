// Sends every entry at or above a threshold, and moves the threshold until `ratio` of the entries are sent.
#pragma once

#include <sparsewire/errors.h>
#include <sparsewire/sparsifier.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <vector>

class SteadyThreshold final : public sparsewire::Sparsifier {
 public:
  explicit SteadyThreshold(double wanted) : wanted_(wanted) {}

  sparsewire::SparsifierTraits traits() const override { return {.entries_vary = true, .remembers = true}; }
  double expected_entries() const override { return wanted_; }

  void choose(std::span<const float> accumulated, std::uint64_t /*step*/, std::vector<std::uint32_t>& chosen) override {
    before_ = threshold_;
    if (threshold_ == 0) {  // in the first step: half of the largest magnitude
      for (const float number : accumulated) threshold_ = std::max(threshold_, std::abs(number) / 2);
    }
    for (std::size_t i = 0; i < accumulated.size(); ++i) {
      if (std::abs(accumulated[i]) >= threshold_) chosen.push_back(static_cast<std::uint32_t>(i));
    }
    const bool too_many = static_cast<double>(chosen.size()) > wanted_;
    threshold_ = std::min(threshold_ * (too_many ? 1.25F : 0.8F), std::numeric_limits<float>::max());
  }

  void rewind() override { threshold_ = before_; }

  void serialize(sparsewire::State& state) override {
    state.value("threshold", threshold_);
    if (!std::isfinite(threshold_) || threshold_ < 0) {
      throw sparsewire::UsageError("[steady_threshold] the saved threshold is not in [0, inf)");
    }
  }

 private:
  double wanted_;  // entries in a step
  float threshold_ = 0;
  float before_ = 0;  // the last choose()
};

// From now on "steady_threshold:ratio=0.01" is a sparsifier, until the result is destroyed.
inline sparsewire::Registration register_steady_threshold() {
  return sparsewire::register_sparsifier(
      {"steady_threshold", "magnitudes above a moving threshold", "steady_threshold:ratio=0.01"},
      [](sparsewire::Spec& spec, const sparsewire::SifterContext& context) -> std::unique_ptr<sparsewire::Sparsifier> {
        const double ratio = spec.number("ratio", sparsewire::kRatioRange).value_or(0.01);
        return std::make_unique<SteadyThreshold>(ratio * static_cast<double>(context.layout.dim()));
      });
}
