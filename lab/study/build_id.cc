#include "study/build_id.h"

#include <elf.h>
#include <fmt/format.h>
#include <link.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "loop/plugins.h"

namespace sparsewire::study {
namespace {

constexpr std::size_t kShownBytes = 8;  // of 20; enough to tell two builds apart

std::size_t padded(std::size_t size) { return (size + 3) / 4 * 4; }

// The identifier among the notes of a segment, in hexadecimal; empty if there is none.
std::string find_id(std::span<const std::byte> notes) {
  while (notes.size() >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) header;
    std::memcpy(&header, notes.data(), sizeof(header));
    const std::size_t name = padded(header.n_namesz);
    const std::size_t size = sizeof(header) + name + padded(header.n_descsz);
    if (size > notes.size()) return {};
    const auto* const name_text = reinterpret_cast<const char*>(notes.data() + sizeof(header));
    if (header.n_type == NT_GNU_BUILD_ID &&
        std::string_view(name_text, header.n_namesz) == std::string_view("GNU", 4)) {
      std::string id;
      for (const std::byte byte :
           notes.subspan(sizeof(header) + name, std::min<std::size_t>(header.n_descsz, kShownBytes))) {
        id += fmt::format("{:02x}", std::to_integer<unsigned>(byte));
      }
      return id;
    }
    notes = notes.subspan(size);
  }
  return {};
}

int add_id(dl_phdr_info* object, std::size_t /*size*/, void* all) {
  const std::string_view name = object->dlpi_name;  // empty for the program
  if (!name.empty() && name.substr(name.rfind('/') + 1).find("sparsewire") == std::string_view::npos) return 0;
  for (const ElfW(Phdr) & segment : std::span(object->dlpi_phdr, object->dlpi_phnum)) {
    if (segment.p_type != PT_NOTE) continue;
    const auto* const notes = reinterpret_cast<const std::byte*>(object->dlpi_addr + segment.p_vaddr);
    const std::string id = find_id({notes, segment.p_filesz});
    if (!id.empty()) static_cast<std::vector<std::string>*>(all)->push_back(id);
  }
  return 0;
}

}  // namespace

std::string build_id() {
  std::vector<std::string> ids;
  dl_iterate_phdr(add_id, &ids);
  if (!ids.empty()) std::sort(ids.begin() + 1, ids.end());  // libraries may be loaded in another order
  std::vector<std::string> plugins = train::loaded_plugins();
  std::sort(plugins.begin(), plugins.end());
  ids.insert(ids.end(), plugins.begin(), plugins.end());
  return fmt::format("{}", fmt::join(ids, "-"));
}

}  // namespace sparsewire::study
