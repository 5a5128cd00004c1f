#include "export.h"

#include <fmt/format.h>

#include <fstream>
#include <span>
#include <stdexcept>
#include <string>

#include "data.h"

namespace sparsewire::bench {
namespace {

constexpr int kGradients = 4;

void write_npy(const std::filesystem::path& path, std::span<const float> numbers) {
  // The magic number, version 1.0, and 118 bytes of header.
  const std::string shape = fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({},), }}", numbers.size());
  std::ofstream file(path, std::ios::binary);
  file << "\x93NUMPY\x01" << '\0' << 'v' << '\0' << fmt::format("{:<117}\n", shape);
  file.write(reinterpret_cast<const char*>(numbers.data()), static_cast<std::streamsize>(numbers.size_bytes()));
  file.close();
  if (!file) throw std::runtime_error(fmt::format("cannot write '{}'", path.string()));
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
