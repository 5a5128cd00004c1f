// Images as a network reads them: normalised numbers, in training also cropped and mirrored at random.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "data/images.h"

namespace sparsewire::train {

// Mean and standard deviation of each channel over the training images, with pixels as shares of 255.
struct Normalisation {
  std::array<float, 3> mean{};
  std::array<float, 3> deviation{1, 1, 1};
};
// The usual numbers. Fashion-MNIST is normalised with those of MNIST, as in the downlink paper (Zou et al., 2022).
inline constexpr Normalisation kMnistNormalisation{{0.1307F}, {0.3081F}};
inline constexpr Normalisation kCifar10Normalisation{{0.4914F, 0.4822F, 0.4465F}, {0.2470F, 0.2435F, 0.2616F}};

// A random change of one image: it is shifted by dx and dy, and mirrored. What comes in from outside is black before
// normalisation.
struct Change {
  int dx = 0;
  int dy = 0;
  bool mirrored = false;
};

// The changes of a worker's batch in a step, drawn from (seed, worker, step): shifted by up to `padding` pixels in both
// directions, which is a random crop of the image with that much padding, and mirrored half of the time.
void draw_changes(std::uint64_t seed, int worker, std::uint64_t step, std::size_t count, int padding,
                  std::vector<Change>& changes);

// Fills batches with numbers.
class PixelFiller {
 public:
  explicit PixelFiller(const Normalisation& normalisation);

  // Writes (pixel/255 - mean)/deviation for these images one after the other, in their order (NCHW), with the same
  // rounding as PyTorch. `changes`: none, or one for each image.
  // REQUIRES: out.size() == samples.size() * images.image_size(); at most 3 channels. THREADS: any number of callers.
  void fill(const ImageSet& images, std::span<const std::uint32_t> samples, std::span<const Change> changes,
            std::span<float> out) const noexcept;

 private:
  std::array<std::array<float, 256>, 3> value_;  // of each pixel, by channel
};

}  // namespace sparsewire::train
