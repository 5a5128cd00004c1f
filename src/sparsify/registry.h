// The factories of the sparsifiers: one for each line of sparsifiers.def, defined in the file <name>.cc.
#pragma once

#include <memory>

#include "core/spec.h"
#include "sparsewire/sparsifier.h"

namespace sparsewire {

#define SPARSIFIER(name, summary, example) \
  std::unique_ptr<Sparsifier> make_##name(Spec& spec, const SifterContext& context);
#include "sparsify/sparsifiers.def"
#undef SPARSIFIER

}  // namespace sparsewire
