// Top-k that sends only every n-th round: what a threshold that sends less than one entry a round has to be compared
// with.
#pragma once

#include "sparsewire/sparsifier.h"

namespace sparsewire::reproduce {

// As long as it lives, there is a sparsifier `rare_topk:k=1,every=4`.
Registration register_rare_topk();

}  // namespace sparsewire::reproduce
