#include "sparsify/registry.h"

#include <fmt/core.h>

#include "core/registry.h"
#include "kernels/simd.h"
#include "sparsewire/errors.h"

namespace sparsewire {
namespace {

using Make = std::unique_ptr<Sparsifier> (*)(Spec& spec, const SifterContext& context);

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

std::unique_ptr<Sparsifier> make_sparsifier(std::string_view spec_text, const SifterContext& context) {
  Spec spec(spec_text);
  if (context.ranks < 1 || context.rank < 0 || context.rank >= context.ranks) {
    throw UsageError(fmt::format("[{}] rank={} with ranks={}: the rank must be in [0, ranks)", spec.name(),
                                 context.rank, context.ranks));
  }
  if (!Range{.min = 0, .max = 1}.holds(context.weight)) {
    throw UsageError(fmt::format("[{}] weight={} is not in [0, 1]", spec.name(), context.weight));
  }
  kernels::choose_simd();  // may throw; the kernels must not
  auto sparsifier = kMakers[find_by_name(kInfos, spec.name(), "a sparsifier")](spec, context);
  spec.finish();
  return sparsifier;
}

}  // namespace sparsewire
