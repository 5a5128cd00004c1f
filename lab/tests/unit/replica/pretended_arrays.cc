// The arrays of a replica on the pretended device (tests/unit/device). They replace those of the laboratory.
#include <algorithm>
#include <memory>
#include <vector>

#include "loop/optimiser.h"
#include "loop/replica_arrays.h"
#include "pretended_device/pretended_device.h"

namespace sparsewire::train {
namespace {

using device_test::other_side;

class PretendedReplicaArrays final : public ReplicaArrays {
 public:
  explicit PretendedReplicaArrays(std::size_t size) : size_(size) {}

  float* allocate() override {
    arrays_.push_back(std::make_unique<float[]>(size_));
    return other_side(arrays_.back().get());
  }
  void write(std::span<const float> from, float* to) override { std::copy(from.begin(), from.end(), other_side(to)); }
  void read(const float* from, std::span<float> to) override { std::copy_n(other_side(from), to.size(), to.begin()); }
  void copy(const float* from, float* to) override { std::copy_n(other_side(from), size_, other_side(to)); }
  void subtract(const float* a, const float* b, float* to) override {
    for (std::size_t i = 0; i < size_; ++i) other_side(to)[i] = other_side(a)[i] - other_side(b)[i];
  }
  void apply(const OptimiserStep& step, const float* update, float* weights, float* first, float* second) override {
    with_kind(step.kind, [&]<OptimiserStep::Kind kKind>() {
      for (std::size_t i = 0; i < size_; ++i) {
        apply_step<kKind>(step, other_side(update)[i], other_side(weights)[i],
                          first == nullptr ? nullptr : other_side(first) + i,
                          second == nullptr ? nullptr : other_side(second) + i);
      }
    });
  }
  void apply_sparse(const OptimiserStep& step, const SparseVector& update, float* weights) override {
    train::apply_sparse(step, update, {other_side(weights), size_});
  }

 private:
  std::size_t size_;
  std::vector<std::unique_ptr<float[]>> arrays_;
};

}  // namespace

std::unique_ptr<ReplicaArrays> make_replica_arrays(Device /*device*/, void* /*stream*/, std::size_t size) {
  return std::make_unique<PretendedReplicaArrays>(size);
}

}  // namespace sparsewire::train
