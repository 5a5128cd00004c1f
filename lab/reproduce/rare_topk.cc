#include "reproduce/rare_topk.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <vector>

#include "sparsewire/errors.h"

namespace sparsewire::reproduce {
namespace {

constexpr std::uint64_t kMost = 1'000'000;

class RareTopK final : public Sparsifier {
 public:
  explicit RareTopK(Spec& spec)
      : k_(spec.integer("k", 1, kMost).value_or(1)), every_(spec.integer("every", 1, kMost).value_or(1)) {}

  SparsifierTraits traits() const override { return {.entries_vary = true}; }

  // In the last round of every `every_`, so that each entry has had all of them.
  void choose(std::span<const float> accumulated, std::uint64_t step, std::vector<std::uint32_t>& chosen) override {
    if ((step + 1) % every_ != 0) return;
    std::vector<std::uint32_t> order(accumulated.size());
    std::iota(order.begin(), order.end(), 0U);
    const auto end = order.begin() + static_cast<std::ptrdiff_t>(std::min<std::uint64_t>(k_, order.size()));
    std::partial_sort(order.begin(), end, order.end(), [&](std::uint32_t a, std::uint32_t b) {
      const float of_a = std::abs(accumulated[a]);
      const float of_b = std::abs(accumulated[b]);
      return of_a != of_b ? of_a > of_b : a < b;
    });
    chosen.assign(order.begin(), end);
    std::sort(chosen.begin(), chosen.end());
  }

 private:
  std::uint64_t k_;
  std::uint64_t every_;
};

}  // namespace

Registration register_rare_topk() {
  return register_sparsifier({.name = "rare_topk",
                              .summary = "the k largest magnitudes, every n-th round",
                              .example = "rare_topk:k=1,every=4"},
                             [](Spec& spec, const SifterContext& /*context*/) -> std::unique_ptr<Sparsifier> {
                               return std::make_unique<RareTopK>(spec);
                             });
}

}  // namespace sparsewire::reproduce
