// Which samples a step takes, and the numbers that a network gets for them.
#include "problems/batches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <thread>
#include <vector>

#include "data/pixels.h"
#include "sparsewire/errors.h"
#include "unit/image_files.h"

namespace sparsewire::train::batches_test {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

std::vector<std::uint8_t> some_labels(std::size_t samples) {
  std::vector<std::uint8_t> labels;
  for (std::size_t i = 0; i < samples; ++i) labels.push_back(static_cast<std::uint8_t>(i * 7 % 10));
  return labels;
}

std::vector<std::uint32_t> taken(Batches& batches, int worker, std::uint64_t first, std::uint64_t steps) {
  std::vector<std::uint32_t> all;
  for (std::uint64_t step = first; step < first + steps; ++step) {
    const auto batch = batches.take(worker, step);
    all.insert(all.end(), batch.begin(), batch.end());
  }
  return all;
}

TEST(Batches, TakeEverySampleOnceInAPass) {
  // 60 samples for 3 workers; 20 are 5 batches of 4. With batches of 7 a pass ends inside a batch.
  for (const std::uint64_t batch : {4U, 7U}) {
    Batches batches(some_labels(60), batch, {.workers = 3, .seed = 5});
    std::set<std::uint32_t> all;
    for (int worker = 0; worker < 3; ++worker) {
      const std::vector<std::uint32_t> sequence = taken(batches, worker, 0, 20);
      EXPECT_EQ(sequence.size(), 20 * batch);
      const std::vector<std::uint32_t> first(sequence.begin(), sequence.begin() + 20);
      for (std::size_t begin = 0; begin + 20 <= sequence.size(); begin += 20) {
        const std::vector<std::uint32_t> pass(&sequence[begin], &sequence[begin] + 20);
        EXPECT_EQ(std::set(pass.begin(), pass.end()), std::set(first.begin(), first.end())) << begin;
        EXPECT_EQ(pass == first, begin == 0) << "each pass has an order of its own";
      }
      all.insert(first.begin(), first.end());
    }
    EXPECT_EQ(all.size(), 60U) << "every sample has a worker";
  }
}

TEST(Batches, DependOnSeedWorkerAndStepAlone) {
  const auto labels = some_labels(50);
  Batches one(labels, 6, {.workers = 2, .seed = 1, .split = "all"});
  Batches backwards(labels, 6, {.workers = 2, .seed = 1, .split = "all"});
  std::map<std::uint64_t, std::vector<std::uint32_t>> seen;
  for (std::uint64_t step = 0; step < 40; ++step) seen[step] = taken(one, 1, step, 1);
  for (std::uint64_t step = 40; step-- > 0;) EXPECT_EQ(taken(backwards, 1, step, 1), seen[step]) << step;
  EXPECT_NE(taken(one, 0, 0, 8), taken(one, 1, 0, 8));
  Batches other(labels, 6, {.workers = 2, .seed = 2, .split = "all"});
  EXPECT_NE(taken(other, 1, 0, 8), taken(one, 1, 0, 8));
}

TEST(Batches, AreTheSameFromManyThreads) {
  const auto labels = some_labels(90);
  Batches alone(labels, 5, {.workers = 3, .seed = 1});
  Batches shared(labels, 5, {.workers = 3, .seed = 1});
  std::vector<std::vector<std::uint32_t>> found(3);
  std::vector<std::thread> threads;
  for (int worker = 0; worker < 3; ++worker) {
    threads.emplace_back([&, worker] { found[static_cast<std::size_t>(worker)] = taken(shared, worker, 0, 50); });
  }
  for (std::thread& thread : threads) thread.join();
  for (int worker = 0; worker < 3; ++worker) {
    EXPECT_EQ(found[static_cast<std::size_t>(worker)], taken(alone, worker, 0, 50));
  }
}

TEST(Batches, MayBeLateOrLargerThanWhatAWorkerHas) {
  Batches batches(some_labels(12), 5, {.workers = 4, .seed = 1});
  const std::vector<std::uint32_t> sequence = taken(batches, 2, 0, 6);  // each has 3 samples
  for (std::size_t begin = 0; begin < 30; begin += 3) {
    EXPECT_EQ(std::set(&sequence[begin], &sequence[begin] + 3).size(), 3U);
  }
  EXPECT_EQ(taken(batches, 2, 1'000'000'000'000'000, 3).size(), 15U);
  Batches whole(some_labels(12), 0, {.workers = 4, .seed = 1});
  EXPECT_EQ(taken(whole, 2, 0, 1), taken(whole, 2, 9, 1));
  EXPECT_EQ(whole.size_of(2), 3U);
  try {
    Batches(some_labels(12), 13, {.workers = 4, .seed = 1});
    ADD_FAILURE() << "13 of 12 samples";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("batch=13 is more than the 12 training samples"));
  }
}

TEST(Batches, NeverTakeWhatIsHeldBack) {
  Batches batches(some_labels(100), 9, {.workers = 3, .seed = 4, .validation = 0.2});
  EXPECT_EQ(batches.validation().size(), 20U);
  std::set<std::uint32_t> all;
  for (int worker = 0; worker < 3; ++worker) {
    for (const std::uint32_t sample : taken(batches, worker, 0, 10)) all.insert(sample);
  }
  EXPECT_EQ(all, std::set(batches.training().begin(), batches.training().end()));
  for (const std::uint32_t sample : batches.validation()) EXPECT_EQ(all.count(sample), 0U);
}

// Zou et al., 2022: 60,000 samples of 10 labels, 200 shards of 300, two for each of 100 workers.
TEST(Batches, DivideSamplesAsTheDownlinkPaperDoes) {
  const auto labels = some_labels(60000);
  const Batches batches(labels, 10, {.workers = 100, .seed = 1, .split = "shards:per_worker=2"});
  std::vector<std::size_t> sizes;
  for (int worker = 0; worker < 100; ++worker) sizes.push_back(batches.samples_of(worker));
  EXPECT_THAT(sizes, Each(600));
  Batches first(labels, 600, {.workers = 100, .seed = 1, .split = "shards:per_worker=2"});
  for (int worker = 0; worker < 100; ++worker) {
    std::map<int, int> counts;
    for (const std::uint32_t sample : first.take(worker, 0)) ++counts[labels[sample]];
    EXPECT_LE(counts.size(), 2U) << worker;  // 6000 samples of each label are 20 whole shards
    for (const auto& [label, count] : counts) EXPECT_EQ(count % 300, 0) << label;
  }
}

ImageSet made_up_set(std::uint32_t channels, std::uint32_t side, std::uint32_t count) {
  ImageSet images{.channels = channels, .height = side, .width = side, .classes = 10, .pixels = {}, .labels = {}};
  for (std::uint32_t n = 0; n < count; ++n) {
    const std::string pixels = made_up_pixels(n, channels * side * side);
    images.pixels.insert(images.pixels.end(), pixels.begin(), pixels.end());
    images.labels.push_back(static_cast<std::uint8_t>(n % 10));
  }
  return images;
}

TEST(Pixels, AreNormalisedByChannel) {
  const ImageSet images = made_up_set(3, 5, 4);
  const std::vector<std::uint32_t> samples{2, 0, 2};
  std::vector<float> out(3 * 75);
  PixelFiller(kCifar10Normalisation).fill(images, samples, {}, out);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::uint8_t pixel = images.image(samples[i / 75])[i % 75];
    const std::size_t channel = i % 75 / 25;
    const float expected = (static_cast<float>(pixel) / 255.0F - kCifar10Normalisation.mean[channel]) /
                           kCifar10Normalisation.deviation[channel];
    EXPECT_EQ(out[i], expected) << i;
  }
}

// Compared with the definition, pixel by pixel, also for shifts that leave nothing of the image.
TEST(Pixels, AreShiftedAndMirrored) {
  const ImageSet images = made_up_set(2, 6, 3);
  const PixelFiller filler({.mean = {0.5F, 0.25F, 0}, .deviation = {0.5F, 2, 1}});
  for (const int dx : {-7, -6, -4, -1, 0, 1, 4, 6, 9}) {
    for (const int dy : {-9, -4, 0, 3, 6}) {
      for (const bool mirrored : {false, true}) {
        const std::vector<Change> changes{{dx, dy, mirrored}, {}};
        std::vector<float> out(2 * 72);
        filler.fill(images, std::vector<std::uint32_t>{1, 2}, changes, out);
        std::vector<float> plain(2 * 72);
        filler.fill(images, std::vector<std::uint32_t>{1, 2}, {}, plain);
        for (int i = 0; i < 72; ++i) {
          const int channel = i / 36;
          const int x = mirrored ? 5 - i % 6 : i % 6;
          const int from_x = x - dx;
          const int from_y = i / 6 % 6 - dy;
          const bool is_inside = from_x >= 0 && from_x < 6 && from_y >= 0 && from_y < 6;
          const float black = channel == 0 ? -1.0F : -0.125F;
          const float expected =
              is_inside ? plain[static_cast<std::size_t>(channel * 36 + from_y * 6 + from_x)] : black;
          ASSERT_EQ(out[static_cast<std::size_t>(i)], expected) << dx << ' ' << dy << ' ' << mirrored << ' ' << i;
        }
        EXPECT_TRUE(std::equal(out.begin() + 72, out.end(), plain.begin() + 72)) << "the second is not changed";
      }
    }
  }
}

TEST(Pixels, ChangeByEveryShiftEquallyOften) {
  std::map<std::tuple<int, int, bool>, int> counts;
  std::vector<Change> changes;
  for (std::uint64_t step = 0; step < 100; ++step) {
    draw_changes(3, 1, step, 162, 4, changes);
    for (const Change& change : changes) ++counts[{change.dx, change.dy, change.mirrored}];
  }
  EXPECT_EQ(counts.size(), 162U);  // 9 x 9 x 2
  for (const auto& [change, count] : counts) {
    EXPECT_NEAR(count, 100, 50) << std::get<0>(change) << ' ' << std::get<1>(change);  // 5 standard deviations
  }
}

TEST(Pixels, ChangeBySeedWorkerAndStep) {
  const auto drawn = [](std::uint64_t seed, int worker, std::uint64_t step) {
    std::vector<Change> changes;
    draw_changes(seed, worker, step, 20, 4, changes);
    std::vector<int> numbers;
    for (const Change& change : changes)
      numbers.push_back(100 * change.dx + 10 * change.dy + (change.mirrored ? 1 : 0));
    return numbers;
  };
  EXPECT_EQ(drawn(1, 2, 3), drawn(1, 2, 3));
  EXPECT_NE(drawn(1, 2, 3), drawn(2, 2, 3));
  EXPECT_NE(drawn(1, 2, 3), drawn(1, 3, 3));
  EXPECT_NE(drawn(1, 2, 3), drawn(1, 2, 4));
}

}  // namespace
}  // namespace sparsewire::train::batches_test
