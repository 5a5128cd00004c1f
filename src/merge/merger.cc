#include "merge/merger.h"

#include <algorithm>
#include <array>

#include "core/room.h"
#include "core/slices.h"
#include "kernels/simd.h"
#include "merge/cuts.h"

namespace sparsewire {
namespace {

constexpr std::size_t kGrain = 8192;             // entries that are worth a thread
constexpr std::size_t kWindow = 16384;           // entries of a full sum that stay in the cache
constexpr std::size_t kWorthThreads = 4 * 8192;  // entries, or words of 64 entries, of a sum

float weight_of(std::span<const float> weights, std::size_t v) { return weights.empty() ? 1.0F : weights[v]; }

void resize_entries(SparseVector& vector, std::size_t size) {
  resize_with_room(vector.indices, size);
  resize_with_room(vector.values, size);
}

// A sum of all entries needs no indices.
void end_sum(SparseVector& total) {
  if (total.size() == total.dim) total.indices.clear();
}

void scale(const SparseVector& vector, float weight, Pool* pool, SparseVector& total) {
  resize_entries(total, vector.size());
  for_each_slice(pool, vector.size(), kGrain, [&](std::size_t begin, std::size_t end, int) {
    std::copy(vector.indices.data() + begin, vector.indices.data() + end, total.indices.data() + begin);
    for (std::size_t i = begin; i < end; ++i) total.values[i] = 0.0F + weight * vector.values[i];
  });
  end_sum(total);
}

std::size_t entries_of(std::span<const SparseVector> vectors) {
  std::size_t entries = 0;
  for (const SparseVector& vector : vectors) entries += vector.size();
  return entries;
}

bool has_full(std::span<const SparseVector> vectors) {
  return std::any_of(vectors.begin(), vectors.end(), [](const SparseVector& vector) { return vector.is_full(); });
}

}  // namespace

Merger::Merger(Pool* pool) : pool_(pool), parts_(pool == nullptr ? 1 : static_cast<std::size_t>(pool->size())) {
  kernels::choose_simd();  // may throw; the kernels must not
}

template <class Work>
void Merger::for_each_part(Work work) {
  if (used_ == 1) return work(parts_[0]);
  pool_->run([&](int thread) { work(parts_[static_cast<std::size_t>(thread)]); });
}

// Divides the entries among the threads. Few of them are one part: waking the others would cost more.
void Merger::cut(std::uint64_t dim, std::span<const SparseVector> vectors, std::span<const float> weights,
                 std::size_t entries) {
  const std::uint64_t words = std::min<std::uint64_t>(dim, entries * std::uint64_t{kernels::MergeWindow::kSize}) / 64;
  used_ = entries + words < kWorthThreads ? 1 : parts_.size();
  for (std::size_t p = 0; p < used_; ++p) parts_[p].addends.resize(vectors.size());
  for_each_part([&](Part& part) {
    const auto number = static_cast<std::size_t>(&part - parts_.data());
    part.begin = number == 0 ? 0 : find_cut(dim, vectors, entries * number / used_, entries / used_ / 32);
    part.first = 0;
    for (std::size_t v = 0; v < vectors.size(); ++v) {
      const std::size_t below = entries_below(vectors[v], part.begin);
      part.first += below;
      part.addends[v] = {.indices = vectors[v].indices.data(),
                         .values = vectors[v].values.data(),
                         .weight = weight_of(weights, v),
                         .next = below,
                         .end = vectors[v].size()};
    }
  });
  for (std::size_t p = 0; p + 1 < used_; ++p) {
    for (std::size_t v = 0; v < vectors.size(); ++v) parts_[p].addends[v].end = parts_[p + 1].addends[v].next;
  }
}

void Merger::sum(std::uint64_t dim, std::span<const SparseVector> vectors, std::span<const float> weights,
                 SparseVector& total) {
  total.dim = dim;
  total.draw.units.clear();
  if (has_full(vectors)) return sum_full(vectors, weights, total);
  if (vectors.size() == 1) return scale(vectors[0], weight_of(weights, 0), pool_, total);

  const std::size_t entries = entries_of(vectors);
  cut(dim, vectors, weights, entries);
  for (std::size_t p = 0; p < used_; ++p) {
    const bool is_last = p + 1 == used_;
    const std::size_t end = is_last ? entries : parts_[p + 1].first;
    const std::uint64_t range = (is_last ? dim : parts_[p + 1].begin) - parts_[p].begin;
    const std::size_t most = std::min<std::uint64_t>(end - parts_[p].first, range);
    parts_[p].indices.reserve_with_room(most);
    parts_[p].values.reserve_with_room(most);
  }
  for_each_part([](Part& part) {
    part.size = kernels::sum_sorted(part.addends, part.window, part.indices.data(), part.values.data());
  });
  std::size_t size = 0;
  for (std::size_t p = 0; p < used_; ++p) {
    parts_[p].place = size;
    size += parts_[p].size;
  }
  resize_entries(total, size);
  for_each_part([&](const Part& part) {
    std::copy_n(part.indices.data(), part.size, total.indices.data() + part.place);
    std::copy_n(part.values.data(), part.size, total.values.data() + part.place);
  });
  end_sum(total);
}

void Merger::unite(std::uint64_t dim, std::span<const SparseVector> vectors, SparseVector& total) {
  if (has_full(vectors) || vectors.size() == 1) return sum(dim, vectors, {}, total);
  total.dim = dim;
  total.draw.units.clear();
  const std::size_t entries = entries_of(vectors);
  cut(dim, vectors, {}, entries);
  resize_entries(total, entries);
  for_each_part([&](Part& part) {
    kernels::sum_sorted(part.addends, part.window, total.indices.data() + part.first, total.values.data() + part.first);
  });
  end_sum(total);
}

void Merger::mean_of_senders(std::uint64_t dim, std::span<const SparseVector> vectors, std::span<const float> weights,
                             SparseVector& mean) {
  sum(dim, vectors, weights, mean);
  divide_by_senders(vectors, weights, mean);
}

void Merger::divide_by_senders(std::span<const SparseVector> vectors, std::span<const float> weights,
                               SparseVector& sum) {
  for_each_slice(pool_, sum.dim, kWindow, [&](std::size_t slice, std::size_t slice_end, int) {
    std::array<float, kWindow> senders{};  // the sum of their weights, for each entry of the window
    for (std::size_t begin = slice; begin < slice_end; begin += kWindow) {
      const std::size_t end = std::min(slice_end, begin + kWindow);
      for (std::size_t v = 0; v < vectors.size(); ++v) {
        const std::size_t last = entries_below(vectors[v], end);
        for (std::size_t i = entries_below(vectors[v], begin); i < last; ++i) {
          senders[vectors[v].index(i) - begin] += weight_of(weights, v);
        }
      }
      const std::size_t last = entries_below(sum, end);
      for (std::size_t i = entries_below(sum, begin); i < last; ++i) {
        float& weight = senders[sum.index(i) - begin];
        sum.values[i] = weight == 0 ? 0 : sum.values[i] / weight;
        weight = 0;
      }
    }
  });
}

// At least one vector is full, so the result is.
void Merger::sum_full(std::span<const SparseVector> vectors, std::span<const float> weights, SparseVector& total) {
  total.indices.clear();
  total.values.resize(total.dim);
  for_each_slice(pool_, total.dim, kWindow, [&](std::size_t slice, std::size_t slice_end, int) {
    for (std::size_t begin = slice; begin < slice_end; begin += kWindow) {
      const std::size_t end = std::min(slice_end, begin + kWindow);
      float* const sums = total.values.data();
      std::fill(sums + begin, sums + end, 0.0F);
      for (std::size_t v = 0; v < vectors.size(); ++v) {
        const std::uint32_t* const indices = vectors[v].indices.data();
        const float* const values = vectors[v].values.data();
        const float weight = weight_of(weights, v);
        if (vectors[v].is_full()) {
          for (std::size_t i = begin; i < end; ++i) sums[i] += weight * values[i];
        } else {
          const std::size_t last = entries_below(vectors[v], end);
          for (std::size_t i = entries_below(vectors[v], begin); i < last; ++i) sums[indices[i]] += weight * values[i];
        }
      }
    }
  });
}

}  // namespace sparsewire
