// Deep networks that classify images: those of the downlink paper on MNIST and Fashion-MNIST, and networks for
// CIFAR-10.
#include <fmt/core.h>

#include <utility>

#include "data/data_sets.h"
#include "problems/deep_problem.h"
#include "problems/registry.h"

namespace sparsewire::train {
namespace {

struct ImageTask {
  const char* model;
  const char* data;
  std::uint32_t channels;
  std::uint32_t size;  // height and width of the images
  Normalisation normalisation;
  std::uint64_t batch;  // unless the spec says otherwise
  bool can_be_augmented;
};

constexpr std::uint64_t kTrainingToTest = 5;  // as CIFAR-10 has: of the first samples=5000, 1000 test samples
constexpr int kPadding = 4;  // pixels by which images are shifted at most: the usual number for CIFAR-10

class DeepImages final : public DeepProblem {
 public:
  DeepImages(const ImageTask& task, std::unique_ptr<Model> model, ImageData data, std::uint64_t batch, bool augment,
             const ProblemPlace& place)
      : DeepProblem(std::move(model), data.train.labels, batch, place),
        data_(std::move(data)),
        filler_(task.normalisation),
        is_augmented_(augment),
        changes_(static_cast<std::size_t>(place.workers)) {}

  std::string_view metric() const noexcept override { return "accuracy"; }
  bool has(Part part) const noexcept override { return size_of(part) != 0; }
  std::string_view data_fingerprint() const noexcept override { return data_.fingerprint; }
  std::string_view test_fingerprint() const noexcept override { return data_.test_fingerprint; }

 protected:
  void take(int worker, std::uint64_t step, Room& room) override {
    const std::span<const std::uint32_t> samples = batches().take(worker, step);
    std::vector<Change>& changes = changes_[static_cast<std::size_t>(worker)];
    if (is_augmented_) draw_changes(seed(), worker, step, samples.size(), kPadding, changes);
    fill(data_.train, samples, changes, room);
  }

  std::size_t size_of(Part part) const noexcept override {
    return part == Part::test    ? data_.test.size()
           : part == Part::train ? batches().training().size()
                                 : batches().validation().size();
  }

  void fill(Part part, std::size_t first, std::size_t count, Room& room) const override {
    std::vector<std::uint32_t> samples(count);
    for (std::size_t i = 0; i < count; ++i) {
      samples[i] = part == Part::test    ? static_cast<std::uint32_t>(first + i)
                   : part == Part::train ? batches().training()[first + i]
                                         : batches().validation()[first + i];
    }
    fill(part == Part::test ? data_.test : data_.train, samples, {}, room);
  }

  double metric_of(double /*loss*/, double share_right) const noexcept override { return share_right; }

 private:
  void fill(const ImageSet& images, std::span<const std::uint32_t> samples, std::span<const Change> changes,
            Room& room) const {
    room.pixels.resize(samples.size() * images.image_size());
    filler_.fill(images, samples, changes, room.pixels);
    room.targets.clear();
    for (const std::uint32_t sample : samples) room.targets.push_back(images.labels[sample]);
  }

  ImageData data_;
  PixelFiller filler_;
  bool is_augmented_;
  std::vector<std::vector<Change>> changes_;  // one for each worker
};

std::unique_ptr<Problem> make_images(const ImageTask& task, Spec& spec, const ProblemPlace& place) {
  const std::uint64_t batch = spec.integer("batch", 0, 1U << 24).value_or(task.batch);
  const bool augment = task.can_be_augmented && spec.flag("augment", true);
  const std::uint64_t samples = spec.integer("samples", 1, 1U << 24).value_or(0);
  spec.finish();  // before anything is loaded
  auto model = make_model(task.model, {}, place.device,
                          place.has_tf32);  // before the data: it is the first thing that is missing
  ImageData data = read_images(task.data, data_folder(place.data_dir));
  const ImageSet& images = data.train;
  if (images.channels != task.channels || images.height != task.size || images.width != task.size) {
    spec.fail(fmt::format("is for images of {0}x{0} pixels, and {1} here has images of {2}x{3} pixels", task.size,
                          task.data, images.height, images.width));
  }
  if (samples > images.size()) {
    spec.fail(fmt::format("samples={} is more than the {} training images of {}", samples, images.size(), task.data));
  }
  if (samples != 0) {
    data.train.cut_to(samples);
    data.test.cut_to((samples + kTrainingToTest - 1) / kTrainingToTest);
  }
  return std::make_unique<DeepImages>(task, std::move(model), std::move(data), batch, augment, place);
}

// The downlink paper normalises Fashion-MNIST as MNIST.
constexpr ImageTask small_task(const char* model, const char* data) {
  return {model, data, 1, 28, kMnistNormalisation, 10, false};
}
constexpr ImageTask cifar_task(const char* model) { return {model, "cifar10", 3, 32, kCifar10Normalisation, 20, true}; }

}  // namespace

std::unique_ptr<Problem> make_mnist_mlp_problem(Spec& spec, const ProblemPlace& place) {
  return make_images(small_task("mnist_mlp", "mnist"), spec, place);
}
std::unique_ptr<Problem> make_mnist_cnn_problem(Spec& spec, const ProblemPlace& place) {
  return make_images(small_task("mnist_cnn", "mnist"), spec, place);
}
std::unique_ptr<Problem> make_fashion_mlp_problem(Spec& spec, const ProblemPlace& place) {
  return make_images(small_task("fashion_mlp", "fashion-mnist"), spec, place);
}
std::unique_ptr<Problem> make_fashion_cnn_problem(Spec& spec, const ProblemPlace& place) {
  return make_images(small_task("fashion_cnn", "fashion-mnist"), spec, place);
}
std::unique_ptr<Problem> make_resnet18_problem(Spec& spec, const ProblemPlace& place) {
  return make_images(cifar_task("resnet18"), spec, place);
}
std::unique_ptr<Problem> make_resnet20_problem(Spec& spec, const ProblemPlace& place) {
  return make_images(cifar_task("resnet20"), spec, place);
}
std::unique_ptr<Problem> make_vgg19_problem(Spec& spec, const ProblemPlace& place) {
  return make_images(cifar_task("vgg19"), spec, place);
}

}  // namespace sparsewire::train
