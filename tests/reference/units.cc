#include "reference/units.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <sstream>

namespace sparsewire::reference {
namespace {

std::vector<Unit> cut(const std::vector<Unit>& units, std::uint64_t chunk) {
  std::vector<Unit> pieces;
  for (const Unit& unit : units) {
    for (std::size_t i = 0; i < unit.entries.size(); ++i) {
      if (i % chunk == 0) pieces.emplace_back();
      pieces.back().entries.push_back(unit.entries[i]);
    }
  }
  return pieces;
}

std::uint64_t k_of_unit(const Keys& keys, const Setting& setting, std::uint64_t step, std::uint64_t n,
                        std::uint64_t n_of_all) {
  if (!keys.has("k")) return k_of(ratio_at(keys, step), n);
  const std::uint64_t k = keys.count("k", 0);
  if (keys.has("chunk") || !setting.by_layer) return std::min(k, n);
  const double share = static_cast<double>(k) * static_cast<double>(n) / static_cast<double>(n_of_all);
  return std::min(n, static_cast<std::uint64_t>(std::max(1.0, std::floor(share + 0.5))));
}

}  // namespace

Keys::Keys(std::string_view spec) {
  const std::size_t colon = spec.find(':');
  name = std::string(spec.substr(0, colon));
  if (colon == std::string_view::npos) return;
  std::istringstream rest{std::string(spec.substr(colon + 1))};
  for (std::string item; std::getline(rest, item, ',');) {
    const std::size_t equals = item.find('=');
    values[item.substr(0, equals)] = item.substr(equals + 1);
  }
}

double Keys::number(const std::string& key, double otherwise) const {
  return has(key) ? std::stod(values.at(key)) : otherwise;
}

std::uint64_t Keys::count(const std::string& key, std::uint64_t otherwise) const {
  return has(key) ? std::stoull(values.at(key)) : otherwise;
}

std::string Keys::word(const std::string& key, const std::string& otherwise) const {
  return has(key) ? values.at(key) : otherwise;
}

std::uint64_t k_of(double ratio, std::uint64_t n) {
  const double wanted = std::max(1.0, std::floor(ratio * static_cast<double>(n) + 0.5));
  return wanted >= static_cast<double>(n) ? n : static_cast<std::uint64_t>(wanted);
}

double ratio_at(const Keys& keys, std::uint64_t step) {
  const double ratio = keys.number("ratio", 0);
  const std::uint64_t steps = keys.count("warmup_steps", 0);
  if (step >= steps) return ratio;
  const double from = keys.number("warmup_from", ratio);
  return from * std::pow(ratio / from, static_cast<double>(step) / static_cast<double>(steps));
}

Partition partition(const Keys& keys, const Setting& setting, std::uint64_t step) {
  Partition result;
  std::uint32_t next = 0;
  std::uint64_t in_units = 0;
  for (const std::uint64_t size : setting.tensors) {
    std::vector<std::uint32_t> entries(size);
    std::iota(entries.begin(), entries.end(), next);
    next += static_cast<std::uint32_t>(size);
    if (size == 0) continue;
    if (size < keys.count("dense_below", 0)) {
      result.whole.insert(result.whole.end(), entries.begin(), entries.end());
      continue;
    }
    in_units += size;
    if (setting.by_layer || result.units.empty()) result.units.emplace_back();
    std::vector<std::uint32_t>& unit = result.units.back().entries;
    unit.insert(unit.end(), entries.begin(), entries.end());
  }
  if (keys.has("chunk")) result.units = cut(result.units, keys.count("chunk", 0));
  for (Unit& unit : result.units) unit.k = k_of_unit(keys, setting, step, unit.entries.size(), in_units);
  return result;
}

}  // namespace sparsewire::reference
