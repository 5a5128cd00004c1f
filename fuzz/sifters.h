// The sifters whose saved states are fuzzed: one for each kind of state.
#pragma once

#include <array>
#include <cstddef>

#include "sparsewire/sifter.h"

namespace sparsewire {

struct SifterSpec {
  const char* sparsifier;
  const char* feedback;
};

inline constexpr std::array<SifterSpec, 6> kSifters = {{{"topk:ratio=0.3", "ef"},
                                                        {"randomk:ratio=0.3", "ef:decay=0.9,scale=lr"},
                                                        {"threshold:ratio=0.3,calibrate=2", "ef"},
                                                        {"threshold:ratio=0.3,rule=sqrt", "none"},
                                                        {"regtopk:ratio=0.3,mu=1", "ef"},
                                                        {"rtopk:ratio=0.3", "momentum:m=0.9,clip=1"}}};

inline Sifter fuzzed_sifter(std::size_t number) {
  const SifterSpec& spec = kSifters[number % kSifters.size()];
  Layout layout({{"a", 7, 0}, {"b", 0, 0}, {"c", 13, 0}});
  return Sifter(spec.sparsifier, spec.feedback, {.layout = std::move(layout), .rank = 1, .ranks = 3, .seed = 5});
}

}  // namespace sparsewire
