// A sparsifier of your own in the program `sparsewire`, from a shared library.
//
//   SPARSEWIRE_PLUGIN(registrar) {  // in mine.cc, once
//     registrar.add({"mine", "what it keeps", "mine:ratio=0.01"},
//                   [](Spec& spec, const SifterContext& context) { return std::make_unique<Mine>(spec, context); });
//   }
//
//   c++ -std=c++20 -O2 -shared -fPIC mine.cc -o libmine.so $(pkg-config --cflags --libs sparsewire)
//   sparsewire train --load ./libmine.so --sparsifier mine:ratio=0.001
//
// Build it with the headers of the program's version, and a compiler of the same family.
#pragma once

#include <cstdint>
#include <string>

#include "sparsewire/sparsifier.h"

namespace sparsewire {

// What the program gives a plugin.
class Registrar {
 public:
  virtual ~Registrar() = default;
  // As register_sparsifier(), until the program ends.
  virtual void add(SparsifierInfo info, SparsifierFactory factory) = 0;
};

// What a plugin exports, as `sparsewire_plugin`.
struct Plugin {
  std::uint32_t interface;  // kPluginInterface
  std::uint32_t sizes;      // kPluginSizes
  void (*add_to)(Registrar& registrar);
};
// Raised with every change of what plugins and the program call of each other.
inline constexpr std::uint32_t kPluginInterface = 1;
// Of what crosses the border: another compiler or standard library may lay it out in another way.
inline constexpr auto kPluginSizes = static_cast<std::uint32_t>(
    sizeof(std::string) + 31 * (sizeof(SparsifierFactory) + 31 * (sizeof(Spec) + 31 * sizeof(SifterContext))));

}  // namespace sparsewire

#define SPARSEWIRE_PLUGIN(registrar)                                                                       \
  static void sparsewire_add_to(::sparsewire::Registrar& registrar);                                       \
  extern "C" __attribute__((visibility("default"))) const ::sparsewire::Plugin sparsewire_plugin;          \
  const ::sparsewire::Plugin sparsewire_plugin{::sparsewire::kPluginInterface, ::sparsewire::kPluginSizes, \
                                               sparsewire_add_to};                                         \
  static void sparsewire_add_to(::sparsewire::Registrar& registrar)
