// The files of a checkpoint: their names, their contents, and whether they are undamaged.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "loop/checkpoint.h"

namespace sparsewire::train {

inline constexpr const char* kManifestName = "manifest.json";

std::string checkpoint_path(const std::string& folder, std::uint64_t step);
bool has_manifest(const std::string& path);

// Whether a file of that name belongs to a checkpoint, or is a temporary file that a kill left behind.
bool is_checkpoint_file(std::string_view name);

// The steps of all entries of the folder that are named like a checkpoint, the newest first.
std::vector<std::uint64_t> checkpoint_steps(const std::string& folder);

// Writes the files of this rank; returns its part of Manifest::files.
Json write_rank(const std::string& path, int rank, RankState& mine);
// Throws std::runtime_error if a file is not in the folder. That happens if ranks on other machines have a folder of
// the same name, but of their own.
void check_all_here(const Manifest& manifest);
void write_manifest(const Manifest& manifest);
// The manifest in that folder; the other files are not checked. Throws UsageError.
Manifest read_manifest(const std::string& path);

}  // namespace sparsewire::train
