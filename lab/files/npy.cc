#include "files/npy.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <limits>
#include <optional>
#include <string_view>

#include "sparsewire/errors.h"

namespace sparsewire::files {
namespace {

static_assert(std::endian::native == std::endian::little, ".npy files are little-endian");

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kAlignment = 64;           // of the numbers in the file
constexpr std::uint64_t kLongestHeader = 65536;  // numpy itself refuses more than 10,000 characters
constexpr std::size_t kMostAxes = 64;            // as in numpy 2

struct Header {
  std::string descr;
  bool fortran_order = false;
  Shape shape;
};

// Parses "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }": as much of Python's syntax as numpy writes.
// Each function returns nothing, or false, if the text is something else.
class HeaderText {
 public:
  explicit HeaderText(std::string_view left) : left_(left) {}

  std::optional<Header> parse() {
    Header header;
    bool has_descr = false;
    bool has_order = false;
    bool has_shape = false;
    if (!take("{")) return std::nullopt;
    while (!take("}")) {
      const auto key = quoted();
      if (!key || !take(":")) return std::nullopt;
      bool& seen = *key == "descr" ? has_descr : *key == "shape" ? has_shape : has_order;
      if (seen || !value(*key, header) || (!take(",") && !left_.starts_with('}'))) return std::nullopt;
      seen = true;
    }
    skip_space();
    if (!left_.empty() || !has_descr || !has_order || !has_shape) return std::nullopt;
    return header;
  }

 private:
  bool value(std::string_view key, Header& header) {
    if (key == "descr") return descr(header.descr);
    if (key == "shape") return shape(header.shape);
    if (key != "fortran_order") return false;
    header.fortran_order = take("True");
    return header.fortran_order || take("False");
  }

  // A list describes records, which the caller refuses.
  bool descr(std::string& to) {
    if (!take("[")) {
      auto name = quoted();
      if (name) to = std::move(*name);
      return name.has_value();
    }
    const std::size_t end = left_.find(']');
    if (end == std::string_view::npos) return false;
    to = "records";
    left_.remove_prefix(end + 1);
    return true;
  }

  bool shape(Shape& to) {
    if (!take("(")) return false;
    while (!take(")")) {
      std::uint64_t length = 0;
      const auto [end, error] = std::from_chars(left_.data(), left_.data() + left_.size(), length);
      if (error != std::errc()) return false;
      left_.remove_prefix(static_cast<std::size_t>(end - left_.data()));
      if (left_.starts_with('L')) left_.remove_prefix(1);  // Python 2 wrote (3L,)
      to.push_back(length);
      const bool comma = take(",");
      if (!comma && (to.size() == 1 || !left_.starts_with(')'))) return false;  // (3) is no tuple
    }
    return true;
  }

  std::optional<std::string> quoted() {
    skip_space();
    if (!left_.starts_with('\'') && !left_.starts_with('"')) return std::nullopt;
    const std::size_t end = left_.find(left_[0], 1);
    if (end == std::string_view::npos) return std::nullopt;
    std::string name(left_.substr(1, end - 1));
    left_.remove_prefix(end + 1);
    skip_space();
    return name;
  }

  bool take(std::string_view word) {
    skip_space();
    if (!left_.starts_with(word)) return false;
    left_.remove_prefix(word.size());
    skip_space();
    return true;
  }

  void skip_space() { left_.remove_prefix(std::min(left_.find_first_not_of(" \t\r\n"), left_.size())); }

  std::string_view left_;
};

// Reads one file; every error names it.
class Reader {
 public:
  explicit Reader(const std::string& path) : input_(path) {}

  Array read() {
    const Header header = read_header();
    Array array;
    array.type = type_of(header.descr);
    array.shape = header.shape;
    if (array.shape.size() > kMostAxes)
      fail(fmt::format("has {} axes; numpy allows {}", array.shape.size(), kMostAxes));
    check_order(header);
    const std::uint64_t item = array.type == NumberType::f32 ? 4 : 2;
    const std::uint64_t size = size_of(header.shape, std::numeric_limits<std::ptrdiff_t>::max() / item);
    array.bytes = input_.read(size * item);
    if (array.bytes.size != size * item) {
      fail(fmt::format("is cut short: it has {} of the {} bytes that its header promises", array.bytes.size,
                       size * item));
    }
    if (input_.read(1).size != 0) fail(fmt::format("has more than the {} numbers that its header promises", size));
    array.size = size;
    return array;
  }

