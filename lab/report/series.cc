#include "report/series.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace sparsewire::report {
namespace {

constexpr std::size_t kOfABucket = 3;  // its first row, the smallest and the largest loss

// What is not finite is the largest.
double rank_of(double loss) { return std::isfinite(loss) ? loss : std::numeric_limits<double>::infinity(); }

}  // namespace

std::size_t Series::find(std::string_view name) const noexcept {
  const auto found = std::find(names_.begin(), names_.end(), name);
  return found == names_.end() ? kNoColumn : static_cast<std::size_t>(found - names_.begin());
}

std::size_t Series::column(std::string_view name) {
  const std::size_t found = find(name);
  if (found != kNoColumn || names_.size() == kMostColumns) return found;
  names_.emplace_back(name);
  return names_.size() - 1;
}

// Buckets have 2^n lines and begin at multiples of that, so those of a later thinning are made of whole ones of an
// earlier: the first, smallest and largest of a large bucket are among those of the small ones.
void Series::thin(std::size_t most) {
  if (rows_.size() <= most) return;
  is_thinned_ = true;
  const auto evaluations = static_cast<std::size_t>(
      std::count_if(rows_.begin(), rows_.end(), [](const Row& row) { return row.is_evaluation; }));
  if (evaluations > most / 2) has_special_evaluations_ = false;
  const std::size_t always = 2 + (has_special_evaluations_ ? evaluations : 0);
  const std::uint64_t lines = rows_.back().line + 1;
  std::uint64_t width = 1;
  while (kOfABucket * ((lines + width - 1) / width) + always > most && width < lines) width *= 2;

  const std::size_t loss = find("loss");
  std::vector<bool> is_kept(rows_.size(), false);
  for (std::size_t from = 0; from < rows_.size();) {
    std::size_t smallest = rows_.size();
    std::size_t largest = rows_.size();
    std::size_t i = from;
    for (; i < rows_.size() && rows_[i].line / width == rows_[from].line / width; ++i) {
      if (has_special_evaluations_ && rows_[i].is_evaluation) is_kept[i] = true;
      const double one = at(rows_[i], loss);
      if (is_missing(one)) continue;
      if (smallest == rows_.size() || rank_of(one) < rank_of(at(rows_[smallest], loss))) smallest = i;
      if (largest == rows_.size() || rank_of(one) > rank_of(at(rows_[largest], loss))) largest = i;
    }
    is_kept[from] = true;
    if (smallest < rows_.size()) is_kept[smallest] = is_kept[largest] = true;
    from = i;
  }
  is_kept.back() = true;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    if (!is_kept[i]) continue;
    if (kept != i) rows_[kept] = std::move(rows_[i]);
    ++kept;
  }
  rows_.resize(kept);
}

}  // namespace sparsewire::report
