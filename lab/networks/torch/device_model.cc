// A model that computes on a GPU, for all workers. Some threads drive it: each launches one pass after the other.
//
// The passes of a thread use the same buffers on the device, so that a pass is recorded once (pass_graph.h) and
// replayed. A worker whose weights and gradients are on the device has a stream of its own, in whose order they are
// used; they are copied there to the buffers and back. For one whose weights and gradients are on the host they cross
// the bus, on a stream of the caller, through pinned memory. Either way the copies of one worker overlap with the
// passes of others.
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/Reduction.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/Event.h>
#include <c10/core/GradMode.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <utility>

#include "networks/torch/pass_graph.h"
#include "networks/torch/torch_model.h"

namespace sparsewire::train::torch {
namespace {

// Passes before one is recorded, of the first batch and without a result: libraries choose their kernels and allocate
// what they need in the first ones. So the recording is done before a worker has its first gradient.
constexpr int kWarmUps = 3;
// Passes at a time: small batches leave much of a GPU idle (docs/archive/benchmarks.md).
constexpr std::size_t kPassesAtATime = 2;
// Sizes of batches that are recorded. Each keeps its activations on the device.
constexpr std::size_t kRecordings = 4;

// The same bits in every run, as far as the libraries can: cuDNN's deterministic kernels, chosen without measurements.
// TF32, which has 10 bits of mantissa, for convolutions alone, as in PyTorch.
void set_up_libraries(bool has_tf32) {
  at::Context& context = at::globalContext();
  context.setDeterministicCuDNN(true);
  context.setBenchmarkCuDNN(false);
  context.setAllowTF32CuDNN(has_tf32);
  context.setAllowTF32CuBLAS(false);
}

// While a pass is recorded, no other model of the process may launch one: cuDNN has failed then. Who launches shares
// this lock, who records has it alone.
std::shared_mutex& launching() {
  static std::shared_mutex mutex;
  return mutex;
}
using Launching = std::shared_lock<std::shared_mutex>;

// With this layout of colour images convolutions need not change it. (With one channel the two cannot be told apart, so
// that libtorch might choose either.)
at::MemoryFormat format_of(const at::Tensor& inputs) {
  return inputs.dim() == 4 && inputs.size(1) > 1 ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
}

// Without occupying a core all the time, as CUDA's own functions do: there may be more workers than cores.
void wait_for(const c10::Event& event) {
  constexpr auto kPause = std::chrono::microseconds(20);
  while (!event.query()) std::this_thread::sleep_for(kPause);
}

// libtorch has 32 streams of each priority, and gives them out again and again. Those of passes must not be those of
// workers, whose copies and sifts would become part of a recording; and they go first, since they are short.
enum class StreamOf : std::uint8_t { passes, worker };
c10::Stream new_stream(at::Device device, StreamOf whose) {
  return c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device, whose == StreamOf::worker);
}

class DeviceModel final : public NetworkModel {
 public:
  DeviceModel(std::unique_ptr<Network> network, at::Device device, const ModelPlace& place)
      : NetworkModel(std::move(network)),
        device_(device),
        uses_graphs_(place.uses_graphs),
        runners_([] { at::set_num_threads(1); }, kPassesAtATime) {
    set_up_libraries(place.has_tf32);
    run_pass(runners_, [&] {
      for (std::size_t i = 0; i < kPassesAtATime; ++i) idle_.push_back(std::make_unique<Buffers>(*this));
    });
  }

  double gradient(const ModelBatch& batch, std::span<const float> weights, std::span<float> state,
                  std::span<float> gradient) override {
    OneOf<Parcel> lent(mutex_, parcels_);
    if (!lent) lent = std::make_unique<Parcel>(device_, dim(), states());
    lent->upload(network(), batch, weights, state);
    const at::Tensor numbers = lent->part(0, dim());
    on_driver([&](Buffers& buffers, Launching& lock) { run(buffers, *lent, batch, {numbers, numbers}, lock); });
    return lent->download(state, gradient);
  }

  void* stream_of(int worker) override {
    const std::lock_guard lock(mutex_);
    std::unique_ptr<Parcel>& parcel = of_workers_[worker];
    if (!parcel) parcel = std::make_unique<Parcel>(device_, 0, states());
    return native_stream(parcel->stream);
  }

