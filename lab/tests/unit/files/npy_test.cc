// .npy files are read and written as numpy does; everything else is refused with one sentence.
#include "files/npy.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "sparsewire/errors.h"
#include "unit/folder.h"

namespace sparsewire::files::npy_test {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kPlain = "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }";

std::string numbers(std::size_t bytes) {
  std::string all(bytes, '\0');
  for (std::size_t i = 0; i < bytes; ++i) all[i] = static_cast<char>(i % 61);
  return all;
}

std::string npy(const std::string& header, const std::string& data, char major = 1) {
  std::string file = std::string("\x93NUMPY") + major + '\0';
  const auto length = static_cast<std::uint32_t>(header.size());
  for (int i = 0; i < (major == 1 ? 2 : 4); ++i) file += static_cast<char>(length >> (8 * i) & 0xffU);
  return file + header + data;
}

std::string with_shape(const std::string& shape, const char* order = "False", const char* descr = "'<f4'") {
  return std::string("{'descr': ") + descr + ", 'fortran_order': " + order + ", 'shape': " + shape + ", }\n";
}

class Npy : public ::testing::Test {
 protected:
  Array read(const std::string& content) {
    folder_.write("a.npy", content);
    return read_npy(folder_ / "a.npy");
  }

  // The message with which the file is refused, or nothing.
  std::string complaint(const std::string& content) {
    try {
      read(content);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  }

  void expect_refused(const std::string& content, const std::string& why) {
    EXPECT_THAT(complaint(content),
                AllOf(HasSubstr("'" + folder_ / "a.npy" + "'"), HasSubstr(why), Not(HasSubstr("\n"))));
  }

  Folder folder_;
};

TEST_F(Npy, ReadsWhatNumpyWrites) {
  for (const char version : {'\1', '\2', '\3'}) {
    const Array array = read(npy(kPlain, numbers(12), version));
    EXPECT_EQ(array.type, NumberType::f32);
    EXPECT_EQ(array.shape, Shape{3});
    EXPECT_EQ(array.size, 3U);
    EXPECT_EQ(std::memcmp(array.bytes.data(), numbers(12).data(), 12), 0);
  }
}

TEST_F(Npy, ReadsEveryShape) {
  const std::vector<std::pair<std::string, Shape>> shapes = {
      {"()", {}},        {"(0,)", {0}},       {"(1,)", {1}},  {"(17,)", {17}},          {"(2, 3)", {2, 3}},
      {"(2,3)", {2, 3}}, {"(2, 3,)", {2, 3}}, {"(3L,)", {3}}, {"(4, 0, 2)", {4, 0, 2}}, {"(1, 2, 3, 4)", {1, 2, 3, 4}}};
  for (const auto& [text, shape] : shapes) {
    SCOPED_TRACE(text);
    std::size_t size = 1;
    for (const std::uint64_t length : shape) size *= length;
    const Array array = read(npy(with_shape(text), numbers(4 * size)));
    EXPECT_EQ(array.shape, shape);
    EXPECT_EQ(array.size, size);
    EXPECT_EQ(array.bytes.size, 4 * size);
  }
}

TEST_F(Npy, ReadsHalves) {
  for (const char* descr : {"'<f2'", "'=f2'", "'f2'", "\"<f2\""}) {
    const Array array = read(npy(with_shape("(5,)", "False", descr), numbers(10)));
    EXPECT_EQ(array.type, NumberType::f16);
    EXPECT_EQ(array.size, 5U);
  }
}

TEST_F(Npy, ReadsKeysInAnyOrder) {
  EXPECT_EQ(read(npy("{'shape':(3,),'descr':'<f4','fortran_order':False}", numbers(12))).size, 3U);
  EXPECT_EQ(read(npy("  { \"shape\" : ( 3 , ) ,\n 'fortran_order' :False, 'descr':'<f4' } \n", numbers(12))).size, 3U);
}

TEST_F(Npy, ReadsFortranOrderWhereItIsNone) {
  for (const char* shape : {"()", "(6,)", "(6, 1)", "(1, 6)", "(1, 6, 1)", "(0, 6, 2)"}) {
    SCOPED_TRACE(shape);
    const std::string data = numbers(std::string(shape) == "()" ? 4 : shape[1] == '0' ? 0 : 24);
    EXPECT_EQ(complaint(npy(with_shape(shape, "True"), data)), "");
  }
  expect_refused(npy(with_shape("(2, 3)", "True"), numbers(24)), "Fortran");
}

TEST_F(Npy, ReadsAPipe) {
  for (const std::size_t size : {0U, 1U, 100000U}) {
    const std::string content = npy(with_shape("(" + std::to_string(size) + ",)"), numbers(4 * size));
    const std::string pipe = folder_ / ("pipe" + std::to_string(size));
    ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
    std::thread writer([&] { std::ofstream(pipe, std::ios::binary) << content; });
    const Array array = read_npy(pipe);
    writer.join();
    ASSERT_EQ(array.size, size);
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(array.bytes.data()), 4 * size), numbers(4 * size));
  }
}

