// The files of tests/golden/states: what version 0.1.0 saved, and what it did next.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "golden/states/old_state.h"
#include "sparsewire/layout.h"
#include "sparsewire/sparse_vector.h"

namespace sparsewire::old_state {

// The paths of all files whose names begin with `prefix`.
inline std::vector<std::string> files_of(const std::string& prefix) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(SPARSEWIRE_TESTS_FOLDER "/golden/states")) {
    if (entry.path().filename().string().starts_with(prefix)) paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

inline Layout layout() {
  std::vector<TensorRange> tensors;
  for (const auto& [name, size] : kTensors) tensors.push_back({name, size});
  return Layout(std::move(tensors));
}

inline std::vector<std::byte> read_state(Reader& file) { return file.array<std::byte>(); }

inline SparseVector read_entries(Reader& file) {
  SparseVector entries;
  entries.clear(layout().dim());
  entries.indices = file.array<std::uint32_t>();
  entries.values = file.array<float>();
  return entries;
}

}  // namespace sparsewire::old_state
