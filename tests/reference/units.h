// The units that a ratio or a count applies to: the model, each tensor, or each chunk, as plain lists of entries.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace sparsewire::reference {

// `name:key=value,key=value`, parsed without checks: the tests use valid specs only.
struct Keys {
  explicit Keys(std::string_view spec);

  bool has(const std::string& key) const { return values.count(key) != 0; }
  double number(const std::string& key, double otherwise) const;
  std::uint64_t count(const std::string& key, std::uint64_t otherwise) const;
  std::string word(const std::string& key, const std::string& otherwise) const;

  std::string name;
  std::map<std::string, std::string> values;
};

// A SifterContext in plain numbers.
struct Setting {
  std::vector<std::uint64_t> tensors;  // their sizes
  bool by_layer = false;
  int rank = 0;
  int ranks = 1;
  double weight = 0;
  std::uint64_t seed = 0;
  std::uint64_t first_step = 0;
  std::uint32_t role = 0;
};

struct Unit {
  std::vector<std::uint32_t> entries;  // flat indices, ascending
  std::uint64_t k = 0;
};

struct Partition {
  std::vector<std::uint32_t> whole;  // entries of tensors below dense_below
  std::vector<Unit> units;           // none is empty
};

// max(1, floor(ratio*n + 0.5)), at most n.
std::uint64_t k_of(double ratio, std::uint64_t n);

// The ratio of that step under `ratio=`, `warmup_from=`, `warmup_steps=`.
double ratio_at(const Keys& keys, std::uint64_t step);

Partition partition(const Keys& keys, const Setting& setting, std::uint64_t step);

}  // namespace sparsewire::reference
