#include "reference/sums.h"

#include <map>

namespace sparsewire::reference {

SparseVector sum_of(std::uint64_t dim, const std::vector<SparseVector>& vectors, const std::vector<float>& weights) {
  std::map<std::uint32_t, float> sums;
  bool is_full = false;
  for (std::size_t v = 0; v < vectors.size(); ++v) {
    is_full = is_full || vectors[v].is_full();
    for (std::size_t i = 0; i < vectors[v].size(); ++i) {
      const float weighted = weights.empty() ? vectors[v].values[i] : weights[v] * vectors[v].values[i];
      float& sum = sums[vectors[v].index(i)];
      sum = sum + weighted;
    }
  }
  SparseVector expected;
  expected.dim = dim;
  for (const auto& [index, sum] : sums) {
    expected.indices.push_back(index);
    expected.values.push_back(sum);
  }
  if (is_full || expected.size() == dim) expected.indices.clear();
  return expected;
}

SparseVector mean_of_senders(std::uint64_t dim, const std::vector<SparseVector>& vectors,
                             const std::vector<float>& weights) {
  SparseVector mean = sum_of(dim, vectors, weights);
  for (std::size_t i = 0; i < mean.size(); ++i) {
    float senders = 0;
    for (std::size_t v = 0; v < vectors.size(); ++v) {
      for (std::size_t j = 0; j < vectors[v].size(); ++j) {
        if (vectors[v].index(j) == mean.index(i)) senders += weights[v];
      }
    }
    mean.values[i] = senders == 0 ? 0.0F : mean.values[i] / senders;
  }
  return mean;
}

}  // namespace sparsewire::reference