  double gradient_on_device(const ModelBatch& batch, const float* weights, std::span<float> state,
                            float* gradient) override {
    Parcel& parcel = parcel_of(batch.worker);
    parcel.upload(network(), batch, {}, state);
    const Ends ends{over(const_cast<float*>(weights)), over(gradient)};
    on_driver([&](Buffers& buffers, Launching& lock) { run(buffers, parcel, batch, ends, lock); });
    return parcel.download(state, {});
  }

  void set_scored(std::span<const float> weights, std::span<const float> state) override {
    on_driver([&](Buffers& /*buffers*/, Launching& /*lock*/) {
      scored_ = at::from_blob(const_cast<float*>(weights.data()), {dim()}).to(device_);
      scored_state_ = at::from_blob(const_cast<float*>(state.data()), {states()}).to(device_);
    });
  }

  ModelScore score(const ModelBatch& batch) override {
    ModelScore score;
    on_driver([&](Buffers& /*buffers*/, Launching& /*lock*/) {
      const c10::AutoGradMode without_gradients(false);
      const at::Tensor targets = targets_of(batch).to(device_);
      const Pass pass = begin(scored_, scored_state_);
      const at::Tensor inputs = inputs_of(network(), batch, batch.pixels.data()).to(device_);
      const at::Tensor logits = network().forward(pass, inputs.contiguous(format_of(inputs)));
      score.loss = at::cross_entropy_loss(logits.to(at::kDouble), targets, {}, at::Reduction::Sum).item<double>();
      score.right = static_cast<std::uint64_t>(logits.argmax(1).eq(targets).sum().item<std::int64_t>());
    });
    return score;
  }

 private:
  // What one caller sends and gets: the weights, or the gradient in their place, unless they are on the device anyway;
  // the state; the loss.
  struct Parcel {
    Parcel(at::Device device, std::int64_t weights, std::int64_t state)
        : dim(weights),
          stream(new_stream(device, StreamOf::worker)),
          uploaded(device.type()),
          computed(device.type()),
          downloaded(device.type()) {
      pinned = at::empty({weights + state + 1}, at::TensorOptions().pinned_memory(true));
      const c10::StreamGuard on(stream);
      numbers = at::empty({weights + state + 1}, at::TensorOptions().device(device));
    }

    void upload(const Network& network, const ModelBatch& batch, std::span<const float> weights,
                std::span<const float> state) {
      float* const host = pinned.mutable_data_ptr<float>();
      std::copy(weights.begin(), weights.end(), host);
      std::copy(state.begin(), state.end(), host + dim);
      const c10::StreamGuard on(stream);
      numbers.copy_(pinned, /*non_blocking=*/true);
      send(inputs_of(network, batch, batch.pixels.data()), pinned_inputs, inputs);
      send(targets_of(batch), pinned_targets, targets);
      send(masks_of(network, batch), pinned_masks, masks);
      uploaded.record(stream);
    }

    // After a pass was launched. Returns the loss.
    double download(std::span<float> state, std::span<float> gradient) {
      const c10::StreamGuard on(stream);
      computed.block(stream);
      pinned.copy_(numbers, /*non_blocking=*/true);
      downloaded.record(stream);
      wait_for(downloaded);
      const float* const host = pinned.const_data_ptr<float>();
      std::copy_n(host, gradient.size(), gradient.begin());
      std::copy_n(host + dim, state.size(), state.begin());
      return host[pinned.numel() - 1];
    }

    at::Tensor part(std::int64_t first, std::int64_t size) const { return numbers.narrow(0, first, size); }

    std::int64_t dim;  // of the weights; 0: they are on the device
    c10::Stream stream;
    at::Tensor pinned;   // on the host
    at::Tensor numbers;  // the same on the device
    at::Tensor pinned_inputs;
    at::Tensor inputs;
    at::Tensor pinned_targets;
    at::Tensor targets;
    at::Tensor pinned_masks;
    at::Tensor masks;
    c10::Event uploaded;
    c10::Event computed;
    c10::Event downloaded;

