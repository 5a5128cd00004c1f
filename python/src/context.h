// Words of Python for the enumerations of C++.
#pragma once

#include <string>

#include "sparsewire/errors.h"
#include "sparsewire/sparsifier.h"
#include "sparsewire/worker_config.h"

namespace sparsewire::python {

inline Scope to_scope(const std::string& word) {
  if (word == "model") return Scope::model;
  if (word == "layer") return Scope::layer;
  throw UsageError("[scope] '" + word + "' is not one of model, layer");
}
inline const char* to_word(Scope scope) { return scope == Scope::layer ? "layer" : "model"; }

inline Average to_average(const std::string& word) {
  if (word == "all") return Average::all;
  if (word == "senders") return Average::senders;
  throw UsageError("[average] '" + word + "' is not one of all, senders");
}
inline const char* to_word(Average average) { return average == Average::senders ? "senders" : "all"; }

inline Role to_role(const std::string& word) {
  if (word == "worker") return Role::worker;
  if (word == "server") return Role::server;
  throw UsageError("[role] '" + word + "' is not one of worker, server");
}
inline const char* to_word(Role role) { return role == Role::server ? "server" : "worker"; }

// As torch names devices: "cpu", "cuda", "cuda:1".
inline Device to_device(const std::string& word) {
  if (word == "cpu") return {};
  if (word == "cuda") return {Device::cuda, 0};
  const std::string index = word.starts_with("cuda:") ? word.substr(5) : "";
  if (index.empty() || index.size() > 3 || index.find_first_not_of("0123456789") != std::string::npos) {
    throw UsageError("[device] '" + word + "' is not one of cpu, cuda, cuda:0, cuda:1, ...");
  }
  return {Device::cuda, std::stoi(index)};
}
inline std::string to_word(Device device) {
  return device.kind == Device::host ? "cpu" : "cuda:" + std::to_string(device.index);
}

}  // namespace sparsewire::python
