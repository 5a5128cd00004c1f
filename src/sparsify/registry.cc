#include "sparsify/registry.h"

#include <array>
#include <string>

#include "core/text.h"
#include "kernels/simd.h"
#include "sparsewire/errors.h"

namespace sparsewire {
namespace {

using Make = std::unique_ptr<Sparsifier> (*)(Spec& spec, const Place& place);

struct Entry {
  SparsifierInfo info;
  Make make;
};

constexpr Entry kEntries[] = {
#define SPARSIFIER(name, summary, example) {{#name, summary, example}, make_##name},
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
  std::string names;
  for (const Entry& entry : kEntries) {
    if (entry.info.name == spec.name()) {
      auto sparsifier = entry.make(spec, place);
      spec.finish();
      return sparsifier;
    }
    names += text(names.empty() ? "" : ", ", entry.info.name);
  }
  throw UsageError(text("'", spec.name(), "' is not a sparsifier; there are ", names));
}

}  // namespace sparsewire
