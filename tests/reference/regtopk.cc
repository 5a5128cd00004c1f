// RegTop-k (Bereyhi et al., 2025), the formula applied to dense vectors:
//
//   score = |a| * tanh(|1 + Delta| / mu),   Delta = (G - w*s)/(w*s)  (form a)   or   (G - w*s)/(w*a)  (form b)
//
// at the entries sent in the last round, Delta = q at all others.
#include <cmath>
#include <optional>

#include "reference/reference.h"

namespace sparsewire::reference {
namespace {

class RegTopK final : public Reference {
 public:
  RegTopK(std::string_view spec, const Setting& setting)
      : Reference(spec, setting),
        mu_(keys_.number("mu", 4)),
        q_(keys_.number("q", 1e30)),
        weight_(keys_.number("weight", setting.weight != 0 ? setting.weight : 1.0 / setting.ranks)),
        form_b_(keys_.word("form", "a") == "b") {}

  void observe(const SparseVector& sent, std::span<const float> update_at_sent,
               std::span<const std::uint8_t> came_back) override {
    last_ = LastRound{std::vector<double>(sent.dim), std::vector<double>(sent.dim)};
    for (std::size_t i = 0; i < sent.size(); ++i) {
      const bool is_unknown = keys_.word("withheld", "zero") == "unknown" && !came_back.empty() && came_back[i] == 0;
      if (is_unknown) continue;
      last_->s[sent.index(i)] = double{sent.values[i]};
      last_->G[sent.index(i)] = double{update_at_sent[i]};
    }
  }

 private:
  struct LastRound {
    std::vector<double> s;  // 0: not sent
    std::vector<double> G;
  };

  std::vector<std::uint32_t> choose(Round& round, float /*scale*/) override {
    const std::vector<float>& a = round.accumulated;
    for (std::size_t i = 0; i < a.size(); ++i) {
      const float factor = static_cast<float>(std::tanh(std::fabs(1 + delta(i, a[i])) / mu_));
      round.scores.push_back(std::fabs(a[i]) * factor);
    }
    last_.reset();
    const Partition all = partition(keys_, setting_, step_);
    round.units = all.units;
    std::vector<std::uint32_t> chosen = non_zero(all.whole, a);
    for (const Unit& unit : all.units) {
      const std::vector<std::uint32_t> more = largest(unit.entries, a, round.scores, unit.k);
      chosen.insert(chosen.end(), more.begin(), more.end());
    }
    return chosen;
  }

  double delta(std::size_t i, float a) const {
    if (!last_ || last_->s[i] == 0) return q_;
    const double own = weight_ * last_->s[i];
    return (last_->G[i] - own) / (form_b_ ? weight_ * double{a} : own);
  }

  const double mu_;
  const double q_;
  const double weight_;
  const bool form_b_;
  std::optional<LastRound> last_;  // empty: nothing was observed since the last sift
};

}  // namespace

std::unique_ptr<Reference> make_regtopk(std::string_view spec, const Setting& setting) {
  return std::make_unique<RegTopK>(spec, setting);
}

}  // namespace sparsewire::reference
