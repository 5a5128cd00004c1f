// LIBSVM files in all forms that people write, and errors for broken ones.
#include "data/libsvm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "data/random.h"
#include "sparsewire/errors.h"
#include "unit/compressed.h"
#include "unit/folder.h"

namespace sparsewire::train::libsvm_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string complaint(const std::string& text) {
  try {
    parse_libsvm(text, "x.txt");
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(Libsvm, ReadsRowsAndLabels) {
  const LabelledRows data = parse_libsvm("+1 1:0.5 7:-2e3\n-1 2:+.25\n", "x.txt");
  EXPECT_EQ(data.rows.size(), 2U);
  EXPECT_EQ(data.rows.dim, 7U);
  EXPECT_THAT(data.rows.indices(0), ElementsAre(0, 6));
  EXPECT_THAT(data.rows.values(0), ElementsAre(0.5, -2000));
  EXPECT_THAT(data.rows.indices(1), ElementsAre(1));
  EXPECT_THAT(data.rows.values(1), ElementsAre(0.25));
  EXPECT_THAT(data.labels, ElementsAre("-1", "+1"));
  EXPECT_THAT(data.label, ElementsAre(1, 0));
}

TEST(Libsvm, AcceptsAllUsualWaysOfWriting) {
  const LabelledRows plain = parse_libsvm("1 1:2 3:4\n0\n1 2:1\n", "x.txt");
  for (const char* text :
       {"1 1:2 3:4\r\n0\r\n1 2:1\r\n", "1 1:2 3:4\n0\n1 2:1", "# head\n\n1\t1:2   3:4 \n\n  0 # 5:1\n1 2:1#\n",
        "\xEF\xBB\xBF"
        "1 1:2 3:4\n0\n1 2:1\n",
        "1.0 1:2.0 3:4e0\n-0\n+1 2:10e-1\n", "\n \t\r\n1 1:2 3:4\n 0 \n1 2:1\n#"}) {
    SCOPED_TRACE(text);
    const LabelledRows data = parse_libsvm(text, "x.txt");
    EXPECT_EQ(data.rows.begin, plain.rows.begin);
    EXPECT_EQ(data.rows.index, plain.rows.index);
    EXPECT_EQ(data.rows.value, plain.rows.value);
    EXPECT_EQ(data.rows.dim, plain.rows.dim);
    EXPECT_EQ(data.label, plain.label);
  }
}

TEST(Libsvm, WithoutSamplesHasNoRows) {
  for (const char* text : {"", "\n", "# nothing\n", "  \r\n\t"}) {
    const LabelledRows data = parse_libsvm(text, "x.txt");
    EXPECT_EQ(data.rows.size(), 0U);
    EXPECT_EQ(data.rows.dim, 0U);
    EXPECT_TRUE(data.labels.empty());
  }
}

TEST(Libsvm, TakesWordsAsLabelsAndSortsThemAfterNumbers) {
  const LabelledRows data = parse_libsvm("spam 1:1\n10 1:1\nham\n9\nnaan,2\n+10\nspam\n", "x.txt");
  EXPECT_THAT(data.labels, ElementsAre("9", "10", "ham", "naan,2", "spam"));
  EXPECT_THAT(data.label, ElementsAre(4, 1, 2, 0, 3, 1, 4));
}

TEST(Libsvm, NamesTheLineOfAnError) {
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"1 0:1", "index '0' is not a whole number in [1, 268435456]"},
      {"1 268435457:1", "index '268435457' is not a whole number in [1, 268435456]"},
      {"1 99999999999999999999:1", "index '99999999999999999999' is not"},
      {"1 -1:1", "index '-1' is not"},
      {"1 1.5:1", "index '1.5' is not"},
      {"1 qid:3 1:1", "index 'qid' is not"},
      {"1 2:1 2:1", "index 2 follows 2: indices must ascend"},
      {"1 3:1 2:1", "index 2 follows 3"},
      {"1 1", "'1' is not index:value"},
      {"1 1:", "'1:' has no finite number"},
      {"1 1:x", "'1:x' has no finite number"},
      {"1 1:1:1", "'1:1:1' has no finite number"},
      {"1 1:nan", "'1:nan' has no finite number"},
      {"1 1:inf", "'1:inf' has no finite number"},
      {"1 1:1e999", "'1:1e999' has no finite number"},
      {"1 1:++1", "'1:++1' has no finite number"},
      {"1 1:0x10", "'1:0x10' has no finite number"},
      {"1 1: 2", "'1:' has no finite number"},
      {"nan 1:1", "the label 'nan' is not a finite number"},
      {"-inf 1:1", "the label '-inf' is not a finite number"},
      {"1,2 1:1", "'1,2' stands for several labels: a sample must have one"},
      {"1:1 2:1", "'1:1' stands where a label is expected"},
      {"a\x01"
       "b 1:1",
       "the label 'a?b' has control characters in it"},
      {std::string("1 1:1\0", 6), "'1:1?' has no finite number"},
      {"1 1:1\r2:1", "'1:1?2:1' has no finite number"},
      {"1 " + std::string(1000, 'z'), "'" + std::string(40, 'z') + "...' is not index:value"},
  };
  for (const auto& [line, says] : wrong) {
    SCOPED_TRACE(line);
    const std::string message = complaint("# one\n1 1:1\n" + line + "\n1 1:1\n");
    EXPECT_THAT(message, StartsWith("x.txt:3: "));
    EXPECT_THAT(message, HasSubstr(says));
  }
}

