#include "sparsewire/layout.h"

#include <algorithm>
#include <unordered_set>

#include "core/text.h"
#include "sparsewire/errors.h"

namespace sparsewire {

Layout::Layout(std::uint64_t dim) : Layout(std::vector<Tensor>{{"", dim, 0}}) {}

Layout::Layout(std::vector<Tensor> tensors) : tensors_(std::move(tensors)) {
  constexpr std::uint64_t kMost = (std::uint64_t{1} << 32) - 1;  // indices have 32 bits in memory
  std::unordered_set<std::string_view> names;
  for (Tensor& tensor : tensors_) {
    if (tensor.name.find('\0') != std::string::npos) {  // a saved state ends names with it
      throw UsageError(text("[layout] the name of tensor '", tensor.name.c_str(), "...' holds a zero byte"));
    }
    if (!names.insert(tensor.name).second) {
      throw UsageError(text("[layout] two tensors are called '", tensor.name, "'"));
    }
    if (tensor.size > kMost - dim_) {
      throw UsageError(text("[layout] tensor '", tensor.name, "' of ", tensor.size,
                            " entries makes the model larger than ", kMost, " entries: split the model"));
    }
    tensor.begin = dim_;
    dim_ += tensor.size;
  }
}

const Tensor* Layout::find(std::string_view name) const noexcept {
  const auto it = std::find_if(tensors_.begin(), tensors_.end(), [&](const Tensor& t) { return t.name == name; });
  return it == tensors_.end() ? nullptr : &*it;
}

const Tensor& Layout::at(std::uint64_t index) const noexcept {
  const auto after = std::partition_point(tensors_.begin(), tensors_.end(),
                                          [&](const Tensor& t) { return t.begin + t.size <= index; });
  return *after;
}

}  // namespace sparsewire
