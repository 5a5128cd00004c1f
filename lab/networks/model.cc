#include "networks/model.h"

#include <dlfcn.h>
#include <fmt/core.h>

#include <filesystem>
#include <stdexcept>
#include <vector>

#include "sparsewire/errors.h"
#include "sparsewire/support/float_mode.h"
#include "text/environment.h"

namespace sparsewire::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kModuleFile = "libsparsewire_torch.so";

// The module that SPARSEWIRE_TORCH names; else the one beside the program, else the installed one.
std::string find_module() {
  const std::string named = environment::torch_module();
  if (!named.empty()) {
    if (fs::is_regular_file(named)) return named;
    throw UsageError(fmt::format("SPARSEWIRE_TORCH names '{}', which is not a file", named));
  }
  std::error_code error;
  const fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const char* place : {".", "../lib/sparsewire"}) {
    const fs::path file = folder / place / kModuleFile;
    if (fs::is_regular_file(file, error)) return file.string();
  }
  throw UsageError(
      fmt::format("a deep network needs libtorch, and there is no {} beside this program: build again, with "
                  "'cmake --preset release -DSPARSEWIRE_TORCH=ON "
                  "-DTorch_DIR=$(python -c \"import torch; print(torch.utils.cmake_prefix_path)\")/Torch && "
                  "cmake --build --preset release' (docs/guides/problems.md), or name that file in SPARSEWIRE_TORCH",
                  kModuleFile));
}

// Never unloaded: libtorch does not survive that.
const ModelModule& load_module() {
  const std::string path = find_module();
  // Initialisers of a library may change how the thread rounds.
  const StandardFloatMode mode;
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw UsageError(fmt::format("'{}' cannot be loaded: {}", path, dlerror()));  // NOLINT(concurrency-mt-unsafe)
  }
  const auto* const module = static_cast<const ModelModule*>(dlsym(library, kModelModuleSymbol));
  if (module == nullptr || module->version != kModelModuleVersion) {
    throw UsageError(fmt::format("'{}' is of another version of sparsewire: build both together", path));
  }
  return *module;
}

const ModelModule& the_module() {
  static const ModelModule& module = load_module();
  return module;
}

}  // namespace

std::span<const NetworkInfo> networks() noexcept {
  static constexpr NetworkInfo kAll[] = {
#define NETWORK(name, summary, example, data_set, batch, width, layers, heads) \
  {#name, data_set, batch, {0, 0, width, layers, heads}},
#include "networks/networks.def"
#undef NETWORK
  };
  return kAll;
}

void check_model_module(const std::string& device) {
  if (const char* const missing = the_module().missing(device.c_str())) {
    throw UsageError(fmt::format("--device {} cannot be used: {}", device, missing));
  }
}

std::unique_ptr<Model> make_model(const std::string& name, const ModelSizes& sizes, const std::string& device,
                                  bool has_tf32) {
  check_model_module(device);
  const ModelPlace place{.device = device.c_str(), .has_tf32 = has_tf32, .uses_graphs = environment::uses_graphs()};
  std::unique_ptr<Model> model(the_module().make(name.c_str(), sizes, place));
  if (!model) throw std::logic_error(fmt::format("the module has no model '{}'", name));
  return model;
}

}  // namespace sparsewire::train