TEST(Libsvm, ReadsCompressedFiles) {
  const Folder folder;
  std::string text;
  for (int i = 0; i < 120'000; ++i) text += i % 3 == 0 ? "1 1:0.5 7:2\n" : "-1 3:1.25\n";  // more than one piece
  folder.write("plain", text);
  folder.write("x.gz", compressed(text));
  folder.write("two.gz", compressed(text.substr(0, 1000)) + compressed(text.substr(1000)));
  const LabelledRows plain = read_libsvm(folder / "plain");
  for (const char* name : {"x.gz", "two.gz"}) {
    const LabelledRows data = read_libsvm(folder / name);
    EXPECT_EQ(data.rows.begin, plain.rows.begin);
    EXPECT_EQ(data.rows.index, plain.rows.index);
    EXPECT_EQ(data.rows.value, plain.rows.value);
    EXPECT_EQ(data.label, plain.label);
    EXPECT_EQ(data.fingerprint, plain.fingerprint) << "of the text";
  }
  folder.write("empty.gz", compressed(""));
  EXPECT_EQ(read_libsvm(folder / "empty.gz").rows.size(), 0U);
}

TEST(Libsvm, RefusesCompressedFilesThatAreDamaged) {
  const Folder folder;
  const auto complaint_of = [&](const std::string& bytes) -> std::string {
    folder.write("x.gz", bytes);
    try {
      read_libsvm(folder / "x.gz");
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  const std::string whole = compressed("1 1:1\n-1 2:1\n1 3:0.5\n");
  EXPECT_EQ(complaint_of(whole), "");
  for (std::size_t cut = 2; cut < whole.size(); ++cut) {
    EXPECT_THAT(complaint_of(whole.substr(0, cut)), HasSubstr("x.gz' is cut short")) << cut;
  }
  for (std::size_t at = whole.size() - 8; at < whole.size(); ++at) {  // its checksum and length
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 4);
    EXPECT_THAT(complaint_of(damaged), HasSubstr("x.gz' is damaged")) << at;
  }
  EXPECT_THAT(complaint_of(whole + "more"), HasSubstr("has other bytes after its compressed data"));
  EXPECT_THAT(complaint_of(compressed(std::string("1 1:1\n\0", 7))), HasSubstr("not a text file"));
  EXPECT_THAT(complaint_of(compressed("1 0:1\n")), HasSubstr("x.gz:1: index '0'"));
}

TEST(Libsvm, RefusesAFileThatCannotBeRead) {
  EXPECT_THROW(read_libsvm("/nonexistent/file"), UsageError);
  EXPECT_THROW(read_libsvm("/"), UsageError);
}

void expect_sound(const LabelledRows& data) {
  ASSERT_EQ(data.label.size(), data.rows.size());
  ASSERT_EQ(data.rows.index.size(), data.rows.value.size());
  ASSERT_EQ(data.rows.begin.back(), data.rows.index.size());
  for (const std::uint32_t label : data.label) ASSERT_LT(label, data.labels.size());
  for (std::size_t row = 0; row < data.rows.size(); ++row) {
    const auto indices = data.rows.indices(row);
    for (std::size_t i = 0; i < indices.size(); ++i) {
      ASSERT_LT(indices[i], data.rows.dim);
      ASSERT_TRUE(i == 0 || indices[i - 1] < indices[i]);
      ASSERT_TRUE(std::isfinite(data.rows.values(row)[i]));
    }
  }
}

// Bytes that are often nearly right: the result is consistent, or there is an error.
TEST(Libsvm, ReadsOrRefusesAnyBytes) {
  const std::string_view alphabet("0112345:: \t\n\r#+-.eE\0\xFF", 21);
  int taken = 0;
  for (std::uint64_t trial = 0; trial < 20000; ++trial) {
    Draws draws(9, Use::noise, 0, trial);
    std::string text = trial % 2 == 0 ? "+1 1:2.5 3:4\n" : "";
    for (std::uint32_t left = draws.below(24); left > 0; --left) {
      const char next = alphabet[draws.below(static_cast<std::uint32_t>(alphabet.size()))];
      text.insert(draws.below(static_cast<std::uint32_t>(text.size() + 1)), 1, next);
    }
    try {
      const LabelledRows data = parse_libsvm(text, "x.txt");
      ++taken;
      ASSERT_NO_FATAL_FAILURE(expect_sound(data)) << trial;
    } catch (const UsageError& error) {
      ASSERT_THAT(error.what(), HasSubstr("x.txt")) << trial;
    }
  }
  EXPECT_GT(taken, 500);
  EXPECT_LT(taken, 19500);
}

}  // namespace
}  // namespace sparsewire::train::libsvm_test
