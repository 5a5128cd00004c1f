#include "data/gzip.h"

#include <fmt/core.h>
#include <zlib.h>

#include <algorithm>
#include <limits>
#include <new>
#include <span>
#include <stdexcept>
#include <vector>

#include "sparsewire/errors.h"

namespace sparsewire::train {
namespace {

constexpr std::size_t kPiece = 1 << 20;  // unpacked at a time

// One stream of zlib, in the format of gzip.
class Inflater {
 public:
  Inflater() {
    constexpr int kGzip = 16 + MAX_WBITS;
    if (inflateInit2(&stream_, kGzip) != Z_OK) throw std::bad_alloc();
  }
  ~Inflater() { inflateEnd(&stream_); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  // Appends the content of the part that `bytes` begin with, and removes it from `bytes`; stops when `out` has `most`
  // bytes. `piece` is room for what is unpacked at a time. Throws UsageError.
  void unpack(std::string_view& bytes, std::string& out, std::string_view name, std::uint64_t most,
              std::span<char> piece) {
    int status = Z_OK;
    while (status != Z_STREAM_END && out.size() < most) {
      const auto given = static_cast<uInt>(std::min<std::size_t>(bytes.size(), std::numeric_limits<uInt>::max()));
      const auto room = static_cast<uInt>(std::min<std::uint64_t>(piece.size(), most - out.size()));
      stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));  // zlib does not write to it
      stream_.avail_in = given;
      stream_.next_out = reinterpret_cast<Bytef*>(piece.data());
      stream_.avail_out = room;
      status = inflate(&stream_, Z_NO_FLUSH);
      out.append(piece.data(), room - stream_.avail_out);
      bytes.remove_prefix(given - stream_.avail_in);
      if (status == Z_MEM_ERROR) throw std::bad_alloc();
      if (status == Z_BUF_ERROR)
        throw UsageError(fmt::format("'{}' is cut short: its compressed data do not end", name));
      if (status != Z_OK && status != Z_STREAM_END) {
        throw UsageError(fmt::format("'{}' is damaged: {}", name, stream_.msg == nullptr ? "not gzip" : stream_.msg));
      }
    }
  }

 private:
  z_stream stream_{};
};

}  // namespace

bool is_gzip(std::string_view bytes) noexcept { return bytes.starts_with("\x1F\x8B"); }

std::string gunzip(std::string_view bytes, std::string_view name, std::uint64_t most) {
  std::string out;
  std::vector<char> piece(kPiece);
  while (!bytes.empty() && out.size() < most) {
    if (!is_gzip(bytes)) throw UsageError(fmt::format("'{}' has other bytes after its compressed data", name));
    Inflater().unpack(bytes, out, name, most, piece);
  }
  return out;
}

}  // namespace sparsewire::train
