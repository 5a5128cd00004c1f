#include "sparsify/unit_runner.h"

#include <algorithm>
#include <utility>

#include "sparsify/append.h"
#include "sparsify/scores.h"

namespace sparsewire {
namespace {

constexpr std::size_t kFewEntries = 32768;  // the calling thread copies them faster than all threads would be woken

}  // namespace

UnitRunner::UnitRunner(std::size_t units, const Pool* pool)
    : top_(units), drawers_(pool == nullptr ? 2 : static_cast<std::size_t>(pool->size()) + 1) {}

std::span<const std::uint32_t> UnitRunner::draw(const DrawsFrom& from, std::size_t u, const Unit& unit, std::size_t n,
                                                std::size_t drawer, Pool* pool) {
  return {drawers_[drawer].positions(from.in_unit(u), n, unit.size, pool), n};
}

// Decides which units all threads share: those that would keep one thread busy when the others are done. The others are
// dealt out, so that each thread has about as many entries.
void UnitRunner::deal(const std::vector<Unit>& units, std::size_t threads) {
  std::size_t all = 0;
  for (const Unit& unit : units) all += unit.size;
  most_alone_ = threads == 1 ? all : std::max(kLeastShared, all / (2 * threads));
  alone_entries_ = 0;
  std::size_t shared = 0;
  for (const Unit& unit : units) (is_shared(unit) ? shared : alone_entries_) += is_shared(unit) ? 1 : unit.size;
  results_.resize(units.size());
  begins_.resize(units.size());
  shared_ends_.resize(shared * threads);
  shares_.assign(threads, {});  // last: it says that the rest was done
  std::size_t u = 0;
  std::size_t dealt = 0;
  for (std::size_t t = 0; t < threads; ++t) {
    shares_[t].begin = u;
    for (; u < units.size() && (t + 1 == threads || dealt < alone_entries_ * (t + 1) / threads); ++u) {
      dealt += is_shared(units[u]) ? 0 : units[u].size;
    }
    shares_[t].end = u;
  }
}

std::optional<std::size_t> UnitRunner::sift(const std::vector<Unit>& units, const Rules& rules,
                                            const kernels::ScaledGradient* gradient, ErrorMemory& memory,
                                            SparseVector& out, double& accumulated_norm2) {
  if (shares_.size() != memory.threads()) deal(units, memory.threads());
  std::fill(results_.begin(), results_.end(), Result{});
  memory.begin_units();
  const RegularisedScore regularised(rules.scores);
  const Job job{units, rules, rules.scores.by == nullptr ? magnitude_score() : regularised, gradient, memory};
  try {
    if (const std::size_t bad = sift_all(job); bad != kernels::kNoneBad) {
      take_back(job);
      return lowest_bad(job, bad);
    }
    collect(job, out);
  } catch (...) {  // out of memory
    take_back(job);
    throw;
  }
  accumulated_norm2 = 0;
  for (const Result& result : results_) accumulated_norm2 += result.accumulated_norm2;
  return std::nullopt;
}

// Returns the lowest index with a bad sum of those that were found, or kNoneBad.
std::size_t UnitRunner::sift_all(const Job& job) {
  const auto sift_thread = [&](int thread) {
    const auto t = static_cast<std::size_t>(thread);
    sift_share(job, shares_[t], job.memory.alone(t));
  };
  if (shares_.size() > 1 && alone_entries_ > kLeastShared) {
    job.memory.pool()->run(sift_thread);
  } else {
    for (std::size_t t = 0; t < shares_.size(); ++t) sift_thread(static_cast<int>(t));
  }
  std::size_t bad = kernels::kNoneBad;
  for (Share& share : shares_) bad = std::min(bad, share.bad);
  for (Share& share : shares_) {
    if (share.thrown) std::rethrow_exception(std::exchange(share.thrown, nullptr));
  }
  UnitPass& together = job.memory.together();
  std::size_t ends = 0;
  for (std::size_t u = 0; ends < shared_ends_.size() && bad == kernels::kNoneBad; ++u) {
    if (!is_shared(job.units[u])) continue;
    bad = sift_one(job, u, together).value_or(kernels::kNoneBad);
    for (std::size_t p = 0; p < together.parts(); ++p) shared_ends_[ends++] = together.list(p).chosen_count();
  }
  return bad;
}

void UnitRunner::sift_share(const Job& job, Share& share, UnitPass& pass) noexcept {
  share.bad = kernels::kNoneBad;
  share.thrown = nullptr;
  try {
    for (std::size_t u = share.begin; u < share.end && share.bad == kernels::kNoneBad; ++u) {
      if (!is_shared(job.units[u])) share.bad = sift_one(job, u, pass).value_or(kernels::kNoneBad);
    }
  } catch (...) {
    share.thrown = std::current_exception();
  }
}

std::optional<std::size_t> UnitRunner::sift_one(const Job& job, std::size_t u, UnitPass& pass) {
  Result& result = results_[u];
  result.state = Result::State::taken_back;  // unless the sift succeeds
  if (const auto bad = take(job, u, pass)) return bad;
  result.count = pass.size();
  result.accumulated_norm2 = pass.accumulated_norm2();
  pass.choose();
  result.state = Result::State::done;
  return std::nullopt;
}

// Adds the gradient to a unit and applies its rule: what is to be sent are then the candidates of the pass. Returns the
// lowest index at which a sum is not finite; then every entry of the unit has made a round trip.
std::optional<std::size_t> UnitRunner::take(const Job& job, std::size_t u, UnitPass& pass) {
  const Unit& unit = job.units[u];
  const Rule& rule = job.rules.of_units[u];
  if (rule.kind == Rule::Kind::at_least) return pass.take_all(unit, job.gradient, rule.key());
  if (rule.kind == Rule::Kind::drawn) {
    return pass.take_at(unit, job.gradient, draw(job.rules.draws, u, unit, rule.n, pass.number(), pass.pool()));
  }
  if (const auto bad = top_.take(u, unit, job.gradient, rule.n, job.score, pass)) return bad;
  if (rule.then_draw > 0) {
    pass.rank(DrawnScore(job.rules.draws.among_best()));
    pass.keep_best(rule.then_draw);
  }
  return std::nullopt;
}

// Every entry makes the round trip, so that the memory does not depend on where the step failed.
void UnitRunner::take_back(const Job& job) noexcept {
  job.memory.together().put_chosen_back();
  for (std::size_t t = 0; t < shares_.size(); ++t) job.memory.alone(t).put_chosen_back();
  for (std::size_t u = 0; u < results_.size(); ++u) {
    if (results_[u].state == Result::State::done) job.memory.restore(job.units[u], job.gradient);
    if (results_[u].state == Result::State::not_reached) job.memory.make_round_trip(job.units[u], job.gradient);
  }
}

// Units that were not reached may have a lower index with a bad sum. Such an entry has the number from before the step.
std::size_t UnitRunner::lowest_bad(const Job& job, std::size_t bad) const noexcept {
  const kernels::ScaledGradient& gradient = *job.gradient;
  for (std::size_t u = 0; u < results_.size(); ++u) {
    if (results_[u].state != Result::State::not_reached) continue;
    for (const Segment& segment : job.units[u].segments) {
      for (std::size_t i = segment.begin; i < segment.begin + segment.size && i < bad; ++i) {
        const float sum = gradient.decay * job.memory.at(i) + gradient.scale * kernels::number_at(gradient, i);
        if (kernels::key_of(sum) >= kernels::kInfinityKey) bad = i;
      }
    }
  }
  return bad;
}

void UnitRunner::collect(const Job& job, SparseVector& out) {
  std::size_t count = 0;
  for (std::size_t u = 0; u < results_.size(); ++u) {
    begins_[u] = count;
    count += results_[u].count;
  }
  // A vector fills what resize() adds with zeros. So `out` was not cleared before: it has about this size already.
  if (count > out.size()) make_room(out, count - out.size());
  out.indices.resize(count);
  out.values.resize(count);
  if (shares_.size() > 1 && count > kFewEntries) {
    job.memory.pool()->run([&](int thread) { copy_entries(job, static_cast<std::size_t>(thread), out); });
  } else {
    for (std::size_t t = 0; t < shares_.size(); ++t) copy_entries(job, t, out);
  }
  if (results_.empty() || !job.units.back().dense) return;
  const auto head = static_cast<std::ptrdiff_t>(begins_.back());
  small_.indices.assign(out.indices.begin() + head, out.indices.end());
  small_.values.assign(out.values.begin() + head, out.values.end());
  merge_tail(out, begins_.back(), small_.indices.data(), small_.values.data(), small_.size());
}

// Copies what the thread has in its two lists.
void UnitRunner::copy_entries(const Job& job, std::size_t thread, SparseVector& out) const noexcept {
  const auto copy = [&](const Candidates& list, std::size_t from, std::size_t count, std::size_t to) {
    std::copy_n(list.chosen_indices() + from, count, out.indices.data() + to);
    std::copy_n(list.chosen_values() + from, count, out.values.data() + to);
  };
  std::size_t from = 0;
  for (std::size_t u = shares_[thread].begin; u < shares_[thread].end; ++u) {
    if (is_shared(job.units[u])) continue;
    copy(job.memory.alone(thread).list(0), from, results_[u].count, begins_[u]);
    from += results_[u].count;
  }
  from = 0;
  const std::size_t* ends = shared_ends_.data();
  const std::size_t* ends_before = nullptr;
  for (std::size_t u = 0; ends < shared_ends_.data() + shared_ends_.size(); ++u) {
    if (!is_shared(job.units[u])) continue;
    std::size_t to = begins_[u];
    for (std::size_t p = 0; p < thread; ++p) to += ends[p] - (ends_before == nullptr ? 0 : ends_before[p]);
    copy(job.memory.together().list(thread), from, ends[thread] - from, to);
    from = ends[thread];
    ends_before = ends;
    ends += shares_.size();
  }
}

}  // namespace sparsewire
