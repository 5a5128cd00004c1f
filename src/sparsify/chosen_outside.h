// Makes a sparsifier that somebody else wrote usable by a Sifter.
#pragma once

#include <memory>
#include <string>

#include "sparsify/fused_sparsifier.h"

namespace sparsewire {

// `name` is for error messages. REQUIRES: `sparsifier` is not null.
std::unique_ptr<FusedSparsifier> wrap(std::string name, std::unique_ptr<Sparsifier> sparsifier,
                                      const SifterContext& context);

}  // namespace sparsewire
