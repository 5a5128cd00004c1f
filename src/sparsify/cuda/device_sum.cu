// The sum of full vectors on a GPU.
#include <algorithm>
#include <vector>

#include "kernels/cuda/arrays.h"
#include "kernels/cuda/checksum.cuh"
#include "kernels/cuda/tile.cuh"
#include "sparsify/cuda/device.h"
#include "sparsify/cuda/update.cuh"
#include "sparsify/device_sum.h"

namespace sparsewire {
namespace cuda {
namespace {

constexpr unsigned long long kNoneBad = ~0ULL;

__global__ void multiply_all(const float* from, float factor, float* to, std::size_t n) {
  const std::size_t step = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += step) {
    to[i] = __fmul_rn(factor, from[i]);
  }
}

// bad: becomes the lowest index with a sum that is not finite, if there is one.
__global__ void add_in_rank_order(const float* const* given, unsigned ranks, float* to, std::size_t n,
                                  unsigned long long* bad) {
  const std::size_t step = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += step) {
    float sum = given[0][i];
    for (unsigned r = 1; r < ranks; ++r) sum = __fadd_rn(sum, given[r][i]);
    to[i] = sum;
    if (key(sum) >= kInfinityKey) atomicMin(bad, static_cast<unsigned long long>(i));
  }
}

__global__ void __launch_bounds__(kChecksumThreads)
    checksum_of(const float* numbers, std::uint64_t size, std::uint32_t begin_with, std::uint32_t* checksum,
                const __grid_constant__ PowersOfX powers, const __grid_constant__ PieceShifts shifts) {
  const auto* const words = reinterpret_cast<const std::uint32_t*>(numbers);
  const std::uint32_t mine = checksum_of_block(words, size, begin_with, powers, shifts);
  if (threadIdx.x == 0) atomicXor(checksum, mine);
}

class CudaSum final : public DeviceSum {
 public:
  CudaSum(int device, std::size_t size)
      : device_(device), size_(size), given_(size), sum_(padded(size)), bad_(1), checksum_(1) {
    host_bad_.reserve(1);
    host_checksum_.reserve(1);
  }

  const float* give(const Gradient& numbers, float weight) override {
    if (size_ == 0) return given_.data();
    const OnDevice on(device_);
    check_array(numbers.data, numbers.device, device_);
    const auto stream = static_cast<cudaStream_t>(numbers.stream);
    order_.begin(stream);
    multiply_all<<<update_blocks(size_), kUpdateThreads, 0, stream>>>(static_cast<const float*>(numbers.data), weight,
                                                                      given_.data(), size_);
    SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
    finish(stream);
    return given_.data();
  }

  std::optional<std::size_t> add(std::span<const float* const> given) override {
    if (size_ == 0) return std::nullopt;
    const OnDevice on(device_);
    const cudaStream_t stream = begin();
    if (!std::equal(given.begin(), given.end(), all_given_.begin(), all_given_.end())) {
      all_given_.assign(given.begin(), given.end());
      arrays_.reserve(given.size());
      SPARSEWIRE_CUDA_CHECK(
          cudaMemcpyAsync(arrays_.data(), all_given_.data(), given.size_bytes(), cudaMemcpyHostToDevice, stream));
    }
    SPARSEWIRE_CUDA_CHECK(cudaMemsetAsync(bad_.data(), 0xFF, sizeof(kNoneBad), stream));
    add_in_rank_order<<<update_blocks(size_), kUpdateThreads, 0, stream>>>(
        arrays_.data(), static_cast<unsigned>(given.size()), sum_.data(), size_, bad_.data());
    SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
    download(bad_.data(), host_bad_.data(), sizeof(kNoneBad), stream);
    finish(stream);
    return host_bad_[0] == kNoneBad ? std::nullopt : std::optional<std::size_t>(host_bad_[0]);
  }

  std::uint32_t extend_checksum(std::uint32_t checksum) override {
    if (size_ == 0) return checksum;
    const OnDevice on(device_);
    const cudaStream_t stream = begin();
    const std::size_t bytes = size_ * sizeof(float);
    const auto blocks =
        static_cast<unsigned>(std::min<std::size_t>((bytes + kChecksumBlock - 1) / kChecksumBlock, 1024));
    SPARSEWIRE_CUDA_CHECK(cudaMemsetAsync(checksum_.data(), 0, sizeof(std::uint32_t), stream));
    checksum_of<<<blocks, kChecksumThreads, 0, stream>>>(sum_.data(), bytes, checksum, checksum_.data(), kPowersOfX,
                                                         kPieceShifts);
    SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
    download(checksum_.data(), host_checksum_.data(), sizeof(std::uint32_t), stream);
    finish(stream);
    return host_checksum_[0];
  }

  void read(std::span<float> to) override {
    const OnDevice on(device_);
    const cudaStream_t stream = begin();
    download(sum_.data(), to.data(), to.size_bytes(), stream);
    finish(stream);
  }

  void write(float factor, const WritableNumbers& to) override {
    if (size_ == 0) return;
    const OnDevice on(device_);
    const cudaStream_t stream = begin(to);
    queue_write(to, nullptr, sum_.data(), size_, factor, stream);
    order_.end(stream);
  }
  void subtract(float factor, const WritableNumbers& from) override {
    if (size_ == 0) return;
    const OnDevice on(device_);
    const cudaStream_t stream = begin(from);
    queue_subtract(from, nullptr, sum_.data(), size_, factor, stream);
    order_.end(stream);
  }

 private:
  // Zeros behind the numbers, for the checksum.
  static std::size_t padded(std::size_t size) {
    constexpr std::size_t kPiece = kChecksumPiece / sizeof(float);
    return (size + kPiece - 1) / kPiece * kPiece;
  }
  cudaStream_t begin() {
    order_.begin(order_.own());
    return order_.own();
  }
  cudaStream_t begin(const WritableNumbers& array) {
    check_array(array.data, array.device, device_);
    const auto stream = static_cast<cudaStream_t>(array.stream);
    order_.begin(stream);
    return stream;
  }
  static void download(const void* from, void* to, std::size_t bytes, cudaStream_t stream) {
    SPARSEWIRE_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream));
  }
  void finish(cudaStream_t stream) {
    order_.end(stream);
    order_.wait();
  }

  int device_;
  std::size_t size_;
  StreamOrder order_;
  DeviceArray<float> given_;
  DeviceArray<float> sum_;
  DeviceArray<const float*> arrays_;  // of all ranks
  std::vector<const float*> all_given_;
  DeviceArray<unsigned long long> bad_;
  PinnedArray<unsigned long long> host_bad_;
  DeviceArray<std::uint32_t> checksum_;
  PinnedArray<std::uint32_t> host_checksum_;
};

}  // namespace
}  // namespace cuda

std::unique_ptr<DeviceSum> make_device_sum(Device device, std::size_t size) {
  cuda::check_device(device);
  const cuda::OnDevice on(device.index);
  return std::make_unique<cuda::CudaSum>(device.index, size);
}

}  // namespace sparsewire
