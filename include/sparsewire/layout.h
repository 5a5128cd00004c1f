// The tensors of a model, in the order in which they are stored in the flat gradient.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sparsewire {

struct TensorRange {
  std::string name;
  std::uint64_t size = 0;
  std::uint64_t begin = 0;  // offset in the flat gradient; set by Layout

  friend bool operator==(const TensorRange&, const TensorRange&) = default;
};

class Layout {
 public:
  Layout() = default;
  // One unnamed tensor.
  // NOLINTNEXTLINE(google-explicit-constructor): a number of entries converts to a layout.
  Layout(std::uint64_t dim);
  // REQUIRES: the names differ and contain no zero byte; fewer than 2^32 entries in total.
  // Throws UsageError otherwise.
  explicit Layout(std::vector<TensorRange> tensors);

  std::uint64_t dim() const noexcept { return dim_; }
  const std::vector<TensorRange>& tensors() const noexcept { return tensors_; }

  // The tensor of that name, or null.
  const TensorRange* find(std::string_view name) const noexcept;
  // The tensor that contains flat index `index`. REQUIRES: index < dim().
  const TensorRange& at(std::uint64_t index) const noexcept;

  friend bool operator==(const Layout&, const Layout&) = default;

 private:
  std::vector<TensorRange> tensors_;
  std::uint64_t dim_ = 0;
};

}  // namespace sparsewire
