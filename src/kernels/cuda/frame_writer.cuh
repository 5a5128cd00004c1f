// Writes frames on the device: queues the kernels of the other frame_*.cuh files. Has kernels, so one file may include
// it.
//
// First begin(): rounds the values, and finds out what the host has to know to choose a code. Then write(), while the
// values may still be under way.
#pragma once

#include <cstring>

#include "kernels/cuda/arrays.h"
#include "kernels/cuda/frame_checksum.cuh"
#include "kernels/cuda/frame_golomb.cuh"
#include "kernels/cuda/frame_int2.cuh"
#include "kernels/cuda/frame_numbers.cuh"
#include "kernels/cuda/groups.cuh"
#include "kernels/cuda/marks.h"

namespace sparsewire::cuda {

class FrameWriter {
 public:
  FrameWriter() : survey_(1), layout_(1) {
    host_survey_.reserve(1);
    host_layout_.reserve(1);
    host_loss_.reserve(1);
    SPARSEWIRE_CUDA_CHECK(cudaEventCreateWithFlags(&surveyed_, cudaEventDisableTiming));
  }
  ~FrameWriter() { cudaEventDestroy(surveyed_); }
  FrameWriter(const FrameWriter&) = delete;
  FrameWriter& operator=(const FrameWriter&) = delete;

  // May throw; nothing is queued. For at most so many entries.
  void reserve(std::uint32_t entries) {
    room_ = entries;
    const std::size_t segments = segments_of(entries);
    values_end_ = sizeof(FramePlan::head) + bytes_of_values(entries);
    frame_bytes_ = (values_end_ + kIndexBytes * entries + 2 * kChecksumBlock) / kChecksumBlock * kChecksumBlock;
    frame_.reserve(frame_bytes_ / sizeof(std::uint32_t));
    close_indices_.reserve(entries);
    close_values_.reserve(entries);
    parameters_.reserve(segments * (kSegment / kBlock));
    ends_.reserve(segments);
    lengths_.reserve(segments * kMostStreams);
    const std::size_t tiles = kernels::tiles_of(entries);
    losses_.reserve(tiles + kernels::tiles_of(tiles) + 1);
  }

  // Rounds the values of the entries, and queues the survey. close_indices and close_values are set here.
  void begin(FrameEntries entries, float* memory, cudaStream_t stream) {
    constexpr unsigned kThreads = 256;
    entries.close_indices = close_indices_.data();
    entries.close_values = close_values_.data();
    entries_ = entries;
    const std::size_t tiles = kernels::tiles_of(room_);
    SPARSEWIRE_CUDA_CHECK(cudaMemsetAsync(&survey_.data()->runs, 0, sizeof(survey_.data()->runs), stream));
    const auto warps = static_cast<std::size_t>(entries.units);
    close_slots<<<static_cast<unsigned>((warps * 32 + kThreads - 1) / kThreads), kThreads, 0, stream>>>(entries);
    SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
    survey_entries<<<kSurveyBlocks, kThreads, 0, stream>>>(entries, survey_.data());
    SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
    SPARSEWIRE_CUDA_CHECK(
        cudaMemcpyAsync(host_survey_.data(), survey_.data(), sizeof(FrameSurvey), cudaMemcpyDeviceToHost, stream));
    SPARSEWIRE_CUDA_CHECK(cudaEventRecord(surveyed_, stream));
    SPARSEWIRE_CUDA_CHECK(cudaMemsetAsync(layout_.data(), 0, sizeof(FrameLayout), stream));
    SPARSEWIRE_CUDA_CHECK(cudaMemsetAsync(frame_.data(), 0, frame_bytes_, stream));
    SPARSEWIRE_CUDA_CHECK(cudaMemsetAsync(losses_.data(), 0, tiles * sizeof(double), stream));
    encode_int2<<<static_cast<unsigned>(tiles), kInt2Threads, 0, stream>>>(
        {entries, memory, frame_.data() + kHeadWords, losses_.data()});
    SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
    double* const groups = losses_.data() + tiles;
    queue_sum(losses_.data(), tiles, groups, groups + kernels::tiles_of(tiles), stream);
    loss_ = groups + kernels::tiles_of(tiles);
  }

  // Waits for the survey, which is on the host until the next begin().
  Support support() const {
    SPARSEWIRE_CUDA_CHECK(cudaEventSynchronize(surveyed_));
    const FrameSurvey& survey = host_survey_[0];
    Support support;
    support.count = survey.count;
    support.last = survey.last;
    support.runs = survey.runs;
    support.gaps = {survey.gaps, kernels::number_sample(survey.count).size()};
    support.divisor_gaps = {survey.divisor_gaps, kernels::divisor_sample(survey.count).size()};
    return support;
  }

