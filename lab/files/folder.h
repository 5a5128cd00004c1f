// Folders: made, and made durable.
#pragma once

#include <string>

namespace sparsewire::files {

// Makes the folder, and those above it, unless it is there. Throws std::runtime_error, also if it is there and cannot
// be written to: "cannot write 'run1': Permission denied".
void make_folder(const std::string& path);

// Makes what was added to a folder durable, as far as its file system can.
void sync_folder(const std::string& path);

}  // namespace sparsewire::files
