#include "data/pixels.h"

#include <algorithm>

#include "data/random.h"

namespace sparsewire::train {
namespace {

using Table = std::array<float, 256>;

// Most of the time is spent here. A table is as fast as arithmetic, and has the rounding of the divisions.
void look_up(const std::uint8_t* from, const Table& value, std::size_t count, float* to) noexcept {
  for (std::size_t i = 0; i < count; ++i) to[i] = value[from[i]];
}

// One channel of an image, shifted and mirrored.
void fill_changed(const std::uint8_t* from, const Table& value, int height, int width, Change change,
                  float* to) noexcept {
  // Columns [begin, end) of the result come from the image, the others from outside.
  const int begin = std::clamp(change.dx, 0, width);
  const int end = std::clamp(width + change.dx, begin, width);
  for (int y = 0; y < height; ++y, to += width) {
    const int source = y - change.dy;
    if (source < 0 || source >= height || begin == end) {
      std::fill(to, to + width, value[0]);
      continue;
    }
    std::fill(to, to + begin, value[0]);
    look_up(from + source * width + begin - change.dx, value, static_cast<std::size_t>(end - begin), to + begin);
    std::fill(to + end, to + width, value[0]);
    if (change.mirrored) std::reverse(to, to + width);
  }
}

}  // namespace

void draw_changes(std::uint64_t seed, int worker, std::uint64_t step, std::size_t count, int padding,
                  std::vector<Change>& changes) {
  Draws draws(seed, Use::augment, worker, step);
  const auto places = static_cast<std::uint32_t>(2 * padding + 1);
  changes.resize(count);
  for (Change& change : changes) {
    const std::uint32_t drawn = draws.below(2 * places * places);
    change.mirrored = drawn % 2 == 1;
    change.dx = static_cast<int>(drawn / 2 % places) - padding;
    change.dy = static_cast<int>(drawn / 2 / places) - padding;
  }
}

PixelFiller::PixelFiller(const Normalisation& normalisation) {
  for (std::size_t channel = 0; channel < value_.size(); ++channel) {
    for (std::size_t pixel = 0; pixel < value_[channel].size(); ++pixel) {
      const float share = static_cast<float>(pixel) / 255;
      value_[channel][pixel] = (share - normalisation.mean[channel]) / normalisation.deviation[channel];
    }
  }
}

void PixelFiller::fill(const ImageSet& images, std::span<const std::uint32_t> samples, std::span<const Change> changes,
                       std::span<float> out) const noexcept {
  const std::size_t plane = std::size_t{images.height} * images.width;
  float* to = out.data();
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const std::uint8_t* from = images.image(samples[i]).data();
    for (std::size_t channel = 0; channel < images.channels; ++channel, from += plane, to += plane) {
      if (changes.empty()) {
        look_up(from, value_[channel], plane, to);
      } else {
        fill_changed(from, value_[channel], static_cast<int>(images.height), static_cast<int>(images.width), changes[i],
                     to);
      }
    }
  }
}

}  // namespace sparsewire::train