   private:
    // The last batch was downloaded, so nothing uses its tensors.
    void send(const at::Tensor& from, at::Tensor& on_host, at::Tensor& on_device) const {
      if (!on_host.defined() || !on_host.sizes().equals(from.sizes())) {
        on_host = at::empty(from.sizes(), from.options().pinned_memory(true));
        on_device = at::empty(from.sizes(), from.options().device(numbers.device()));
      }
      if (from.numel() == 0) return;  // masks, of most networks
      // Not copy_, which would use many threads.
      std::memcpy(on_host.mutable_data_ptr(), from.const_data_ptr(), from.nbytes());
      on_device.copy_(on_host, /*non_blocking=*/true);
    }
  };

  // One of those that are idle, as long as this lives; null if there is none.
  template <class T>
  class OneOf {
   public:
    OneOf(std::mutex& mutex, std::vector<std::unique_ptr<T>>& idle) : mutex_(mutex), idle_(idle) {
      const std::lock_guard lock(mutex_);
      if (idle_.empty()) return;
      one_ = std::move(idle_.back());
      idle_.pop_back();
    }
    ~OneOf() {
      const std::lock_guard lock(mutex_);
      if (one_) idle_.push_back(std::move(one_));
    }
    OneOf(const OneOf&) = delete;
    OneOf& operator=(const OneOf&) = delete;

    OneOf& operator=(std::unique_ptr<T> one) {
      one_ = std::move(one);
      return *this;
    }
    explicit operator bool() const noexcept { return one_ != nullptr; }
    T& operator*() const noexcept { return *one_; }
    T* operator->() const noexcept { return one_.get(); }

   private:
    std::mutex& mutex_;
    std::vector<std::unique_ptr<T>>& idle_;
    std::unique_ptr<T> one_;
  };

  // What a pass reads besides weights and state, on the device.
  struct Given {
    at::Tensor inputs;
    at::Tensor targets;
    at::Tensor masks;
  };

  // Passes over batches of one size.
  struct Recording {
    Given given;
    bool was_tried = false;
    std::unique_ptr<PassGraph> graph;  // null: it cannot be recorded
  };

  // What the passes of one thread use.
  struct Buffers {
    explicit Buffers(const DeviceModel& model) : stream(new_stream(model.device_, StreamOf::passes)) {
      const c10::StreamGuard on(stream);
      weights = at::empty({model.dim()}, model.options());
      gradient = at::empty_like(weights);
      state = at::empty({model.states()}, model.options());
      loss = at::empty({1}, model.options());
    }
    c10::Stream stream;
    at::Tensor weights;  // on the device; so are the next ones
    at::Tensor gradient;
    at::Tensor state;
    at::Tensor loss;
    std::map<std::size_t, Recording> recordings;  // by the size of the batch
  };

  // Where the weights of a pass are, and where its gradient goes.
  struct Ends {
    at::Tensor weights;
    at::Tensor gradient;
  };

  std::int64_t dim() const noexcept { return static_cast<std::int64_t>(declarations().dim()); }
  std::int64_t states() const noexcept { return static_cast<std::int64_t>(state_size()); }
  at::TensorOptions options() const { return at::TensorOptions().device(device_); }

  void on_driver(const std::function<void(Buffers& buffers, Launching& lock)>& work) {
    run_pass(runners_, [&] {
      const OneOf<Buffers> buffers(mutex_, idle_);  // there are as many as threads
      Launching lock(launching());
      const c10::StreamGuard on(buffers->stream);
      work(*buffers, lock);
    });
  }

  Parcel& parcel_of(int worker) {
    const std::lock_guard lock(mutex_);
    return *of_workers_.at(worker);
  }

  // `dim` numbers that are on the device, as a tensor.
  at::Tensor over(float* numbers) const { return at::from_blob(numbers, {dim()}, options()); }

  // One pass at the weights, when they have arrived. Writes the gradient; the parcel gets state and loss.
  void run(Buffers& buffers, Parcel& parcel, const ModelBatch& batch, const Ends& ends, Launching& lock) {
    parcel.uploaded.block(buffers.stream);
    {
      const c10::AutoGradMode without_gradients(false);
      buffers.weights.copy_(ends.weights);
    }
    compute(buffers, parcel, batch, lock);
    const c10::AutoGradMode without_gradients(false);
    ends.gradient.copy_(buffers.gradient);
    parcel.part(parcel.dim, states()).copy_(buffers.state);
    parcel.part(parcel.dim + states(), 1).copy_(buffers.loss);
    parcel.computed.record(buffers.stream);
  }