 private:
  Header read_header() {
    const Bytes start = input_.read(kMagic.size() + 2);
    const std::string_view magic = start.text().substr(0, kMagic.size());
    if (magic.empty() || magic != kMagic.substr(0, magic.size())) fail("is not a .npy file");
    if (start.size < kMagic.size() + 2) fail("is cut short: its header is incomplete");
    const int major = std::to_integer<int>(start.span()[kMagic.size()]);
    const int minor = std::to_integer<int>(start.span()[kMagic.size() + 1]);
    if (major < 1 || major > 3 || minor != 0)
      fail(fmt::format("is of .npy version {}.{}, not 1.0 to 3.0", major, minor));

    const std::size_t digits = major == 1 ? 2 : 4;
    const Bytes length_bytes = input_.read(digits);
    std::uint64_t length = 0;
    for (std::size_t i = 0; i < length_bytes.size; ++i) {
      length |= std::to_integer<std::uint64_t>(length_bytes.span()[i]) << (8 * i);
    }
    if (length > kLongestHeader)
      fail(fmt::format("has a header of {} bytes; at most {} are allowed", length, kLongestHeader));
    const Bytes letters = input_.read(length);
    if (length_bytes.size < digits || letters.size < length) fail("is cut short: its header is incomplete");
    auto header = HeaderText(letters.text()).parse();
    if (!header) fail("has a header that numpy would not write");
    return std::move(*header);
  }

  NumberType type_of(const std::string& descr) const {
    for (const std::string_view order : {"<", "=", ""}) {
      if (descr == fmt::format("{}f4", order)) return NumberType::f32;
      if (descr == fmt::format("{}f2", order)) return NumberType::f16;
    }
    fail(fmt::format("has {}, not float32 ('<f4') or float16 ('<f2')", printable(descr)));
  }

  // A damaged header may hold any bytes; an error is one line.
  static std::string printable(const std::string& descr) {
    const bool is_plain = std::all_of(descr.begin(), descr.end(), [](char c) { return c > ' ' && c < '\x7f'; });
    if (descr == "records") return descr;
    return is_plain && descr.size() <= 32 ? "'" + descr + "'" : "numbers of another type";
  }

  // Fortran order differs from C order only if at least two axes are longer than 1.
  void check_order(const Header& header) const {
    if (!header.fortran_order || std::count(header.shape.begin(), header.shape.end(), 0U) > 0) return;
    if (std::count_if(header.shape.begin(), header.shape.end(), [](auto length) { return length > 1; }) <= 1) return;
    fail("is in Fortran order: convert it with numpy.ascontiguousarray first");
  }

  std::uint64_t size_of(const Shape& shape, std::uint64_t most) const {
    if (std::count(shape.begin(), shape.end(), 0U) > 0) return 0;
    std::uint64_t size = 1;
    for (const std::uint64_t length : shape) {
      if (length > most / size) fail("promises more numbers than any file can hold");
      size *= length;
    }
    return size;
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw UsageError(fmt::format("'{}' {}", input_.path(), what));
  }

  Input input_;
};

template <class Number>
void write(Replacement& file, const char* descr, std::span<const Number> numbers,
           std::span<const std::uint64_t> shape) {
  write_npy_header(file, descr, shape);
  file.write(std::as_bytes(numbers));
}

}  // namespace

Array read_npy(const std::string& path) { return Reader(path).read(); }

void write_npy_header(Replacement& file, const std::string& descr, std::span<const std::uint64_t> shape) {
  std::string lengths;
  for (const std::uint64_t length : shape) lengths += fmt::format("{}{}", lengths.empty() ? "" : ", ", length);
  if (shape.size() == 1) lengths += ',';
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", descr, lengths);
  constexpr std::size_t kPrefix = kMagic.size() + 4;
  header.append(kAlignment - 1 - (kPrefix + header.size()) % kAlignment, ' ');
  header += '\n';

  std::string start(kMagic);
  start += '\x01';
  start += '\x00';
  start += static_cast<char>(header.size() & 0xffU);
  start += static_cast<char>(header.size() >> 8);
  file.write(std::as_bytes(std::span(start)));
  file.write(std::as_bytes(std::span(header)));
}

void write_npy(Replacement& file, std::span<const float> numbers, std::span<const std::uint64_t> shape) {
  write(file, "<f4", numbers, shape);
}

void write_npy(Replacement& file, std::span<const std::uint32_t> numbers, std::span<const std::uint64_t> shape) {
  write(file, "<u4", numbers, shape);
}

}  // namespace sparsewire::files
