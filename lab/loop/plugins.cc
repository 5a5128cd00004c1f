#include "loop/plugins.h"

#include <dlfcn.h>
#include <elf.h>
#include <fmt/core.h>
#include <link.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <filesystem>
#include <list>
#include <new>
#include <span>
#include <stdexcept>
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

// dlopen() maps what the headers announce, and a shorter file would end the program by a signal.
bool is_cut_short(std::span<const std::byte> file) {
  ElfW(Ehdr) header;
  if (file.size() < sizeof(header)) return false;  // dlopen() says what it is
  std::memcpy(&header, file.data(), sizeof(header));
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_phentsize != sizeof(ElfW(Phdr))) return false;
  for (std::size_t i = 0; i < header.e_phnum; ++i) {
    ElfW(Phdr) segment;
    const std::size_t at = header.e_phoff + i * sizeof(segment);
    if (at > file.size() || file.size() - at < sizeof(segment)) return true;
    std::memcpy(&segment, file.data() + at, sizeof(segment));
    if (segment.p_offset > file.size() || file.size() - segment.p_offset < segment.p_filesz) return true;
  }
  return false;
}

// Calls the library's code. What it throws keeps its kind, and gets the name of the file.
template <class Work>
auto in_plugin(const std::string& path, Work work) {
  try {
    return work();
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("'{}': {}", path, error.what()));
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    throw std::runtime_error(fmt::format("'{}': {}", path, error.what()));
  } catch (...) {
    throw std::runtime_error(fmt::format("'{}' threw something that is no std::exception", path));
  }
}

}  // namespace

void load_plugin(const std::string& path) {
  if (std::error_code error; std::filesystem::exists(path, error) && !std::filesystem::is_regular_file(path, error)) {
    throw UsageError(fmt::format("cannot load '{}': it is not a regular file", path));
  }
  const files::Bytes content = files::read_file(path);  // also says best why not
  if (is_cut_short(content.span())) throw UsageError(fmt::format("cannot load '{}': it is cut short", path));
  std::string checksum = fmt::format("{:08x}", crc32c(content.span()));
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
  in_plugin(path, [&] { plugin->add_to(program); });
  loaded().libraries.push_back(library);
  loaded().checksums.push_back(std::move(checksum));
  loaded().registrations.splice(loaded().registrations.end(), program.registrations);
}

const std::vector<std::string>& loaded_plugins() noexcept { return loaded().checksums; }

}  // namespace sparsewire::train
