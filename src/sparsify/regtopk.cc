// Top-k with scores that take the update of the last round into account.
//
// Bereyhi, Liang, Boudreau, Afana, Regularized Top-k, 2025 (arXiv 2501.05633). An entry that the other workers
// cancelled in the last round gets a lower score than its magnitude:
//
//   score = |a| * tanh(|1 + Delta| / mu),   Delta = (G - w*s) / (w*s) in form a, (G - w*s) / (w*a) in form b,
//
// at the entries sent in the last round (s: the value sent, G: the update of all workers, w: this worker's weight), and
// Delta = q, a very large number, at all others: there the score is the magnitude, as in Top-k. Only the entries of the
// last round are stored: O(k).
//
// A downlink may withhold an entry that was sent. The paper has none. With withheld=zero the update there is 0, which
// looks as if the others had cancelled the entry; with withheld=unknown the entry counts as not sent.
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "core/slices.h"
#include "core/valid.h"
#include "kernels/second_choice.h"
#include "kernels/sweep.h"
#include "sparsewire/errors.h"
#include "sparsify/budget.h"
#include "sparsify/registry.h"
#include "sparsify/top_selector.h"
#include "sparsify/unit_sparsifier.h"

namespace sparsewire {
namespace {

using kernels::LastRound;

constexpr std::uint64_t kAnyIndex = std::uint64_t{1} << 32;

void sort_by_index(std::vector<LastRound>& round) {
  std::sort(round.begin(), round.end(), [](const LastRound& a, const LastRound& b) { return a.index < b.index; });
}

auto first_from(const std::vector<LastRound>& round, std::size_t index) {
  return std::lower_bound(round.begin(), round.end(), index,
                          [](const LastRound& e, std::size_t wanted) { return e.index < wanted; });
}

class Regularised final : public Score {
 public:
  Regularised(const kernels::Regularisation& by, double q) : by_(by), factor_if_not_sent_(by.factor(1 + q)) {}

  const kernels::Regularisation& regularisation() const noexcept { return by_; }
  float factor_if_not_sent() const noexcept { return factor_if_not_sent_; }

  std::vector<LastRound> last_round;  // by index; empty before the first observe()

  // The factors are at most 1, so that no score exceeds the magnitude.
  void rank(const std::uint32_t* indices, const float* values, std::size_t n,
            std::uint32_t* keys) const noexcept override {
    for (std::size_t i = 0; i < n; ++i) keys[i] = kernels::key_of(factor_if_not_sent_ * std::abs(values[i]));
    if (n == 0) return;
    auto last = first_from(last_round, indices[0]);
    for (std::size_t i = 0; i < n && last != last_round.end(); ++i) {
      while (last != last_round.end() && last->index < indices[i]) ++last;
      if (last == last_round.end() || last->index != indices[i]) continue;
      keys[i] = kernels::key_of(by_.factor_at(*last, values[i]) * std::abs(values[i]));
    }
  }

 private:
  kernels::Regularisation by_;
  float factor_if_not_sent_;
};

class RegTopK final : public UnitSparsifier {
 public:
  RegTopK(Spec& spec, const SifterContext& context)
      : UnitSparsifier(spec, context, context.scope),
        budget_(spec, model_size(), false, model_size()),
        score_(make_score(spec)),
        withheld_is_unknown_(spec.choice("withheld", {"zero", "unknown"}) == "unknown"),
        top_(units()) {}

  void observe(const SparseVector& sent, std::span<const float> update_at_sent,
               std::span<const std::uint8_t> came_back) override {
    if (!is_valid(sent, context().pool) || update_at_sent.size() != sent.size()) {
      throw UsageError("[regtopk] observe() needs a valid SparseVector and one update for each of its entries");
    }
    if (!replaced_) std::swap(score_.last_round, round_before_);
    replaced_ = true;
    remember(sent, update_at_sent, withheld_is_unknown_ ? came_back : std::span<const std::uint8_t>());
    observed_ = true;
  }

  // Entries of workers that had other weights count as not sent in the last round.
  void learn_from(std::span<const Predecessor<FusedSparsifier>> others) override {
    std::vector<LastRound> round;
    bool observed = false;
    for (const Predecessor<FusedSparsifier>& other : others) {
      const auto* const from = dynamic_cast<const RegTopK*>(other.learner);
      if (from == nullptr || !from->observed_ || !other.same_weights) continue;
      observed = true;
      for (const MovedEntries& part : other.moved) {
        for (auto last = first_from(from->score_.last_round, part.from);
             last != from->score_.last_round.end() && last->index - part.from < part.size; ++last) {
          round.push_back({static_cast<std::uint32_t>(last->index - part.from + part.to), last->sent, last->update});
        }
      }
    }
    sort_by_index(round);
    score_.last_round = std::move(round);
    observed_ = observed;
    replaced_ = false;
  }

  SparsifierTraits traits() const override { return {.observes = true, .remembers = true}; }