  // Writes gradient, state and loss.
  void compute(Buffers& buffers, const Parcel& parcel, const ModelBatch& batch, Launching& lock) {
    const auto begin_state = [&] {
      const c10::AutoGradMode without_gradients(false);
      buffers.state.copy_(parcel.part(parcel.dim, states()));
    };
    begin_state();
    std::map<std::size_t, Recording>& recordings = buffers.recordings;
    const auto found = recordings.find(batch.size);
    if (!uses_graphs_ || (found == recordings.end() && recordings.size() == kRecordings)) {
      launch(buffers, {parcel.inputs.contiguous(format_of(parcel.inputs)), parcel.targets, parcel.masks});
      return;
    }
    Recording& recording = found != recordings.end() ? found->second : recordings[batch.size];
    Given& given = recording.given;
    if (!given.inputs.defined()) {
      given.inputs = at::empty_like(parcel.inputs, parcel.inputs.options(), format_of(parcel.inputs));
      given.targets = at::empty_like(parcel.targets);
      given.masks = at::empty_like(parcel.masks);
    }
    given.inputs.copy_(parcel.inputs);
    given.targets.copy_(parcel.targets);
    given.masks.copy_(parcel.masks);
    const auto pass = [&] { launch(buffers, given); };
    if (!recording.was_tried) {
      recording.was_tried = true;
      for (int i = 0; i < kWarmUps; ++i) pass();
      lock.unlock();
      {
        const std::unique_lock alone(launching());
        recording.graph = record_pass(pass);
      }
      lock.lock();
      begin_state();
    }
    if (recording.graph) {
      recording.graph->replay();
    } else {
      pass();
    }
  }

  void launch(const Buffers& buffers, const Given& given) {
    Pass pass = begin(buffers.weights, buffers.state);
    pass.is_training = true;
    pass.masks = declarations().mask_views(given.masks, given.inputs.size(0));
    at::Tensor mean;
    {
      const c10::AutoGradMode with_gradients(true);
      for (at::Tensor& one : pass.weights) one.set_requires_grad(true);
      mean = at::cross_entropy_loss(network().forward(pass, given.inputs), given.targets);
      mean.backward({}, std::nullopt, /*create_graph=*/false, pass.weights);
    }
    const c10::AutoGradMode without_gradients(false);
    std::vector<at::Tensor> results = declarations().views(buffers.gradient.mutable_data_ptr<float>(), device_);
    // Those with the layout of the weights in one launch.
    std::vector<at::Tensor> to{buffers.loss};
    std::vector<at::Tensor> from{mean.detach().view({1})};
    for (std::size_t i = 0; i < results.size(); ++i) {
      const at::Tensor& grad = pass.weights[i].grad();
      if (grad.strides() == results[i].strides()) {
        to.push_back(results[i]);
        from.push_back(grad);
      } else {
        results[i].copy_(grad);
      }
    }
    at::_foreach_copy_(to, from);
  }

  Pass begin(const at::Tensor& weights, const at::Tensor& state) const {
    return {.weights = declarations().views(weights.mutable_data_ptr<float>(), device_),
            .state = declarations().state_views(state.mutable_data_ptr<float>(), device_),
            .masks = {},
            .is_training = false};
  }

  at::Device device_;
  bool uses_graphs_;
  at::Tensor scored_;  // weights of score(), on the device
  at::Tensor scored_state_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Buffers>> idle_;
  std::vector<std::unique_ptr<Parcel>> parcels_;       // no caller uses them
  std::map<int, std::unique_ptr<Parcel>> of_workers_;  // whose weights and gradients are on the device
  Runners runners_;                                    // last: its threads use the others
};

}  // namespace

std::unique_ptr<Model> make_device_model(std::unique_ptr<Network> network, at::Device device, const ModelPlace& place) {
  return std::make_unique<DeviceModel>(std::move(network), device, place);
}

}  // namespace sparsewire::train::torch
