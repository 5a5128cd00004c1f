// Data sets in their folders: found, verified, read; and texts.
#include "data/data_sets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <numeric>

#include "data/found.h"
#include "data/md5.h"
#include "sparsewire/errors.h"
#include "unit/compressed.h"
#include "unit/folder.h"
#include "unit/image_files.h"
#include "unit/usage_error.h"

namespace sparsewire::train::data_sets_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// RFC 1321, and lengths around a block, as md5sum has them.
TEST(Md5, IsThatOfTheRfc) {
  EXPECT_EQ(md5(""), "d41d8cd98f00b204e9800998ecf8427e");
  EXPECT_EQ(md5("abc"), "900150983cd24fb0d6963f7d28e17f72");
  EXPECT_EQ(md5("12345678901234567890123456789012345678901234567890123456789012345678901234567890"),
            "57edf4a22be3c955ac49da2e2107b67a");
  EXPECT_EQ(md5(std::string(55, 'a')), "ef1772b6dff9a122358552954ad0df65");
  EXPECT_EQ(md5(std::string(56, 'a')), "3b0c8ac703f828b04c6c197006d17218");
  EXPECT_EQ(md5(std::string(64, 'a')), "014842d480b571495a4a0363793f7367");
}

TEST(DataSets, AreFoundInTheirFolders) {
  const Folder folder;
  const std::string root = folder / ".";
  EXPECT_THAT(usage_error_of([&] { read_images("mnist", root); }),
              AllOf(HasSubstr("the data set mnist is missing: there is no folder '"), HasSubstr("/mnist'")));
  write_mnist(folder, "mnist", 12, 6, 3);
  write_mnist(folder, "fashion-mnist", 13, 6, 3);
  write_cifar10(folder, "cifar10", 2);
  EXPECT_EQ(read_images("mnist", root).train.size(), 12U);
  EXPECT_EQ(read_images("fashion-mnist", root).train.size(), 13U);
  EXPECT_EQ(read_images("cifar10", root).train.size(), 10U);
  write_cifar10(folder, "cifar10/cifar-10-batches-bin", 3);  // as its archive is unpacked
  EXPECT_EQ(read_images("cifar10", root).train.size(), 15U);
  EXPECT_THAT(usage_error_of([] { data_set_info("svhn"); }),
              HasSubstr("'svhn' is not a data set; there are mnist, fashion-mnist, cifar10, tinyshakespeare"));
  EXPECT_EQ(data_folder(root), root);
  EXPECT_THAT(usage_error_of([&] { data_folder(folder / "nowhere"); }), HasSubstr("which --data-dir names"));
}

TEST(DataSets, AreReportedAsTheyAre) {
  const Folder folder;
  const DataSetInfo& mnist = data_set_info("mnist");
  EXPECT_EQ(find_data_set(mnist, "").state, DataSetState::missing);
  EXPECT_EQ(find_data_set(mnist, folder / ".").state, DataSetState::missing);
  write_mnist(folder, "mnist", 12, 6, 3);
  FoundDataSet found = find_data_set(mnist, folder / ".");
  EXPECT_EQ(found.state, DataSetState::readable);
  EXPECT_EQ(found.contents, "12 + 6 images of 1x3x3, 10 classes");
  EXPECT_EQ(found.fingerprint, read_images("mnist", folder / ".").fingerprint);
  EXPECT_EQ(found.files[0].md5, md5(folder.read("mnist/train-images-idx3-ubyte")));
  EXPECT_EQ(found.files[0].state, FileState::other);
  folder.write("mnist/t10k-labels-idx1-ubyte", "nothing");
  found = find_data_set(mnist, folder / ".");
  EXPECT_EQ(found.state, DataSetState::unreadable);
  EXPECT_THAT(found.message, HasSubstr("t10k-labels-idx1-ubyte' is not an idx file of labels"));
  std::filesystem::remove(folder / "mnist/t10k-labels-idx1-ubyte");
  found = find_data_set(mnist, folder / ".");
  EXPECT_EQ(found.state, DataSetState::incomplete);
  EXPECT_EQ(found.files[3].state, FileState::missing);
}

