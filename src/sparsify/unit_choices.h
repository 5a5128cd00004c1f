// What is taken out of each unit of a model on a device, with a number that says whether it has changed.
//
// A model in chunks has hundreds of thousands of units, and nearly always what is taken out of them is what was taken
// out in the step before. Whoever has made something of the choices, such as tables on a device, keeps their
// ChoicesKey: as long as it is the same, so are the choices, and nobody has to go through them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/sweep.h"
#include "sparsify/units.h"

namespace sparsewire {

// What is taken out of a unit.
struct UnitChoice {
  std::uint64_t k = 0;  // the k largest that are not zero; 0: all entries whose key is at least `threshold`
  std::uint32_t threshold = kernels::kInfinityKey;
  std::uint64_t second_k = 0;  // so many are sent by the second choice, if there is one; 0: all that are taken

  friend bool operator==(const UnitChoice&, const UnitChoice&) = default;
};

// Equal keys stand for equal choices of the same units, if these stay at their address.
struct ChoicesKey {
  const Unit* units = nullptr;
  std::size_t count = 0;
  std::uint64_t version = 0;
  float factor = 1;  // of magnitudes
  int by = 0;        // what the device decides by: it needs other tables for each

  friend bool operator==(const ChoicesKey&, const ChoicesKey&) = default;
};

class UnitChoices {
 public:
  // The choice of unit number u becomes choice_of(u). COST: O(units).
  template <class ChoiceOf>
  void make(std::size_t count, ChoiceOf choice_of) {
    bool has_changed = all_.size() != count;
    all_.resize(count);
    if (has_changed) ++version_;
    for (std::size_t u = 0; u < count; ++u) {
      const UnitChoice one = choice_of(u);
      if (one == all_[u]) continue;
      if (!has_changed) ++version_;  // before the first change: choice_of() may throw after it
      has_changed = true;
      all_[u] = one;
    }
  }

  std::span<const UnitChoice> all() const noexcept { return all_; }
  ChoicesKey key(std::span<const Unit> units, float factor, int by) const noexcept {
    return {units.data(), units.size(), version_, factor, by};
  }

 private:
  std::vector<UnitChoice> all_;
  std::uint64_t version_ = 0;
};

}  // namespace sparsewire
