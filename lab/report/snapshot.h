// What a follower looks at to see whether its inputs have changed, without reading them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sparsewire::report {

// A number that changes when a file of the inputs gets another size, time or inode, appears or disappears. Folders are
// looked into as deep as studies are; `without` and names that begin with a dot do not count, except for runs of a
// study that are under way.
std::uint64_t snapshot(const std::vector<std::string>& inputs, const std::string& without);

}  // namespace sparsewire::report
