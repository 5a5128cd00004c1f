#include "loop/plugins.h"

#include <dlfcn.h>
#include <fmt/core.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <list>
#include <system_error>
#include <utility>

#include "files/input.h"
#include "sparsewire/errors.h"
#include "sparsewire/plugin.h"
#include "sparsewire/support/crc32c.h"

namespace sparsewire::train {
namespace {

// What was loaded stays: sparsifiers may be in use until the very end.
struct Loaded {
  std::vector<std::string> checksums;
  std::vector<void*> libraries;
  std::list<Registration> registrations;
};
Loaded& loaded() {
  static auto* const all = new Loaded;  // never destroyed, since the libraries are not unloaded either
  return *all;
}

class Program final : public Registrar {
 public:
  void add(SparsifierInfo info, SparsifierFactory factory) override {
    registrations.push_back(register_sparsifier(std::move(info), std::move(factory)));
  }
  std::list<Registration> registrations;
};

// "libmine.so" is meant as a file here, as in every other option; dlopen() would look among the system's libraries.
void* open(const std::string& path) {
  const std::string name = path.find('/') == std::string::npos ? "./" + path : path;
  void* const library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library != nullptr) return library;
  const char* const why = ::dlerror();  // NOLINT(concurrency-mt-unsafe): one caller
  throw UsageError(fmt::format("cannot load '{}': {}", path, why == nullptr ? "unknown error" : why));
}

}  // namespace

void load_plugin(const std::string& path) {
  if (std::error_code error; std::filesystem::exists(path, error) && !std::filesystem::is_regular_file(path, error)) {
    throw UsageError(fmt::format("cannot load '{}': it is not a regular file", path));
  }
  std::string checksum = fmt::format("{:08x}", crc32c(files::read_file(path).span()));  // also says best why not
  void* const library = open(path);
  if (std::ranges::find(loaded().libraries, library) != loaded().libraries.end()) return;
  const auto* const plugin = static_cast<const Plugin*>(::dlsym(library, "sparsewire_plugin"));
  if (plugin == nullptr) throw UsageError(fmt::format("'{}' is no plugin: it has no SPARSEWIRE_PLUGIN", path));
  if (plugin->interface != kPluginInterface || plugin->sizes != kPluginSizes) {
    throw UsageError(
        fmt::format("'{}' was built for another version of sparsewire ({}), or with another compiler: build it with "
                    "the headers of {}",
                    path, plugin->interface, SPARSEWIRE_VERSION));
  }
  Program program;
  try {
    plugin->add_to(program);
  } catch (const std::exception& error) {
    throw UsageError(fmt::format("'{}': {}", path, error.what()));
  }
  loaded().libraries.push_back(library);
  loaded().checksums.push_back(std::move(checksum));
  loaded().registrations.splice(loaded().registrations.end(), program.registrations);
}

const std::vector<std::string>& loaded_plugins() noexcept { return loaded().checksums; }

}  // namespace sparsewire::train
