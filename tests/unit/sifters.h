// Helpers for the tests of Sifters: every feedback, and a copy of a memory.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "reference/inputs.h"
#include "sparsewire/sifter.h"

namespace sparsewire {

inline std::vector<std::string> every_feedback() {
  return {"ef",   "ef:decay=0.95",  "ef:scale=lr",          "ef:decay=0.5,scale=lr",
          "none", "momentum:m=0.9", "momentum:m=0.5,clip=3"};
}

inline reference::Numbers copy(std::span<const float> numbers) { return {numbers.begin(), numbers.end()}; }

inline SparseVector sent_by(const std::string& spec, SifterContext context) {
  const std::size_t n = context.layout.dim();
  Sifter sifter(spec, "ef", std::move(context));
  SparseVector sent;
  sifter.sift(Gradient(reference::input("normal").make(n, 0, 5)), sent);
  return sent;
}

}  // namespace sparsewire
