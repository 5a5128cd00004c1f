#include "loop/checkpoint.h"

#include <filesystem>
#include <span>

#include "files/folder.h"
#include "loop/checkpoint_files.h"
#include "loop/run_or_fail.h"
#include "text/json.h"

namespace sparsewire::train {
namespace {

namespace fs = std::filesystem;

// The manifest goes first: without it the folder is no checkpoint, also if we are killed here. Files that are not ours
// stay, and then the folder too. What cannot be removed is no reason to stop a training.
void remove_checkpoint(const std::string& path) {
  std::error_code ignored;
  fs::remove(path + "/" + kManifestName, ignored);
  for (const auto& entry : fs::directory_iterator(path, ignored)) {
    if (is_checkpoint_file(entry.path().filename().string())) fs::remove(entry.path(), ignored);
  }
  fs::remove(path, ignored);
}

}  // namespace

Checkpoints::Checkpoints(const TrainConfig& config, const Problem& problem, Json changes, Transport& transport,
                         std::optional<std::uint64_t> last)
    : config_(config), problem_(problem), changes_(std::move(changes)), transport_(transport), last_(last) {}

std::string Checkpoints::last_path() const { return checkpoint_path(config_.checkpoint_dir, last_.value()); }

void Checkpoints::write(RankState& mine, const Json& missing_metrics) {
  const std::uint64_t step = mine.step;
  const std::string path = checkpoint_path(config_.checkpoint_dir, step);
  const bool is_root = transport_.rank() == 0;
  run_or_fail_on_all(transport_, [&] {
    if (!is_root) return;
    remove_checkpoint(path);
    files::make_folder(path);
    files::sync_folder(config_.checkpoint_dir);
  });

  Json written;
  run_or_fail_on_all(transport_, [&] { written = write_rank(path, transport_.rank(), mine); });
  const std::string bytes = written.dump();
  std::vector<std::vector<std::byte>> all;
  transport_.gather(0, std::as_bytes(std::span(bytes)), all);

  run_or_fail_on_all(transport_, [&] {
    if (!is_root) return;
    Manifest manifest{.path = path,
                      .step = step,
                      .workers = all.size(),
                      .config = config_,
                      .data = std::string(problem_.data_fingerprint()),
                      .test_data = std::string(problem_.test_fingerprint()),
                      .files = Json::object(),
                      .changes = changes_,
                      .missing_metrics = missing_metrics};
    for (const auto& one : all) {
      manifest.files.update(parse_json({reinterpret_cast<const char*>(one.data()), one.size()}));
    }
    check_all_here(manifest);
    write_manifest(manifest);
    remove_others(step);
  });
  last_ = step;
}

// Those of later steps are the ones that a resumed training found damaged.
void Checkpoints::remove_others(std::uint64_t newest) const {
  std::uint64_t kept = 0;
  for (const std::uint64_t step : checkpoint_steps(config_.checkpoint_dir)) {
    const std::string path = checkpoint_path(config_.checkpoint_dir, step);
    if (step <= newest && kept < config_.keep && has_manifest(path)) {
      ++kept;
    } else {
      remove_checkpoint(path);
    }
  }
}

}  // namespace sparsewire::train