TEST_F(Npy, RefusesEveryTruncation) {
  for (const char version : {'\1', '\2', '\3'}) {
    const std::string whole = npy(kPlain, numbers(12), version);
    expect_refused("", "not a .npy file");
    for (std::size_t size = 1; size < whole.size(); ++size) {
      SCOPED_TRACE(size);
      expect_refused(whole.substr(0, size), "is cut short");
    }
    expect_refused(whole + '\0', "more than the 3 numbers");
  }
}

TEST_F(Npy, RefusesForeignFiles) {
  expect_refused("PK\x03\x04 and so on", "is not a .npy file");
  expect_refused("hello\nworld", "is not a .npy file");
  expect_refused(std::string(1000, '\0'), "is not a .npy file");
  expect_refused(npy(kPlain, numbers(12), '\4'), "version 4.0");
  expect_refused(npy(kPlain, numbers(12), '\0'), "version 0.0");
}

TEST_F(Npy, RefusesOtherNumbers) {
  for (const char* descr : {"<f8", ">f4", "<i4", "|O", "<c8", "|b1", ">f2", "|f4", "<f44", ""}) {
    SCOPED_TRACE(descr);
    expect_refused(npy(with_shape("(3,)", "False", ("'" + std::string(descr) + "'").c_str()), numbers(12)),
                   "has '" + std::string(descr) + "', not float32");
  }
  expect_refused(npy(with_shape("(3,)", "False", "[('x', '<f4'), ('y', '<f4')]"), numbers(24)), "has records");
  expect_refused(npy(with_shape("(3,)", "False", "'a\nb'"), numbers(24)), "another type");
}

TEST_F(Npy, RefusesHeadersThatNumpyDoesNotWrite) {
  for (const char* header : {"",
                             "{",
                             "{}",
                             "}",
                             "{'descr': '<f4'}",
                             "{'descr': '<f4', 'shape': (3,)}",
                             "{'descr': '<f4', 'fortran_order': False, 'shape': (3,)} x",
                             "{'descr': '<f4', 'fortran_order': False, 'shape': (3,)}}",
                             "{'descr': '<f4', 'fortran_order': False, 'shape': (3)}",
                             "{'descr': '<f4', 'fortran_order': False, 'shape': 3}",
                             "{'descr': '<f4', 'fortran_order': False, 'shape': (-3,)}",
                             "{'descr': '<f4', 'fortran_order': False, 'shape': (3.0,)}",
                             "{'descr': '<f4', 'fortran_order': False, 'shape': (,)}",
                             "{'descr': '<f4', 'fortran_order': False, 'shape': (3,,)}",
                             "{'descr': '<f4', 'fortran_order': False, 'shape': (3 3)}",
                             "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999999,)}",
                             "{'descr': '<f4', 'fortran_order': 0, 'shape': (3,)}",
                             "{'descr': <f4, 'fortran_order': False, 'shape': (3,)}",
                             "{'descr': '<f4, 'fortran_order': False, 'shape': (3,)}",
                             "{'descr': ['<f4', 'fortran_order': False, 'shape': (3,)}",
                             "{'descr': '<f4' 'fortran_order': False 'shape': (3,)}",
                             "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (3,)}",
                             "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), 'more': 1}",
                             "{'descr': '<f4', 'fortran_orders': False, 'shape': (3,)}"}) {
    SCOPED_TRACE(header);
    expect_refused(npy(header, numbers(12)), "a header that numpy would not write");
  }
}

