// MNIST and CIFAR-10 in their own formats, and one clear line for every file that is not in them.
#include "data/images.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "data/gzip.h"
#include "data/idx.h"
#include "sparsewire/errors.h"
#include "unit/compressed.h"
#include "unit/folder.h"
#include "unit/image_files.h"
#include "unit/usage_error.h"

namespace sparsewire::train::images_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::string text_of(std::span<const std::uint8_t> bytes) { return {bytes.begin(), bytes.end()}; }

TEST(Mnist, IsReadAsItWasWritten) {
  const Folder folder;
  write_mnist(folder, "m", 20, 10, 5);
  const ImageData data = read_mnist(folder / "m");
  EXPECT_EQ(data.train.size(), 20U);
  EXPECT_EQ(data.test.size(), 10U);
  EXPECT_THAT((std::vector{data.train.channels, data.train.height, data.train.width, data.train.classes}),
              ElementsAre(1, 5, 5, 10));
  EXPECT_EQ(text_of(data.train.image(13)), made_up_pixels(13, 25));
  EXPECT_EQ(text_of(data.test.image(9)), made_up_pixels(9, 25));
  EXPECT_EQ(text_of(data.train.labels), made_up_labels(20));
  EXPECT_EQ(data.fingerprint.substr(0, data.fingerprint.find(',')), "544 bytes");  // 16 + 500 and 8 + 20
}

TEST(Mnist, IsTheSameCompressed) {
  const Folder folder;
  write_mnist(folder, "m", 20, 10, 5);
  const ImageData plain = read_mnist(folder / "m");
  for (const std::string name : {"train-images-idx3-ubyte", "t10k-labels-idx1-ubyte"}) {
    folder.write("m/" + name + ".gz", compressed(folder.read("m/" + name)));
    std::filesystem::remove(folder / ("m/" + name));
  }
  const ImageData packed = read_mnist(folder / "m");
  EXPECT_EQ(packed.train.pixels, plain.train.pixels);
  EXPECT_EQ(packed.test.labels, plain.test.labels);
  EXPECT_EQ(packed.fingerprint, plain.fingerprint);
  EXPECT_EQ(packed.test_fingerprint, plain.test_fingerprint);
}

TEST(Mnist, RefusesPartsThatDoNotBelongTogether) {
  const Folder folder;
  const auto complaint = [&] { return usage_error_of([&] { read_mnist(folder / "m"); }); };
  EXPECT_THAT(complaint(), AllOf(HasSubstr("there is no file '"), HasSubstr("m/train-images-idx3-ubyte.gz'"),
                                 HasSubstr("'sparsewire data' says where to get it")));
  write_mnist(folder, "m", 20, 10, 5);
  EXPECT_EQ(complaint(), "");
  folder.write("m/train-labels-idx1-ubyte", idx_file({21}, made_up_labels(21)));
  EXPECT_THAT(complaint(), AllOf(HasSubstr("has 21 labels, and '"), HasSubstr("has 20 images")));
  std::string labels = made_up_labels(20);
  labels[17] = 10;
  folder.write("m/train-labels-idx1-ubyte", idx_file({20}, labels));
  EXPECT_THAT(complaint(), HasSubstr("m/train-labels-idx1-ubyte': label 10 of image 17 is not in [0, 9]"));
  write_mnist(folder, "m", 20, 10, 5);
  folder.write("m/t10k-images-idx3-ubyte", made_up_images(10, 5, 6));
  EXPECT_THAT(complaint(), HasSubstr("training images of 5x5 pixels and test images of 5x6"));
  folder.write("m/t10k-images-idx3-ubyte", idx_file({10}, made_up_labels(10)));
  EXPECT_THAT(complaint(), HasSubstr("is an idx file of labels, and one of images is expected there"));
}

TEST(Mnist, RefusesWhatIsNoFile) {
  const Folder folder;
  write_mnist(folder, "m", 20, 10, 5);
  const std::string name = folder / "m/train-labels-idx1-ubyte";
  const auto complaint = [&] { return usage_error_of([&] { read_mnist(folder / "m"); }); };
  std::filesystem::remove(name);
  std::filesystem::create_directory(name);
  EXPECT_THAT(complaint(), HasSubstr("m/train-labels-idx1-ubyte' is a folder"));
  std::filesystem::remove(name);
  std::filesystem::create_symlink("/dev/zero", name);
  EXPECT_THAT(complaint(), HasSubstr("m/train-labels-idx1-ubyte' is not a regular file"));
  std::filesystem::remove(name);
  std::filesystem::create_symlink("train-labels-idx1-ubyte", name);
  EXPECT_THAT(complaint(), HasSubstr("train-labels-idx1-ubyte"));  // a link to itself
}

std::string idx_complaint(const std::string& bytes, unsigned dimensions) {
  return usage_error_of([&] {
    Fingerprint fingerprint;
    parse_idx(bytes, "x", dimensions, fingerprint);
  });
}

TEST(Idx, IsRefusedWhereverItIsCut) {
  const std::string whole = made_up_images(3, 2, 2);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const std::string cut = whole.substr(0, size);
    EXPECT_THAT(idx_complaint(cut, 3), HasSubstr("'x' is cut short: it has " + std::to_string(size) + " bytes"));
    EXPECT_THAT(idx_complaint(compressed(cut), 3), HasSubstr("'x' is cut short: it has " + std::to_string(size)));
  }
  EXPECT_EQ(idx_complaint(whole, 3), "");
  const std::string packed = compressed(whole);
  for (std::size_t size = 2; size < packed.size(); ++size) {
    EXPECT_THAT(idx_complaint(packed.substr(0, size), 3), HasSubstr("'x' is cut short")) << size;
  }
}

