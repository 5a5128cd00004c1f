#include "sparsewire/layout.h"

#include <fmt/core.h>

#include <algorithm>
#include <unordered_set>

#include "sparsewire/errors.h"

namespace sparsewire {

Layout::Layout(std::uint64_t dim) : Layout(std::vector<TensorRange>{{"", dim, 0}}) {}

Layout::Layout(std::vector<TensorRange> tensors) : tensors_(std::move(tensors)) {
  constexpr std::uint64_t kMost = (std::uint64_t{1} << 32) - 1;  // indices are stored in 32 bits
  std::unordered_set<std::string_view> names;
  for (TensorRange& tensor : tensors_) {
    if (tensor.name.find('\0') != std::string::npos) {  // a saved state uses it to end a name
      throw UsageError(fmt::format("[layout] the name of tensor '{}...' holds a zero byte", tensor.name.c_str()));
    }
    if (!names.insert(tensor.name).second) {
      throw UsageError(fmt::format("[layout] two tensors are called '{}'", tensor.name));
    }
    if (tensor.size > kMost - dim_) {
      throw UsageError(
          fmt::format("[layout] tensor '{}' of {} entries makes the model larger than {} entries: split the model",
                      tensor.name, tensor.size, kMost));
    }
    tensor.begin = dim_;
    dim_ += tensor.size;
  }
}

const TensorRange* Layout::find(std::string_view name) const noexcept {
  const auto it = std::find_if(tensors_.begin(), tensors_.end(), [&](const TensorRange& t) { return t.name == name; });
  return it == tensors_.end() ? nullptr : &*it;
}

const TensorRange& Layout::at(std::uint64_t index) const noexcept {
  const auto after = std::partition_point(tensors_.begin(), tensors_.end(),
                                          [&](const TensorRange& t) { return t.begin + t.size <= index; });
  return *after;
}

}  // namespace sparsewire
