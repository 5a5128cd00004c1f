#include "export.h"

#include <fmt/format.h>

#include <bit>
#include <fstream>
#include <stdexcept>

#include "data.h"

namespace sparsewire::bench {
namespace {

constexpr int kGradients = 4;

// The .npy format, version 1.0: a header padded to 64 bytes, then the numbers.
void write_npy(const std::filesystem::path& file, std::span<const float> numbers) {
  static_assert(std::endian::native == std::endian::little);
  constexpr std::size_t kPrefix = 10;
  std::string header = fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({},), }}", numbers.size());
  header.append(63 - (kPrefix + header.size()) % 64, ' ');
  header += '\n';

  std::ofstream out(file, std::ios::binary);
  out.write("\x93NUMPY\x01\x00", 8);
  out.put(static_cast<char>(header.size() & 0xffU)).put(static_cast<char>(header.size() >> 8));
  out << header;
  out.write(reinterpret_cast<const char*>(numbers.data()), static_cast<std::streamsize>(numbers.size_bytes()));
  out.close();
  if (!out) throw std::runtime_error(fmt::format("cannot write {}", file.string()));
}

}  // namespace

void export_data(Bench& bench, const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  for (const double ratio : kRatios) write_npy(folder / fmt::format("memory-{}.npy", ratio), bench.warm(ratio).memory);
  for (int i = 0; i < kGradients; ++i) {
    fill_gradient(bench.warm(kRatios[0]).step + static_cast<std::uint64_t>(i), bench.gradient());
    write_npy(folder / fmt::format("gradient-{}.npy", i), bench.gradient());
  }
}

}  // namespace sparsewire::bench
