// What a replica needs of a device: arrays, and passes over them.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "loop/optimiser_step.h"
#include "sparsewire/gradient.h"
#include "sparsewire/sparse_vector.h"

namespace sparsewire::train {

// Arrays of `size` floats. Work is queued on one stream. THREADS: one caller at a time. Throws std::runtime_error if
// the device fails.
class ReplicaArrays {
 public:
  virtual ~ReplicaArrays() = default;

  // Zeros. They live as long as this object.
  virtual float* allocate() = 0;
  // From the host and to it; return when that is done.
  virtual void write(std::span<const float> from, float* to) = 0;
  virtual void read(const float* from, std::span<float> to) = 0;
  virtual void copy(const float* from, float* to) = 0;
  // to = a - b
  virtual void subtract(const float* a, const float* b, float* to) = 0;
  // As apply_step() says. `first` and `second` may be null where the optimiser has no such array.
  virtual void apply(const OptimiserStep& step, const float* update, float* weights, float* first, float* second) = 0;
  // REQUIRES: step.is_sparse(). The entries are on the host.
  virtual void apply_sparse(const OptimiserStep& step, const SparseVector& update, float* weights) = 0;
};

// Null if this build has no code for devices. Defined in cuda/, or in cuda/no_cuda.cc. Throws std::runtime_error.
std::unique_ptr<ReplicaArrays> make_replica_arrays(Device device, void* stream, std::size_t size);

}  // namespace sparsewire::train
