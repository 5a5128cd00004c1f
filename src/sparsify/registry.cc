#include "sparsify/registry.h"

#include "core/registry.h"
#include "core/text.h"
#include "kernels/simd.h"
#include "sparsewire/errors.h"

namespace sparsewire {
namespace {

using Make = std::unique_ptr<Sparsifier> (*)(Spec& spec, const Place& place);

constexpr Make kMakers[] = {
#define SPARSIFIER(name, summary, example) make_##name,
#include "sparsify/sparsifiers.def"
#undef SPARSIFIER
};

constexpr SparsifierInfo kInfos[] = {
#define SPARSIFIER(name, summary, example) {#name, summary, example},
#include "sparsify/sparsifiers.def"
#undef SPARSIFIER
};

}  // namespace

std::span<const SparsifierInfo> sparsifiers() noexcept { return kInfos; }

std::unique_ptr<Sparsifier> make_sparsifier(std::string_view spec_text, const Place& place) {
  Spec spec(spec_text);
  if (place.ranks < 1 || place.rank < 0 || place.rank >= place.ranks) {
    throw UsageError(text("[", spec.name(), "] rank ", place.rank, " of ", place.ranks, " is not in [0, ranks)"));
  }
  if (!Range{.min = 0, .max = 1}.holds(place.weight)) {
    throw UsageError(text("[", spec.name(), "] weight ", place.weight, " is not in [0, 1]"));
  }
  kernels::choose_simd();  // may throw; the kernels must not
  auto sparsifier = kMakers[find_by_name(kInfos, spec.name(), "a sparsifier")](spec, place);
  spec.finish();
  return sparsifier;
}

}  // namespace sparsewire
