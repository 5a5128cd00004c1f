#include "loop/totals.h"

#include <algorithm>

namespace sparsewire::train {
namespace {

// An entry is an index and a value of 32 bits each; a full vector needs no indices.
std::uint64_t paper_bits(std::uint64_t entries, std::uint64_t dim) {
  constexpr std::uint64_t kIndexAndValue = 64;
  constexpr std::uint64_t kValue = 32;
  return entries * (entries == dim ? kValue : kIndexAndValue);
}

}  // namespace

void Totals::add(const StepStats& stats, std::uint64_t dim, double share) {
  bytes_up += stats.bytes_up + stats.trailer_bytes_up;
  bytes_down += stats.bytes_down + stats.trailer_bytes_down;
  bytes_served += stats.bytes_served + stats.trailer_bytes_served;
  paper_bits_up += paper_bits(stats.entries_sent, dim);
  paper_bits_down += paper_bits(stats.entries_total, dim);
  entries_up += stats.entries_sent;
  entries_down += stats.entries_total;
  total_error += share * stats.memory_norm2;
  server_error += stats.server_memory_norm2;
  peak_memory_norm2 = std::max(peak_memory_norm2, stats.memory_norm2);
  loss = stats.loss;
}

Totals sum(const std::vector<Totals>& all) {
  Totals total{.loss = all[0].loss};
  for (const Totals& one : all) {
    total.bytes_up += one.bytes_up;
    total.bytes_down += one.bytes_down;
    total.bytes_served += one.bytes_served;
    total.paper_bits_up += one.paper_bits_up;
    total.paper_bits_down += one.paper_bits_down;
    total.entries_up += one.entries_up;
    total.entries_down += one.entries_down;
    total.total_error += one.total_error / static_cast<double>(all.size());
    total.server_error += one.server_error;
    total.peak_memory_norm2 = std::max(total.peak_memory_norm2, one.peak_memory_norm2);
  }
  total.total_error += total.server_error;
  return total;
}

}  // namespace sparsewire::train
