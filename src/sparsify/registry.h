// The factories of the sparsifiers: one for each line of sparsifiers.def, defined in the file <name>.cc.
#pragma once

#include <memory>

#include "sparsewire/spec.h"
#include "sparsify/fused_sparsifier.h"

namespace sparsewire {

#define SPARSIFIER(name, summary, example) \
  std::unique_ptr<FusedSparsifier> make_##name(Spec& spec, const SifterContext& context);
#include "sparsify/sparsifiers.def"
#undef SPARSIFIER

}  // namespace sparsewire
