// The files of a checkpoint: their names, their contents, and whether they are as they were written.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "train/checkpoint.h"

namespace sparsewire::train {

inline constexpr const char* kManifestName = "manifest.json";

std::string checkpoint_path(const std::string& folder, std::uint64_t step);
bool has_manifest(const std::string& path);

// Whether a file of that name is part of a checkpoint, or what a kill left of one.
bool is_checkpoint_file(std::string_view name);

// The steps of everything in the folder that has the name of a checkpoint, the newest first.
std::vector<std::uint64_t> checkpoint_steps(const std::string& folder);

// Writes what this rank has; returns its part of Manifest::files.
Json write_rank(const std::string& path, int rank, RankState& mine);
// Throws std::runtime_error if a file is not in the folder, as where ranks on other machines have a folder of their
// own.
void check_all_here(const Manifest& manifest);
void write_manifest(const Manifest& manifest);
// Of the checkpoint in that folder, without a look at its other files. Throws UsageError.
Manifest read_manifest(const std::string& path);

}  // namespace sparsewire::train
