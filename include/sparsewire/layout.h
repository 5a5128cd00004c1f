// The tensors of a model, in the order in which they lie in the flat gradient.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sparsewire {

struct Tensor {
  std::string name;
  std::uint64_t size = 0;
  std::uint64_t begin = 0;  // offset in the flat gradient; set by Layout

  friend bool operator==(const Tensor&, const Tensor&) = default;
};

class Layout {
 public:
  Layout() = default;
  // One unnamed tensor.
  // NOLINTNEXTLINE(google-explicit-constructor): a number of entries is a layout.
  Layout(std::uint64_t dim);
  // REQUIRES: names differ and hold no zero byte; fewer than 2^32 entries in all.
  // Throws UsageError.
  explicit Layout(std::vector<Tensor> tensors);

  std::uint64_t dim() const noexcept { return dim_; }
  const std::vector<Tensor>& tensors() const noexcept { return tensors_; }

  // The tensor of that name, or null.
  const Tensor* find(std::string_view name) const noexcept;
  // The tensor that holds flat index `index`. REQUIRES: index < dim().
  const Tensor& at(std::uint64_t index) const noexcept;

  friend bool operator==(const Layout&, const Layout&) = default;

 private:
  std::vector<Tensor> tensors_;
  std::uint64_t dim_ = 0;
};

}  // namespace sparsewire