TEST(Idx, IsRefusedWithOtherBytes) {
  const std::string whole = made_up_images(3, 2, 2);
  EXPECT_THAT(idx_complaint(whole + '\0', 3), HasSubstr("'x' has more than the 28 bytes that its header announces"));
  EXPECT_THAT(idx_complaint(compressed(whole + '\0'), 3), HasSubstr("'x' has more than the 28 bytes"));
  EXPECT_THAT(idx_complaint(compressed(whole) + "x", 3), HasSubstr("'x' has other bytes after its compressed data"));
  EXPECT_THAT(idx_complaint(whole, 1), HasSubstr("one of labels is expected there"));
  EXPECT_THAT(idx_complaint("<html>\n<p>404</p>", 3),
              HasSubstr("'x' is not an idx file of images: it begins with 3c68746d, not 00000803"));
  std::string floats = whole;
  floats[2] = '\x0D';
  EXPECT_THAT(idx_complaint(floats, 3), HasSubstr("begins with 00000d03"));
  EXPECT_THAT(idx_complaint(idx_file({0, 28, 28}, ""), 3), HasSubstr("'x' is empty"));
  std::string damaged = compressed(whole);
  damaged[damaged.size() - 5] = static_cast<char>(damaged[damaged.size() - 5] ^ 1);
  EXPECT_THAT(idx_complaint(damaged, 3), HasSubstr("'x' is damaged"));
}

TEST(Gzip, UnpacksNoMoreThanItIsAskedFor) {
  const std::string two = compressed("abc") + compressed("defg");
  EXPECT_EQ(gunzip(two, "x"), "abcdefg");
  EXPECT_EQ(gunzip(two, "x", 7), "abcdefg");
  EXPECT_EQ(gunzip(two, "x", 5), "abcde");
  EXPECT_EQ(gunzip(two, "x", 3), "abc");
  EXPECT_EQ(gunzip(two + "rubbish", "x", 2), "ab");
  EXPECT_EQ(gunzip(two, "x", 0), "");
}

// A header alone must not take memory, and what is compressed must not unpack without a limit.
TEST(Idx, IsNotBelievedAboutItsSize) {
  constexpr std::uint32_t kMost = 0xFFFFFFFF;
  EXPECT_THAT(idx_complaint(idx_file({kMost, kMost, kMost}, ""), 3), HasSubstr("announces more than 2 GiB"));
  EXPECT_THAT(idx_complaint(compressed(idx_file({kMost}, "")), 1), HasSubstr("announces more than 2 GiB"));
  EXPECT_THAT(idx_complaint(idx_file({60000, 28, 28}, "abc"), 3), HasSubstr("is cut short: it has 19 bytes"));
  const std::string bomb = compressed(idx_file({4}, std::string(std::size_t{1} << 24, '\0')));
  EXPECT_THAT(idx_complaint(bomb, 1), HasSubstr("more than the 12 bytes"));
  // A second part that would fail if it were looked at shows that nothing behind the limit is.
  EXPECT_THAT(idx_complaint(bomb + bomb.substr(0, 20), 1), AllOf(HasSubstr("more than the 12"), Not(HasSubstr("cut"))));
}

TEST(Cifar10, IsReadAsItWasWritten) {
  const Folder folder;
  write_cifar10(folder, "c", 4);
  const ImageData data = read_cifar10(folder / "c");
  EXPECT_EQ(data.train.size(), 20U);
  EXPECT_EQ(data.test.size(), 4U);
  EXPECT_THAT((std::vector{data.train.channels, data.train.height, data.train.width, data.train.classes}),
              ElementsAre(3, 32, 32, 10));
  for (std::uint32_t n = 0; n < 20; ++n) EXPECT_EQ(text_of(data.train.image(n)), made_up_pixels(n, 3072)) << n;
  EXPECT_EQ(text_of(data.train.labels), made_up_labels(20));
  EXPECT_EQ(data.fingerprint.substr(0, data.fingerprint.find(',')), "61460 bytes");
}

TEST(Cifar10, RefusesFilesThatAreNot) {
  const Folder folder;
  write_cifar10(folder, "c", 4);
  const auto complaint = [&](const std::string& content) {
    folder.write("c/data_batch_3.bin", content);
    return usage_error_of([&] { read_cifar10(folder / "c"); });
  };
  const std::string whole = cifar10_records(8, 4);
  EXPECT_EQ(complaint(whole), "");
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{3072}, whole.size() - 1}) {
    EXPECT_THAT(complaint(whole.substr(0, size)),
                HasSubstr("data_batch_3.bin' has " + std::to_string(size) + " bytes, which are not whole records"));
  }
  EXPECT_THAT(complaint(whole + "x"), HasSubstr("has 12293 bytes"));
  EXPECT_THAT(complaint(compressed(whole)), HasSubstr("is compressed with gzip: unpack it first"));
  std::string wrong = whole;
  wrong[2 * 3073] = 10;
  EXPECT_THAT(complaint(wrong), HasSubstr("data_batch_3.bin': label 10 of image 2 is not in [0, 9]"));
  std::filesystem::remove(folder / "c/data_batch_3.bin");
  EXPECT_THAT(usage_error_of([&] { read_cifar10(folder / "c"); }), HasSubstr("there is no file '"));
}

}  // namespace
}  // namespace sparsewire::train::images_test
