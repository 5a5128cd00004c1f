// A model that computes on a GPU, for all workers: one thread drives it, and passes follow one another.
//
// Every pass uses the same buffers on the device, so that a pass is recorded once (pass_graph.h) and replayed. Weights
// and batches arrive there, and gradients leave it, on streams of the callers, through pinned memory: those copies
// overlap with the passes of other workers.
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/Reduction.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/Event.h>
#include <c10/core/GradMode.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "train/torch/pass_graph.h"
#include "train/torch/torch_model.h"

namespace sparsewire::train::torch {
namespace {

// Passes before one is recorded: libraries choose their kernels and allocate what they need in the first ones.
constexpr int kUnrecorded = 3;
// Sizes of batches that are recorded. Each keeps its activations on the device.
constexpr std::size_t kRecordings = 4;

// The same bits in every run, as far as the libraries can: cuDNN's deterministic kernels, chosen without measurements,
// and no TF32, which has 10 bits of mantissa.
void make_deterministic() {
  at::Context& context = at::globalContext();
  context.setDeterministicCuDNN(true);
  context.setBenchmarkCuDNN(false);
  context.setAllowTF32CuDNN(false);
  context.setAllowTF32CuBLAS(false);
}

// While a pass is recorded, nothing else may be launched: cuDNN fails if another model of the process does. So the
// passes of all models exclude each other; on the device they would follow one another anyway.
std::mutex& launching() {
  static std::mutex mutex;
  return mutex;
}

c10::Stream new_stream(at::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device, /*isHighPriority=*/false);
}

class DeviceModel final : public NetworkModel {
 public:
  DeviceModel(std::unique_ptr<Network> network, at::Device device)
      : NetworkModel(std::move(network)),
        device_(device),
        stream_(new_stream(device)),
        runners_([] { at::set_num_threads(1); }, /*most=*/1) {
    make_deterministic();
    on_driver([&] {
      weights_ = at::empty({dim()}, options());
      gradient_ = at::empty_like(weights_);
      state_ = at::empty({static_cast<std::int64_t>(state_size())}, options());
      loss_ = at::empty({1}, options());
    });
  }

  double gradient(const ModelBatch& batch, std::span<const float> weights, std::span<float> state,
                  std::span<float> gradient) override {
    const Lent lent(*this);
    lent->upload(network(), batch, weights, state);
    on_driver([&] {
      receive(*lent);
      compute(*lent, batch);
      send(*lent);
    });
    return lent->download(state, gradient);
  }

  ModelScore score(const ModelBatch& batch, std::span<const float> weights, std::span<const float> state) override {
    ModelScore score;
    const Lent lent(*this);
    lent->upload(network(), batch, weights, state);
    on_driver([&] {
      const c10::AutoGradMode without_gradients(false);
      receive(*lent);
      Pass pass = begin(batch, /*is_training=*/false);
      const at::Tensor logits = network().forward(pass, lent->inputs);
      score.loss = at::cross_entropy_loss(logits.to(at::kDouble), lent->targets, {}, at::Reduction::Sum).item<double>();
      score.right = static_cast<std::uint64_t>(logits.argmax(1).eq(lent->targets).sum().item<std::int64_t>());
    });
    return score;
  }

 private:
  // What one caller sends and gets: the weights, or the gradient in their place; the state; the loss.
  struct Parcel {
    Parcel(at::Device device, std::int64_t weights, std::int64_t state)
        : dim(weights),
          stream(new_stream(device)),
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
      inputs = inputs_of(network, batch, batch.pixels.data()).to(numbers.device());
      targets = targets_of(batch).to(numbers.device());
      uploaded.record(stream);
    }

    // After a pass was launched. Returns the loss.
    double download(std::span<float> state, std::span<float> gradient) {
      const c10::StreamGuard on(stream);
      computed.block(stream);
      pinned.copy_(numbers, /*non_blocking=*/true);
      downloaded.record(stream);
      downloaded.synchronize();
      const float* const host = pinned.const_data_ptr<float>();
      std::copy_n(host, gradient.size(), gradient.begin());
      std::copy_n(host + dim, state.size(), state.begin());
      return host[pinned.numel() - 1];
    }

    at::Tensor part(std::int64_t first, std::int64_t size) const { return numbers.narrow(0, first, size); }

    std::int64_t dim;
    c10::Stream stream;
    at::Tensor pinned;   // on the host
    at::Tensor numbers;  // the same on the device
    at::Tensor inputs;
    at::Tensor targets;
    c10::Event uploaded;
    c10::Event computed;
    c10::Event downloaded;
  };

