// A single sift with an empty memory, for tests of single choices.
#pragma once

#include <string>
#include <vector>

#include "reference/inputs.h"
#include "sparsewire/sparsifier.h"
#include "unit/bare_sparsifier.h"

namespace sparsewire {

using Indices = std::vector<std::uint32_t>;

// What `sparsifier` sends of `gradient` if the memory is zero.
inline SparseVector sift_afresh(BareSparsifier& sparsifier, const reference::Numbers& gradient) {
  reference::Numbers memory(gradient.size());
  SparseVector out;
  sparsifier.sift(Gradient(gradient), memory, out);
  return out;
}

inline SparseVector sift_once(const std::string& spec, const reference::Numbers& gradient, SifterContext context) {
  if (context.layout.dim() == 0) context.layout = gradient.size();
  return sift_afresh(*make_bare(spec, context), gradient);
}

inline Indices sent_once(const std::string& spec, const reference::Numbers& gradient,
                         const SifterContext& context = {}) {
  return sift_once(spec, gradient, context).indices;
}

}  // namespace sparsewire
