// Words of Python for the enumerations of C++.
#pragma once

#include <string>

#include "sparsewire/errors.h"
#include "sparsewire/sparsifier.h"

namespace sparsewire::python {

inline Scope to_scope(const std::string& word) {
  if (word == "model") return Scope::model;
  if (word == "layer") return Scope::layer;
  throw UsageError("[scope] '" + word + "' is not one of model, layer");
}
inline const char* to_word(Scope scope) { return scope == Scope::layer ? "layer" : "model"; }

inline Role to_role(const std::string& word) {
  if (word == "worker") return Role::worker;
  if (word == "server") return Role::server;
  throw UsageError("[role] '" + word + "' is not one of worker, server");
}
inline const char* to_word(Role role) { return role == Role::server ? "server" : "worker"; }

}  // namespace sparsewire::python