 private:
  // The last round becomes the entries that were sent. Each thread counts those in its slice, and these counts say
  // where it writes them.
  void remember(const SparseVector& sent, std::span<const float> update, std::span<const std::uint8_t> came_back) {
    const auto counts = [&](std::size_t i) {  // one that the codec rounded to zero was not sent
      return sent.values[i] != 0 && (came_back.empty() || came_back[i] != 0);
    };
    begins_.assign(context().pool == nullptr ? 1 : static_cast<std::size_t>(context().pool->size()), 0);
    const auto for_each = [&](auto work) {
      for_each_slice(context().pool, sent.size(), 8192, [&](std::size_t begin, std::size_t end, int thread) {
        std::size_t at = begins_[static_cast<std::size_t>(thread)];
        for (std::size_t i = begin; i < end; ++i) at = work(i, at);
        begins_[static_cast<std::size_t>(thread)] = at;
      });
    };
    for_each([&](std::size_t i, std::size_t count) { return count + (counts(i) ? 1 : 0); });
    std::size_t size = 0;
    for (std::size_t& begin : begins_) size += std::exchange(begin, size);
    std::vector<LastRound>& round = score_.last_round;
    if (round.capacity() < size) round.reserve(size + size / 4);
    round.resize(size);
    for_each([&](std::size_t i, std::size_t at) {
      if (counts(i)) round[at++] = {sent.index(i), sent.values[i], update[i]};
      return at;
    });
  }

  Regularised make_score(Spec& spec) const {
    const double mu = spec.number("mu", {.min = 0, .above_min = true}).value_or(4);
    const double q = spec.number("q", {}).value_or(1e30);
    const bool form_b = spec.choice("form", {"a", "b"}) == "b";
    const double weight = spec.number("weight", kRatioRange).value_or(context().weight);
    return {{weight, mu, form_b}, q};
  }

  void begin(float /*scale*/, SparseVector& /*out*/) override {
    if (!observed_) score_.last_round.clear();  // the update of the last round is not known
  }

  std::optional<std::size_t> sift_unit(std::size_t u, const Unit& unit, const kernels::ScaledGradient* gradient,
                                       UnitPass& pass) override {
    return top_.take(u, unit, gradient, budget_.k(step(), unit.size), score_, pass);
  }

  // An entry of the last round may rank lower than its magnitude says, and all others rank by it. So the best k are
  // among the entries of the last round, and the best k + (number of these) by magnitude.
  UnitChoice choice(const Unit& unit) const override {
    const Segment& last = unit.segments.back();
    const auto first = first_from(score_.last_round, unit.segments.front().begin);
    const auto after = first_from(score_.last_round, last.begin + last.size);
    const std::size_t k = budget_.k(step(), unit.size);
    return {.k = std::min(k + static_cast<std::size_t>(after - first), unit.size), .second_k = k};
  }
  float factor() const override { return score_.factor_if_not_sent(); }
  std::optional<kernels::SecondChoice> second_choice() const override {
    if (score_.last_round.empty()) return std::nullopt;  // the largest are sent
    return kernels::SecondChoice{.regularisation = &score_.regularisation(), .last_round = score_.last_round};
  }
  void list_more(std::vector<std::uint32_t>& indices) override {
    for (const LastRound& last : score_.last_round) indices.push_back(last.index);
  }
  bool narrows() const override { return true; }
  void narrow(const Unit& unit, Candidates& chosen) override {
    chosen.rank(score_);
    chosen.keep_best(budget_.k(step(), unit.size));
  }

  void end() noexcept override {
    observed_before_ = observed_;
    observed_ = replaced_ = false;
  }
  void rewind() override {
    observed_ = observed_before_;
    if (replaced_) std::swap(score_.last_round, round_before_);
    replaced_ = false;
  }

  void serialize_more(State& state) override {
    state.flag("heard", observed_);
    state.array("echoes", score_.last_round);
    if (!state.saving()) check_last_round(state.remap_index ? kAnyIndex : context().layout.dim());
    if (!state.remap_index) return;
    std::vector<LastRound> kept;
    for (LastRound last : score_.last_round) {
      const auto index = state.remap_index(last.index);
      if (index) kept.push_back({*index, last.sent, last.update});
    }
    sort_by_index(kept);
    score_.last_round = std::move(kept);
  }

  // Of a state that was read. Throws UsageError.
  void check_last_round(std::uint64_t dim) const {
    std::uint64_t next = 0;  // the lowest index that may follow
    for (const LastRound& last : score_.last_round) {
      if (last.index < next || last.index >= dim || !std::isfinite(last.sent) || !std::isfinite(last.update)) {
        throw UsageError("[state] holds entries of the last round that cannot have been sent");
      }
      next = std::uint64_t{last.index} + 1;
    }
  }

  double expected_in(const Unit& unit) const override { return budget_.expected(unit.size); }

  Budget budget_;
  Regularised score_;
  bool withheld_is_unknown_;
  bool observed_ = false;  // observe() was called after the last sift
  bool observed_before_ = false;
  bool replaced_ = false;                // observe() has replaced the last round since the last sift
  std::vector<LastRound> round_before_;  // what it replaced, for rewind()
  std::vector<std::size_t> begins_;      // of each thread's entries in the last round
  TopSelector top_;
};

}  // namespace

std::unique_ptr<FusedSparsifier> make_regtopk(Spec& spec, const SifterContext& context) {
  return std::make_unique<RegTopK>(spec, context);
}

}  // namespace sparsewire