// A file with the right checksum is official, compressed by whomever.
TEST(DataSets, AreOfficialByTheirContents) {
  const Folder folder;
  const std::string text = "To be, or not to be: that is the question. ";
  std::string play;
  for (int i = 0; i < 10; ++i) play += text;
  const std::string md5_of_play = md5(play);
  const DataFileInfo files[] = {{"input.txt", md5_of_play, "0"}};
  DataSetInfo info = data_set_info("tinyshakespeare");
  info.files = files;
  std::filesystem::create_directory(folder / "tinyshakespeare");
  folder.write("tinyshakespeare/input.txt", play);
  EXPECT_EQ(find_data_set(info, folder / ".").state, DataSetState::official);
  folder.write("tinyshakespeare/input.txt", compressed(play));
  EXPECT_EQ(find_data_set(info, folder / ".").state, DataSetState::official);
  folder.write("tinyshakespeare/input.txt", compressed(play + "!"));
  EXPECT_EQ(find_data_set(info, folder / ".").state, DataSetState::readable);
}

TEST(Text, IsCutIntoThreeParts) {
  std::string text;
  for (int i = 0; i < 40; ++i) text += "abcz\n";
  const TextData data = parse_text(text, "x");
  EXPECT_EQ(data.alphabet, "\nabcz");
  EXPECT_EQ(data.part(Part::train).size(), 180U);
  EXPECT_EQ(data.part(Part::validation).size(), 10U);
  EXPECT_EQ(data.part(Part::test).size(), 10U);
  for (std::size_t i = 0; i < text.size(); ++i) EXPECT_EQ(data.alphabet[data.symbols[i]], text[i]);
  EXPECT_EQ(parse_text(compressed(text), "x").symbols, data.symbols);
  EXPECT_EQ(parse_text(compressed(text), "x").fingerprint, data.fingerprint);
}

TEST(Text, IsRefusedIfItIsNone) {
  const auto complaint = [](const std::string& bytes) { return usage_error_of([&] { parse_text(bytes, "x"); }); };
  EXPECT_THAT(complaint(""), HasSubstr("'x' has 0 bytes: a text needs at least 100"));
  EXPECT_THAT(complaint(std::string(200, 'a')), HasSubstr("'x' repeats a single byte"));
  EXPECT_THAT(complaint(std::string(199, 'a') + '\0'), HasSubstr("'x' is not a text file, it has a zero byte"));
  EXPECT_THAT(complaint(compressed(std::string(200, 'b')).substr(0, 12)), HasSubstr("'x' is cut short"));
}

TEST(Text, GivesEverySymbolAndTheNext) {
  std::vector<std::uint8_t> text(23);
  std::iota(text.begin(), text.end(), std::uint8_t{0});
  EXPECT_EQ(windows(23, 5), 4U);
  EXPECT_EQ(windows(21, 5), 4U);
  EXPECT_EQ(windows(20, 5), 3U);  // the last target would be missing
  EXPECT_EQ(windows(0, 5), 0U);
  std::vector<std::int64_t> inputs(10);
  std::vector<std::int64_t> targets(10);
  fill_windows(text, 5, std::vector<std::uint32_t>{3, 0}, {}, inputs, targets);
  EXPECT_THAT(inputs, ElementsAre(15, 16, 17, 18, 19, 0, 1, 2, 3, 4));
  EXPECT_THAT(targets, ElementsAre(16, 17, 18, 19, 20, 1, 2, 3, 4, 5));
  fill_windows(text, 5, std::vector<std::uint32_t>{2, 0}, std::vector<std::uint32_t>{0, 4}, inputs, targets);
  EXPECT_THAT(inputs, ElementsAre(10, 11, 12, 13, 14, 4, 5, 6, 7, 8));
  EXPECT_THAT(targets, ElementsAre(11, 12, 13, 14, 15, 5, 6, 7, 8, 9));
}

// Sums as numpy has them.
TEST(DataSets, AgreeWithNumpyWhereTheyAreThere) {
  const char* folder = std::getenv("SPARSEWIRE_DATA");  // NOLINT(concurrency-mt-unsafe): nobody here calls setenv
  if (folder == nullptr) GTEST_SKIP() << "SPARSEWIRE_DATA names no folder with mnist/";
  const auto sum = [](const std::vector<std::uint8_t>& bytes) {
    return std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0});
  };
  const ImageData mnist = read_images("mnist", folder);
  EXPECT_EQ(sum(mnist.train.pixels), 1567298545U);
  EXPECT_EQ(sum(mnist.test.pixels), 264923200U);
  EXPECT_EQ(sum(mnist.train.labels), 267236U);
  EXPECT_THAT(mnist.fingerprint, "47100024 bytes, CRC-32C 810f3e86");
  const TextData text = read_text("tinyshakespeare", folder);
  EXPECT_EQ(text.alphabet.size(), 65U);
  EXPECT_EQ(sum(text.symbols), 40836134U);
}

}  // namespace
}  // namespace sparsewire::train::data_sets_test