// No memory may be taken for numbers that the header only promises; the address sanitizer would refuse so much.
TEST_F(Npy, RefusesMoreNumbersThanTheFileHas) {
  expect_refused(npy(with_shape("(1099511627776,)"), numbers(12)), "has 12 of the 4398046511104 bytes");
  expect_refused(npy(with_shape("(4294967296, 4294967296)"), numbers(12)), "more numbers than any file");
  expect_refused(npy(with_shape("(18446744073709551615,)"), numbers(12)), "more numbers than any file");
  expect_refused(npy(with_shape("(4611686018427387904,)"), numbers(0)), "more numbers than any file");
  expect_refused(npy(with_shape("(9223372036854775807, 2, 0, 9223372036854775807)"), numbers(4)), "more than the 0");
  std::string long_header = npy(kPlain, numbers(12), '\2');
  long_header[8] = long_header[9] = long_header[10] = long_header[11] = '\xff';
  expect_refused(long_header, "header of 4294967295 bytes");
  std::string axes;
  for (int i = 0; i < 65; ++i) axes += "1, ";
  expect_refused(npy(with_shape("(" + axes + ")"), numbers(4)), "65 axes");
}

TEST_F(Npy, NamesTheFileThatCannotBeRead) {
  const auto complaint_about = [](const std::string& path) -> std::string {
    try {
      read_npy(path);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(complaint_about(folder_ / "no"), "cannot read '" + folder_ / "no" + "': No such file or directory");
  EXPECT_EQ(complaint_about(folder_ / "."), "cannot read '" + folder_ / "." + "': Is a directory");
}

TEST_F(Npy, WritesAsNumpyDoes) {
  const std::array<float, 3> floats{1, 2, 3};
  Replacement file(folder_ / "b.npy");
  write_npy(file, floats, std::array{std::uint64_t{3}});
  file.commit();
  std::string header = kPlain;
  header += std::string(118 - header.size() - 1, ' ') + '\n';
  EXPECT_EQ(folder_.read("b.npy"),
            npy(header, std::string(reinterpret_cast<const char*>(floats.data()), sizeof floats)));
}

TEST_F(Npy, ReadsBackWhatItWrote) {
  std::vector<Shape> shapes = {{}, {0}, {1}, {17}, {3, 5}, {2, 0}, Shape(64, 1)};
  for (std::uint64_t length = 1; length < 1000000; length *= 10) shapes.push_back({1, length});
  for (const Shape& shape : shapes) {
    std::size_t size = 1;
    for (const std::uint64_t length : shape) size *= length;
    std::vector<float> floats(size);
    for (std::size_t i = 0; i < size; ++i) floats[i] = static_cast<float>(i) + 0.5F;
    Replacement file(folder_ / "b.npy");
    write_npy(file, floats, shape);
    file.commit();
    EXPECT_EQ((folder_.read("b.npy").size() - 4 * size) % 64, 0U);
    const Array array = read_npy(folder_ / "b.npy");
    EXPECT_EQ(array.shape, shape);
    EXPECT_EQ(array.type, NumberType::f32);
    EXPECT_EQ(std::vector<float>(array.floats().begin(), array.floats().end()), floats);
  }
}

TEST_F(Npy, WritesIndicesWithTheirType) {
  Replacement file(folder_ / "b.npy");
  write_npy(file, std::array{1U, 2U}, std::array{std::uint64_t{2}});
  file.commit();
  EXPECT_THAT(folder_.read("b.npy"), HasSubstr("'descr': '<u4'"));
}

}  // namespace
}  // namespace sparsewire::files::npy_test
