#include "export.h"

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <span>

#include "data.h"
#include "files/npy.h"
#include "files/replace.h"

namespace sparsewire::bench {
namespace {

constexpr int kGradients = 4;

void write_npy(const std::filesystem::path& path, std::span<const float> numbers) {
  files::Replacement file(path.string());
  files::write_npy(file, numbers, std::array{std::uint64_t{numbers.size()}});
  file.commit();
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
