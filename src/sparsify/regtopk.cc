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
#include "sparsewire/errors.h"
#include "sparsify/budget.h"
#include "sparsify/registry.h"
#include "sparsify/scores.h"
#include "sparsify/unit_sparsifier.h"

namespace sparsewire {
namespace {

using kernels::LastRound;

constexpr std::uint64_t kAnyIndex = std::uint64_t{1} << 32;

void sort_by_index(std::vector<LastRound>& round) {
  std::sort(round.begin(), round.end(), [](const LastRound& a, const LastRound& b) { return a.index < b.index; });
}

class RegTopK final : public UnitSparsifier {
 public:
  RegTopK(Spec& spec, const SifterContext& context)
      : UnitSparsifier(spec, context, context.scope),
        budget_(spec, model_size(), false, model_size()),
        by_(regularisation(spec)),
        elsewhere_(by_.factor(1 + spec.number("q", {}).value_or(1e30))),
        withheld_is_unknown_(spec.choice("withheld", {"zero", "unknown"}) == "unknown") {}

  void observe(const SparseVector& sent, std::span<const float> update_at_sent,
               std::span<const std::uint8_t> came_back) override {
    if (!is_valid(sent, context().pool) || update_at_sent.size() != sent.size()) {
      throw UsageError("[regtopk] observe() needs a valid SparseVector and one update for each of its entries");
    }
    if (!replaced_) std::swap(last_round_, round_before_);
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
        const std::span<const LastRound> theirs(from->last_round_);
        for (auto last = first_from(theirs, part.from); last != theirs.end() && last->index - part.from < part.size;
             ++last) {
          round.push_back({static_cast<std::uint32_t>(last->index - part.from + part.to), last->sent, last->update});
        }
      }
    }
    sort_by_index(round);
    last_round_ = std::move(round);
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
    std::vector<LastRound>& round = last_round_;
    if (round.capacity() < size) round.reserve(size + size / 4);
    round.resize(size);
    for_each([&](std::size_t i, std::size_t at) {
      if (counts(i)) round[at++] = {sent.index(i), sent.values[i], update[i]};
      return at;
    });
  }

  kernels::Regularisation regularisation(Spec& spec) const {
    const double mu = spec.number("mu", {.min = 0, .above_min = true}).value_or(4);
    const bool form_b = spec.choice("form", {"a", "b"}) == "b";
    const double weight = spec.number("weight", kRatioRange).value_or(context().weight);
    return {weight, mu, form_b};
  }

  void begin(float /*scale*/, SparseVector& /*out*/) override {
    if (!observed_) last_round_.clear();  // the update of the last round is not known
  }

  Rule rule(const Unit& unit) const override { return {Rule::Kind::best, budget_.k(step(), unit.size)}; }
  std::optional<double> rule_depends_on() const override { return budget_.ratio(step()); }
  Scores scores() const override { return {&by_, last_round_, elsewhere_}; }

  void end(std::uint32_t /*kth*/) noexcept override {
    observed_before_ = observed_;
    observed_ = replaced_ = false;
  }
  void rewind() override {
    observed_ = observed_before_;
    if (replaced_) std::swap(last_round_, round_before_);
    replaced_ = false;
  }

  void serialize_more(State& state) override {
    state.flag("heard", observed_);
    state.array("echoes", last_round_);
    if (!state.saving()) check_last_round(state.remap_index ? kAnyIndex : context().layout.dim());
    if (!state.remap_index) return;
    std::vector<LastRound> kept;
    for (LastRound last : last_round_) {
      const auto index = state.remap_index(last.index);
      if (index) kept.push_back({*index, last.sent, last.update});
    }
    sort_by_index(kept);
    last_round_ = std::move(kept);
  }

  // Of a state that was read. Throws UsageError.
  void check_last_round(std::uint64_t dim) const {
    std::uint64_t next = 0;  // the lowest index that may follow
    for (const LastRound& last : last_round_) {
      if (last.index < next || last.index >= dim || !std::isfinite(last.sent) || !std::isfinite(last.update)) {
        throw UsageError("[state] holds entries of the last round that cannot have been sent");
      }
      next = std::uint64_t{last.index} + 1;
    }
  }

  double expected_in(const Unit& unit) const override { return budget_.expected(unit.size); }

  Budget budget_;
  kernels::Regularisation by_;
  float elsewhere_;                    // the factor of entries that were not sent
  std::vector<LastRound> last_round_;  // by index; empty before the first observe()
  bool withheld_is_unknown_;
  bool observed_ = false;  // observe() was called after the last sift
  bool observed_before_ = false;
  bool replaced_ = false;                // observe() has replaced the last round since the last sift
  std::vector<LastRound> round_before_;  // what it replaced, for rewind()
  std::vector<std::size_t> begins_;      // of each thread's entries in the last round
};

}  // namespace

std::unique_ptr<FusedSparsifier> make_regtopk(Spec& spec, const SifterContext& context) {
  return std::make_unique<RegTopK>(spec, context);
}

}  // namespace sparsewire
