#include "answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

namespace sparsewire::bench {
namespace {

using Indices = std::vector<std::uint32_t>;

std::vector<float> sums(const Answer& answer) {
  std::vector<float> sums(answer.before.size());
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = answer.before[i] + answer.gradient[i];
  return sums;
}

// The rank-th largest magnitude; ranks start at 1.
float magnitude_of_rank(const std::vector<float>& sums, std::size_t rank) {
  std::vector<float> magnitudes(sums.size());
  std::transform(sums.begin(), sums.end(), magnitudes.begin(), [](float sum) { return std::abs(sum); });
  const auto kth = magnitudes.begin() + static_cast<std::ptrdiff_t>(rank - 1);
  std::nth_element(magnitudes.begin(), kth, magnitudes.end(), std::greater<>());
  return *kth;
}

// Checks that each sum of memory and gradient is either sent or stays in the memory, and that indices ascend.
std::string fault_in_mass(const Answer& answer, const std::vector<float>& sums) {
  const SparseVector& sent = answer.sent;
  if (!sent.is_full() && sent.indices.size() != sent.values.size()) return "the numbers of indices and values differ";
  std::size_t next = 0;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const bool is_sent = next < sent.size() && sent.index(next) == i;
    const float value = is_sent ? sent.values[next++] : 0.0F;
    if (value != (is_sent ? sums[i] : 0.0F) || answer.after[i] != (is_sent ? 0.0F : sums[i])) {
      return fmt::format("entry {}: the sum is {}, but {} is sent and {} stays", i, sums[i], value, answer.after[i]);
    }
  }
  return next == sent.size() ? "" : fmt::format("indices do not ascend at {}", next);
}

Indices top_k(const std::vector<float>& sums, std::size_t k) {
  const float kth = magnitude_of_rank(sums, k);
  const auto above =
      static_cast<std::size_t>(std::count_if(sums.begin(), sums.end(), [&](float sum) { return std::abs(sum) > kth; }));
  std::size_t ties = k - above;  // the lower index wins
  Indices chosen;
  for (std::uint32_t i = 0; i < sums.size(); ++i) {
    const float magnitude = std::abs(sums[i]);
    if (magnitude == 0) continue;
    if (magnitude > kth || (magnitude == kth && ties > 0)) chosen.push_back(i);
    if (magnitude == kth && ties > 0) --ties;
  }
  return chosen;
}

Indices above_threshold(const std::vector<float>& sums, float threshold) {
  Indices chosen;
  for (std::uint32_t i = 0; i < sums.size(); ++i) {
    if (std::abs(sums[i]) >= threshold && sums[i] != 0) chosen.push_back(i);
  }
  return chosen;
}

std::string fault_in_choice(const Indices& sent, const Indices& expected) {
  if (sent == expected) return "";
  const auto differ = std::mismatch(sent.begin(), sent.end(), expected.begin(), expected.end()).first - sent.begin();
  return fmt::format("{} entries sent, {} expected, the first difference at number {}", sent.size(), expected.size(),
                     differ);
}

std::string fault_in_count(const Answer& answer) {
  if (answer.sent.size() == answer.k) return "";
  return fmt::format("{} entries sent, {} expected", answer.sent.size(), answer.k);
}

// Checks that every entry sent is among the r largest.
std::string fault_in_rtopk(const Answer& answer, const std::vector<float>& sums) {
  const float least = magnitude_of_rank(sums, answer.r);
  for (const float value : answer.sent.values) {
    if (std::abs(value) < least) return fmt::format("{} is sent and not among the {} largest", value, answer.r);
  }
  return fault_in_count(answer);
}

// A score is |a| for an entry not sent in the last step and at most |a| for the others; so no entry of the first kind
// that stays may be larger than one that is sent.
std::string fault_in_regtopk(const Answer& answer) {
  float least = INFINITY;
  for (const float value : answer.sent.values) least = std::min(least, std::abs(value));
  std::size_t next = 0;
  const std::span<const std::uint32_t> last = answer.sent_last_step;
  for (std::size_t i = 0; i < answer.after.size(); ++i) {
    const bool has_own_score = next < last.size() && last[next] == i;
    if (has_own_score) ++next;
    if (!has_own_score && std::abs(answer.after[i]) > least) {
      return fmt::format("entry {} stays with {}, larger than {}, which is sent", i, answer.after[i], least);
    }
  }
  return fault_in_count(answer);
}

}  // namespace

std::string fault(const Answer& answer) {
  const std::vector<float> sum = sums(answer);
  if (std::string wrong = fault_in_mass(answer, sum); !wrong.empty()) return wrong;
  const std::string_view name = answer.sparsifier;
  if (name == "topk") return fault_in_choice(answer.sent.indices, top_k(sum, answer.k));
  if (name == "threshold") return fault_in_choice(answer.sent.indices, above_threshold(sum, answer.threshold));
  if (name == "rtopk") return fault_in_rtopk(answer, sum);
  if (name == "regtopk") return fault_in_regtopk(answer);
  if (name == "randomk") return fault_in_count(answer);
  if (name == "dense") return answer.sent.is_full() ? "" : "not every entry is sent";
  return fmt::format("the bench has no check for {}", name);
}

}  // namespace sparsewire::bench