  // Queues the rest of the frame, and the copies that finish() waits for.
  void write(const FramePlan& plan, cudaStream_t stream) {
    const std::uint32_t count = host_survey_[0].count;
    const bool fills_slots = count == entries_.room;
    const std::uint32_t* const indices = fills_slots ? entries_.slot_indices : entries_.close_indices;
    const auto segments = static_cast<std::uint32_t>(segments_of(count));
    std::memcpy(head_.data(), plan.head.data(), sizeof(plan.head));
    SPARSEWIRE_CUDA_CHECK(
        cudaMemcpyAsync(frame_.data(), head_.data(), sizeof(plan.head), cudaMemcpyHostToDevice, stream));
    SectionHead head{.begin = sizeof(plan.head) + bytes_of_values(count)};
    const auto lay_out_streams = [&] {
      lay_out<<<1, kLayoutThreads, 0, stream>>>(head, segments, lengths_.data(), frame_.data(),
                                                frame_bytes_ - kChecksumBlock, layout_.data());
      SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
    };
    if (plan.indices == FramePlan::Indices::golomb) {
      head.fixed = plan.divisor;
      head.fixed_bytes = 4;
      head.streams = 4;
      head.lengths = 3;
      const kernels::GolombCode code(plan.divisor);
      const GolombArguments arguments{.indices = indices,
                                      .count = count,
                                      .divisor = plan.divisor,
                                      .bits = static_cast<unsigned>(code.bits()),
                                      .shorter = code.shorter(),
                                      .lengths = lengths_.data(),
                                      .frame = frame_.data(),
                                      .layout = layout_.data()};
      measure_golomb<<<segments, kSegmentThreads, 0, stream>>>(arguments);
      SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
      lay_out_streams();
      write_golomb<<<segments, kSegmentThreads, 0, stream>>>(arguments);
    } else {
      head.fixed = plan.linear;
      head.fixed_bytes = 1;
      head.streams = 3;
      head.lengths = 2;
      const NumbersArguments arguments{.indices = indices,
                                       .count = count,
                                       .linear = plan.linear,
                                       .guess = plan.parameter,
                                       .parameters = parameters_.data(),
                                       .ends = ends_.data(),
                                       .lengths = lengths_.data(),
                                       .frame = frame_.data(),
                                       .layout = layout_.data()};
      const unsigned blocks = (segments * 32 + kPlanThreads - 1) / kPlanThreads;
      plan_numbers<<<blocks, kPlanThreads, 0, stream>>>(arguments);
      SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
      for (int i = 0; i < kPlansAgain; ++i) plan_numbers_again<<<blocks, kPlanThreads, 0, stream>>>(arguments);
      SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
      lay_out_streams();
      write_numbers<<<segments, kSegmentThreads, 0, stream>>>(arguments);
    }
    SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
    const auto blocks = static_cast<unsigned>(std::min<std::size_t>(frame_bytes_ / kChecksumBlock, kChecksumBlocks));
    add_checksum<<<blocks, kChecksumThreads, 0, stream>>>(frame_.data(), layout_.data(), kPowersOfX, kPieceShifts);
    SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
    mark_on_device(stream);
    SPARSEWIRE_CUDA_CHECK(
        cudaMemcpyAsync(host_layout_.data(), layout_.data(), sizeof(FrameLayout), cudaMemcpyDeviceToHost, stream));
    SPARSEWIRE_CUDA_CHECK(cudaMemcpyAsync(host_loss_.data(), loss_, sizeof(double), cudaMemcpyDeviceToHost, stream));
  }

  // After the host has waited for the stream: brings the frame to the host. False if it could not be written.
  bool finish(std::vector<std::byte>& frame, cudaStream_t stream) {
    if (host_layout_[0].has_failed != 0) return false;
    const std::size_t bytes = host_layout_[0].bytes;
    host_frame_.reserve(bytes);
    SPARSEWIRE_CUDA_CHECK(cudaMemcpyAsync(host_frame_.data(), frame_.data(), bytes, cudaMemcpyDeviceToHost, stream));
    if (bytes > frame.capacity()) frame.reserve(bytes + bytes / 4);
    SPARSEWIRE_CUDA_CHECK(cudaStreamSynchronize(stream));
    frame.assign(host_frame_.data(), host_frame_.data() + bytes);
    return true;
  }
  double loss2() const { return host_loss_[0]; }

 private:
  static constexpr std::size_t kHeadWords = sizeof(FramePlan::head) / sizeof(std::uint32_t);
  static constexpr std::size_t kIndexBytes = 2;  // of an index, at most, or the host writes the frame
  static constexpr unsigned kSurveyBlocks = 528;
  static constexpr unsigned kChecksumBlocks = 1024;
  static constexpr int kPlansAgain = 3;

  static std::size_t segments_of(std::size_t count) { return (count + kSegment - 1) / kSegment; }
  static std::size_t bytes_of_values(std::size_t count) {
    return (count + kPlannedBlock - 1) / kPlannedBlock * sizeof(std::uint32_t) + (count + 3) / 4;
  }

  FrameEntries entries_{};
  std::uint32_t room_ = 0;  // entries
  std::size_t values_end_ = 0;
  std::size_t frame_bytes_ = 0;
  DeviceArray<std::uint32_t> frame_;
  DeviceArray<FrameSurvey> survey_;
  DeviceArray<FrameLayout> layout_;
  DeviceArray<std::uint32_t> close_indices_;
  DeviceArray<float> close_values_;
  DeviceArray<std::uint8_t> parameters_;
  DeviceArray<SegmentEnds> ends_;
  DeviceArray<std::uint64_t> lengths_;
  DeviceArray<double> losses_;  // of tiles, of groups of them, and of all
  double* loss_ = nullptr;
  std::array<std::uint32_t, kHeadWords> head_{};
  PinnedArray<FrameSurvey> host_survey_;
  PinnedArray<FrameLayout> host_layout_;
  PinnedArray<double> host_loss_;
  PinnedArray<std::byte> host_frame_;
  cudaEvent_t surveyed_ = nullptr;
};

}  // namespace sparsewire::cuda