  // A Parcel, for one call. There are as many as callers at a time.
  class Lent {
   public:
    explicit Lent(DeviceModel& model) : model_(model) {
      {
        const std::lock_guard lock(model_.mutex_);
        if (!model_.free_.empty()) {
          parcel_ = std::move(model_.free_.back());
          model_.free_.pop_back();
        }
      }
      if (!parcel_) {
        parcel_ = std::make_unique<Parcel>(model_.device_, model_.dim(), model_.state_.numel());
      }
    }
    ~Lent() {
      const std::lock_guard lock(model_.mutex_);
      model_.free_.push_back(std::move(parcel_));
    }
    Lent(const Lent&) = delete;
    Lent& operator=(const Lent&) = delete;

    Parcel& operator*() const noexcept { return *parcel_; }
    Parcel* operator->() const noexcept { return parcel_.get(); }

   private:
    DeviceModel& model_;
    std::unique_ptr<Parcel> parcel_;
  };

  // Passes over batches of one size.
  struct Recording {
    at::Tensor inputs;
    at::Tensor targets;
    int passes = 0;
    bool can_record = true;
    std::unique_ptr<PassGraph> graph;
  };

  std::int64_t dim() const noexcept { return static_cast<std::int64_t>(declarations().dim()); }
  at::TensorOptions options() const { return at::TensorOptions().device(device_); }

  void on_driver(const std::function<void()>& work) {
    run_pass(runners_, [&] {
      const std::lock_guard lock(launching());
      const c10::StreamGuard on(stream_);
      work();
    });
  }

  void receive(const Parcel& parcel) {
    const c10::AutoGradMode without_gradients(false);
    parcel.uploaded.block(stream_);
    weights_.copy_(parcel.part(0, dim()));
    state_.copy_(parcel.part(dim(), state_.numel()));
  }

  void send(Parcel& parcel) {
    const c10::AutoGradMode without_gradients(false);
    parcel.part(0, dim()).copy_(gradient_);
    parcel.part(dim(), state_.numel()).copy_(state_);
    parcel.part(dim() + state_.numel(), 1).copy_(loss_);
    parcel.computed.record(stream_);
  }

  // Writes gradient_, state_ and loss_.
  void compute(const Parcel& parcel, const ModelBatch& batch) {
    const auto found = recordings_.find(batch.size);
    if (found == recordings_.end() && recordings_.size() == kRecordings) {
      launch(batch, parcel.inputs, parcel.targets);
      return;
    }
    Recording& recording = found != recordings_.end() ? found->second : recordings_[batch.size];
    if (!recording.inputs.defined()) {
      recording.inputs = at::empty_like(parcel.inputs);
      recording.targets = at::empty_like(parcel.targets);
    }
    recording.inputs.copy_(parcel.inputs);
    recording.targets.copy_(parcel.targets);
    const auto pass = [&] { return launch(batch, recording.inputs, recording.targets); };
    if (recording.can_record && !recording.graph && recording.passes == kUnrecorded) {
      recording.graph = record_pass(pass);
      recording.can_record = recording.graph != nullptr;
    }
    if (recording.graph) {
      recording.graph->replay();
      return;
    }
    // Masks of dropout are drawn on the host, so each pass has its own.
    if (pass()) recording.can_record = false;
    recording.passes = std::min(recording.passes + 1, kUnrecorded);
  }

  // Returns whether the pass has drawn numbers.
  bool launch(const ModelBatch& batch, const at::Tensor& inputs, const at::Tensor& targets) {
    Pass pass = begin(batch, /*is_training=*/true);
    at::Tensor mean;
    {
      const c10::AutoGradMode with_gradients(true);
      for (at::Tensor& one : pass.weights) one.set_requires_grad(true);
      mean = at::cross_entropy_loss(network().forward(pass, inputs), targets);
      mean.backward({}, std::nullopt, /*create_graph=*/false, pass.weights);
    }
    const c10::AutoGradMode without_gradients(false);
    std::vector<at::Tensor> results = declarations().views(gradient_.mutable_data_ptr<float>(), device_);
    for (std::size_t i = 0; i < results.size(); ++i) results[i].copy_(pass.weights[i].grad());
    loss_.copy_(mean);
    return pass.has_drawn;
  }

  Pass begin(const ModelBatch& batch, bool is_training) const {
    return {.weights = declarations().views(weights_.mutable_data_ptr<float>(), device_),
            .state = declarations().state_views(state_.mutable_data_ptr<float>(), device_),
            .is_training = is_training,
            .dropout = Draws(batch.seed, Use::dropout, batch.worker, batch.step)};
  }

  at::Device device_;
  c10::Stream stream_;  // of all passes
  at::Tensor weights_;  // on the device; so are the next three
  at::Tensor gradient_;
  at::Tensor state_;
  at::Tensor loss_;
  std::map<std::size_t, Recording> recordings_;  // by the size of the batch
  std::mutex mutex_;
  std::vector<std::unique_ptr<Parcel>> free_;
  Runners runners_;  // last: its thread uses the others
};

}  // namespace

std::unique_ptr<Model> make_device_model(std::unique_ptr<Network> network, at::Device device) {
  return std::make_unique<DeviceModel>(std::move(network), device);
}

}  // namespace sparsewire::train::torch
