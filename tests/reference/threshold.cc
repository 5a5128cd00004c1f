// The hard threshold (Sahu et al., 2021): lambda is given, or follows from the rule 1/(2 sqrt k), or is measured over
// the first steps.
#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/reference.h"

namespace sparsewire::reference {
namespace {

class Threshold final : public Reference {
 public:
  Threshold(std::string_view spec, const Setting& setting) : Reference(spec, setting) {
    if (keys_.has("lambda")) {
      lambda_ = static_cast<float>(keys_.number("lambda", 0));
    } else if (!keys_.has("rule")) {
      calibrate_ = keys_.count("calibrate", static_cast<std::uint64_t>(std::ceil(1 / keys_.number("ratio", 1))));
    }
  }

  float* vote() override { return open_ ? &lambda_ : nullptr; }

 private:
  std::vector<std::uint32_t> choose(Round& round, float scale) override {
    const std::vector<float>& a = round.accumulated;
    Setting as_model = setting_;
    as_model.by_layer = false;
    const Partition all = partition(keys_, as_model, step_);
    const std::vector<std::uint32_t> in_unit = all.units.empty() ? std::vector<std::uint32_t>{} : all.units[0].entries;
    open_ = false;

    std::vector<std::uint32_t> chosen;
    if (kth_.size() < calibrate_) {
      const std::uint64_t k = all.units.empty() ? 0 : all.units[0].k;
      chosen = largest(in_unit, a, magnitudes(a), k);
      record(chosen, a, k, scale);
    } else {
      // lambda is in units of the gradient, and the memory holds scale*gradient.
      const double lambda = keys_.has("rule") ? by_rule(in_unit.size()) : double{lambda_};
      const auto threshold = static_cast<float>(lambda * std::fabs(double{scale}));
      for (const std::uint32_t i : non_zero(in_unit, a)) {
        const bool is_nothing_new = scale == 0 && lambda > 0;
        if (std::fabs(a[i]) >= threshold && !is_nothing_new) chosen.push_back(i);
      }
    }
    const std::vector<std::uint32_t> small = non_zero(all.whole, a);
    chosen.insert(chosen.end(), small.begin(), small.end());
    return chosen;
  }

  double by_rule(std::uint64_t n) const {
    const double k = static_cast<double>(k_of(keys_.number("ratio", 0), n));
    return double{static_cast<float>(1 / (2 * std::sqrt(k)))};
  }

  void record(const std::vector<std::uint32_t>& chosen, const std::vector<float>& a, std::uint64_t k, float scale) {
    if (scale == 0) return;  // nothing can be measured
    float kth = 0;
    if (k > 0 && chosen.size() == k) {
      kth = std::numeric_limits<float>::infinity();
      for (const std::uint32_t i : chosen) kth = std::min(kth, std::fabs(a[i]));
    }
    kth = static_cast<float>(double{kth} / std::fabs(double{scale}));
    kth_.push_back(kth);
    if (kth_.size() < calibrate_) return;
    const std::size_t count = std::max<std::size_t>(1, kth_.size() / 10);
    std::vector<float> last(kth_.end() - static_cast<std::ptrdiff_t>(count), kth_.end());
    std::sort(last.begin(), last.end());
    lambda_ = last[(count - 1) / 2];
    open_ = true;
  }

  float lambda_ = std::numeric_limits<float>::quiet_NaN();  // until it is known
  std::uint64_t calibrate_ = 0;
  std::vector<float> kth_;  // the k-th magnitude of each step so far
  bool open_ = false;       // the ranks still have to agree on lambda
};

}  // namespace

std::unique_ptr<Reference> make_threshold(std::string_view spec, const Setting& setting) {
  return std::make_unique<Threshold>(spec, setting);
}

}  // namespace sparsewire::reference
