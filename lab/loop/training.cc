// How a training starts and ends, and what it puts into a checkpoint.
#include "loop/training.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <stdexcept>

#include "files/folder.h"
#include "loop/agree.h"
#include "loop/checkpoint_files.h"
#include "loop/plugins.h"
#include "loop/run_or_fail.h"
#include "loop/weights_file.h"
#include "loop/worker_weights.h"
#include "sparsewire/errors.h"
#include "sparsewire/sifter.h"
#include "sparsewire/state.h"
#include "sparsewire/support/crc32c.h"

namespace sparsewire::train {
namespace {

// The mean of states, summed in rank order.
void write_mean(const std::vector<std::span<const float>>& states, std::span<float> mean) {
  for (std::size_t i = 0; i < mean.size(); ++i) {
    double sum = 0;
    for (const std::span<const float> state : states) sum += static_cast<double>(state[i]);
    mean[i] = static_cast<float>(sum / static_cast<double>(states.size()));
  }
}

std::unique_ptr<Replica> make_replica(const Run& run) {
  const ReplicaPlan plan{.problem = run.problem,
                         .worker = run.transport.rank(),
                         .optimiser = run.config.optimiser,
                         .outer_optimiser = outer_optimiser(run.config),
                         .clip = run.config.clip};
  auto on_device = make_device_replica(plan);
  return on_device ? std::move(on_device) : make_host_replica(plan);
}

// "rank 1", "ranks 1 and 2", "ranks 1, 2, 3 and 5 more"
std::string list_of(const std::vector<std::size_t>& ranks) {
  constexpr std::size_t kMost = 8;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  const std::size_t named = ranks.size() <= kMost ? ranks.size() : kMost - 1;
  for (std::size_t i = 0; i < named; ++i) {
    const bool is_last = i + 1 == ranks.size();
    text += fmt::format("{}{}", i == 0 ? "" : is_last ? " and " : ", ", ranks[i]);
  }
  return named == ranks.size() ? text : text + fmt::format(" and {} more", ranks.size() - named);
}

}  // namespace

// Other code on one rank would choose other entries without a word, and where a library is missing, its sparsifier is
// too.
void compare_plugins(Transport& transport) {
  const std::string mine = fmt::format("{}", fmt::join(loaded_plugins(), ","));
  const auto all = tell_all(transport, std::as_bytes(std::span(mine)));
  const auto other = std::find_if(all.begin(), all.end(), [&](const auto& one) { return one != all[0]; });
  if (other == all.end()) return;
  throw SharedError(
      fmt::format("rank {} has other libraries of --load than rank 0: give every rank the same", other - all.begin()),
      /*is_usage=*/true);
}

// Before anything depends on the data: other data may have another number of weights, and the worker would complain
// about that instead.
void compare_data(const Problem& problem, Transport& transport) {
  std::string mine(problem.data_fingerprint());
  if (!problem.test_fingerprint().empty()) mine += fmt::format("; test data: {}", problem.test_fingerprint());
  const auto all = tell_all(transport, std::as_bytes(std::span(mine)));
  std::vector<std::size_t> others;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] != all[0]) others.push_back(rank);
  }
  if (others.empty()) return;
  const auto shown_of = [&](std::size_t rank) {
    const std::string text(reinterpret_cast<const char*>(all[rank].data()), all[rank].size());
    return text.empty() ? std::string("no file") : text;
  };
  throw SharedError(
      fmt::format("the data of {} differ from those of rank 0 ({} on rank {}, {} on rank 0): give every rank the same "
                  "--data and --test-data, or --data-dir, and on other machines copies of the same files",
                  list_of(others), shown_of(others[0]), others[0], shown_of(0)),
      /*is_usage=*/true);
}

Training::Training(const Run& run)
    : run_(run),
      config_(run.config),
      problem_(run.problem),
      transport_(run.transport),
      replica_(make_replica(run)),
      schedule_(make_schedule(config_.schedule, config_.lr, config_.steps)),
      weight_(worker_weights(config_.worker_weights, problem_,
                             transport_.size())[static_cast<std::size_t>(transport_.rank())]),
      worker_(worker_config(config_, weight_), problem_.layout(), transport_),
      holds_lr_(parse_feedback(config_.feedback).scale_by_lr) {}

void Training::begin() {
  compare_configs();
  std::string chosen;
  run_or_fail_on_all(transport_, [&] {
    if (is_root() && !config_.checkpoint_dir.empty()) chosen = choose_checkpoint();
  });
  std::vector<std::byte> bytes(chosen.size());
  std::transform(chosen.begin(), chosen.end(), bytes.begin(), [](char letter) { return std::byte(letter); });
  transport_.broadcast(0, bytes);
  const std::string path(reinterpret_cast<const char*>(bytes.data()), bytes.size());

  Manifest manifest;
  if (path.empty()) {
    run_or_fail_on_all(transport_, [&] {
      std::vector<float> weights(problem_.layout().dim());
      problem_.initial_weights(weights);
      replica_->set_weights(weights);
      problem_.initial_state(problem_.state(transport_.rank()));
    });
    take_initial_weights();
  } else {
    run_or_fail_on_all(transport_, [&] { manifest = read_manifest(path); });
    resume_from(manifest);
  }
  run_or_fail_on_all(transport_, [&] {
    if (!is_root() || config_.metrics.empty()) return;
    metrics_.emplace(config_.metrics, step_);
    metrics_->write_missing(manifest.missing_metrics);
    seconds_before_ = metrics_->seconds();
    if (!changes_.empty() && changes_.back().at("step") == step_) metrics_->write(changes_.back());
  });
  began_ = std::chrono::steady_clock::now();
  if (config_.checkpoint_dir.empty()) return;
  checkpoints_.emplace(config_, problem_, changes_, transport_, path.empty() ? std::nullopt : std::optional(step_));
}

// Rank 0 has them, or reads the file that it was given, so the others need no copy of it and no such option.
void Training::take_initial_weights() {
  std::vector<std::byte> bytes;
  run_or_fail_on_all(transport_, [&] {
    if (!is_root()) return;
    std::vector<float> read;
    if (run_.initial_weights.empty() && !config_.init_weights.empty()) {
      read = read_weights(config_.init_weights, problem_.layout().dim());
    }
    const auto all = std::as_bytes(read.empty() ? run_.initial_weights : std::span<const float>(read));
    bytes.assign(all.begin(), all.end());
  });
  transport_.broadcast(0, bytes);
  if (bytes.empty()) return;
  std::vector<float> weights(problem_.layout().dim());
  if (bytes.size() != weights.size() * sizeof(float)) throw std::logic_error("rank 0 sent weights of another model");
  std::memcpy(weights.data(), bytes.data(), bytes.size());
  replica_->set_weights(weights);
}

// Processes may have been started with different options. Those that name files, or concern one process alone, may
// differ; compare_data() looks at the contents of the data.
void Training::compare_configs() {
  std::string all;
  for (const Setting& setting : settings()) {
    const std::string_view name = setting.option.name;
    const bool may_differ = name == "json" || name == "metrics" || name == "deadline" || name == "quiet" ||
                            name == "data" || name == "test_data" || name == "data_dir" || name == "init_weights" ||
                            name == "save_weights" || name == "report";
    if (!may_differ) all += fmt::format("{}={}\n", name, shown(value_of(config_, setting)));
  }
  const std::vector<std::uint32_t> checksums = values_of_all(transport_, crc32c(std::as_bytes(std::span(all))));
  const auto other = std::find_if(checksums.begin(), checksums.end(), [&](auto one) { return one != checksums[0]; });
  if (other == checksums.end()) return;
  throw SharedError(fmt::format("rank {} was started with other options than rank 0: start all with the same",
                                other - checksums.begin()),
                    /*is_usage=*/true);
}

// The checkpoint to continue from; empty: start at step 0. Throws UsageError.
std::string Training::choose_checkpoint() {
  const std::string& folder = config_.checkpoint_dir;
  files::make_folder(folder);  // now rather than at the first checkpoint
  lock_.emplace(folder);
  if (!config_.resume) {
    if (!has_checkpoints(folder)) return {};
    throw UsageError(
        fmt::format("'{}' has checkpoints of an earlier training: add --resume to continue it; to start a new one, "
                    "remove them or choose another folder",
                    folder));
  }
  const std::optional<Manifest> found = find_checkpoint(folder, run_.log);
  if (!found) {
    run_.log(fmt::format("no checkpoint in '{}' yet: starting at step 0", folder));
    return {};
  }
  const std::string differs = difference(found->config, config_);
  if (!differs.empty()) throw UsageError(fmt::format("'{}' is of another training: {}", found->path, differs));
  if (found->data != problem_.data_fingerprint()) {
    const std::string_view now = problem_.data_fingerprint();
    const bool is_data_set = config_.data.empty() && !now.empty();
    throw UsageError(fmt::format("'{}' is of other data ({}) than {} ({}): give it the same {}", found->path,
                                 found->data.empty() ? "no file" : found->data,
                                 is_data_set ? "the data set" : fmt::format("'{}'", config_.data),
                                 now.empty() ? "no file" : now, is_data_set ? "data set (--data-dir)" : "--data"));
  }
  // Test data may be added or left out: what was evaluated on them is named so.
  const std::string_view test_data = problem_.test_fingerprint();
  if (!found->test_data.empty() && !test_data.empty() && found->test_data != test_data) {
    throw UsageError(fmt::format(
        "'{}' was evaluated on other test data ({}) than {} ({}): give it the same {}", found->path, found->test_data,
        config_.test_data.empty() ? "those of the data set" : fmt::format("'{}'", config_.test_data), test_data,
        config_.test_data.empty() ? "data set (--data-dir)" : "--test-data"));
  }
  if (found->step > config_.steps) {
    throw UsageError(fmt::format("'{}' is beyond --steps {}: ask for more steps", found->path, config_.steps));
  }
  if (found->step == config_.steps && !changes(found->config, config_).empty()) {
    throw UsageError(
        fmt::format("'{}' has no step left of --steps {}, so --change would change nothing: ask for more steps",
                    found->path, config_.steps));
  }
  run_.log(fmt::format("resuming from '{}'{}", found->path,
                       found->step == config_.steps ? ", where all steps are done: for more, raise --steps" : ""));
  if (found->workers != static_cast<std::uint64_t>(transport_.size())) {
    run_.log(fmt::format(
        "it was written by {} workers, and now there are {}: what was not sent yet is divided among the new ones",
        found->workers, transport_.size()));
  }
  return found->path;
}

// With other options than those of the checkpoint, a worker with the old ones loads it and is changed then: a state can
// only be loaded by a worker with the same options. Collective.
void Training::resume_from(const Manifest& manifest) {
  const Json changed = changes(manifest.config, config_);
  if (!changed.empty()) {
    WorkerConfig before = worker_config(manifest.config, weight_);
    before.check_every = config_.check_every;
    worker_ = Worker(before, problem_.layout(), transport_);
  }
  run_or_fail_on_all(transport_, [&] { load(manifest); });
  changes_ = manifest.changes;
  if (changed.empty()) return;
  worker_.retune(worker_config(config_, weight_));
  changes_.push_back({{"step", step_}, {"changed", changed}});
  std::string text;
  for (const auto& [name, one] : changed.items()) {
    text += fmt::format("{}{} from {} to {}", text.empty() ? "" : ", ", long_name(name), shown(one.at("from")),
                        shown(one.at("to")));
  }
  if (is_root()) run_.log(fmt::format("changed after step {}: {}", step_, text));
}

void Training::load(const Manifest& manifest) {
  // Workers that are threads take turns: each reads the states of all ranks, and all at once could fill the memory.
  static std::mutex turn;
  const std::lock_guard lock(turn);
  const std::string& path = manifest.path;
  std::vector<RankState> saved = read_checkpoint(manifest);
  if (saved[0].weights.size() != problem_.layout().dim()) {
    throw UsageError(fmt::format("'{}' has {} weights, but the problem has {}", path, saved[0].weights.size(),
                                 problem_.layout().dim()));
  }
  // With more workers than before, some start with a copy of another's local optimiser.
  const auto rank = static_cast<std::size_t>(transport_.rank());
  const RankState& mine = saved[rank % saved.size()];
  replica_->load(Optimises::gradients, mine.optimiser.empty() ? saved[0].optimiser : mine.optimiser);
  if (!saved[0].outer.empty()) replica_->load(Optimises::exchanges, saved[0].outer);
  replica_->set_weights(saved[0].weights);
  step_ = first_step_ = saved[0].step;
  load_state(saved);

  std::vector<std::vector<std::byte>> workers;
  std::vector<Totals> totals;
  for (RankState& one : saved) {
    workers.push_back(std::move(one.worker));
    totals.push_back(one.totals);
  }
  worker_.load(workers);
  totals_ = totals[rank % totals.size()];
  if (totals.size() == static_cast<std::size_t>(transport_.size())) return;
  const Totals all = sum(totals);                            // rank 0 keeps the totals of workers that no longer exist
  totals_.total_error = all.total_error - all.server_error;  // a mean
  totals_.server_error = is_root() ? all.server_error : 0;
  totals_.peak_memory_norm2 = all.peak_memory_norm2;
  totals_.bytes_up = is_root() ? all.bytes_up : 0;
  totals_.bytes_down = is_root() ? all.bytes_down : 0;
  totals_.bytes_served = is_root() ? all.bytes_served : 0;
  totals_.paper_bits_up = is_root() ? all.paper_bits_up : 0;
  totals_.paper_bits_down = is_root() ? all.paper_bits_down : 0;
  totals_.entries_up = is_root() ? all.entries_up : 0;
  totals_.entries_down = is_root() ? all.entries_down : 0;
}

// Another number of workers starts with the mean.
void Training::load_state(std::span<const RankState> saved) {
  const std::span<float> mine = problem_.state(transport_.rank());
  for (const RankState& one : saved) {
    if (one.problem.size() == mine.size()) continue;
    throw UsageError(fmt::format("the checkpoint has a problem's state of {} numbers, but the problem has {}",
                                 one.problem.size(), mine.size()));
  }
  if (saved.size() == static_cast<std::size_t>(transport_.size())) {
    std::ranges::copy(saved[static_cast<std::size_t>(transport_.rank())].problem, mine.begin());
    return;
  }
  std::vector<std::span<const float>> states;
  for (const RankState& one : saved) states.emplace_back(one.problem);
  write_mean(states, mine);
}

// What evaluations use. Collective.
void Training::average_state() {
  const std::span<float> mine = problem_.state(transport_.rank());
  if (mine.empty()) return;
  std::vector<std::vector<std::byte>> all;
  transport_.gather(0, std::as_bytes(mine), all);
  if (!is_root()) return;
  std::vector<std::vector<float>> states;
  for (const std::vector<std::byte>& bytes : all) {
    states.emplace_back(mine.size());
    if (bytes.size() != mine.size_bytes()) throw std::logic_error("a rank sent a state of another size");
    std::memcpy(states.back().data(), bytes.data(), bytes.size());
  }
  std::vector<float> mean(mine.size());
  write_mean(std::vector<std::span<const float>>(states.begin(), states.end()), mean);
  problem_.set_evaluation_state(mean);
}

// The worker compares updates every --check-every steps; this compares what the optimisers made of them.
std::uint32_t Training::compare_weights() {
  const std::vector<std::uint32_t> checksums = values_of_all(transport_, crc32c(std::as_bytes(replica_->weights())));
  const auto other = std::find_if(checksums.begin(), checksums.end(), [&](auto one) { return one != checksums[0]; });
  if (other == checksums.end()) return checksums[0];
  throw ReplicasDiffer(fmt::format("the weights of rank {} differ from those of rank 0", other - checksums.begin()));
}

void Training::write_checkpoint() {
  compare_weights();
  RankState mine{.step = step_, .weights = {}, .optimiser = {}, .worker = worker_.save(), .totals = totals_};
  const std::span<const float> state = problem_.state(transport_.rank());
  mine.problem.assign(state.begin(), state.end());
  if (is_root()) mine.weights.assign(replica_->weights().begin(), replica_->weights().end());
  if (is_root() || is_local()) mine.optimiser = replica_->save(Optimises::gradients);
  if (is_root()) mine.outer = replica_->save(Optimises::exchanges);
  checkpoints_->write(mine, missing_metrics_);
}

// Only rank 0 evaluates. Collective.
void Training::check_evaluation() {
  std::string bad;
  if (is_root()) {
    for (const Measurement& one : evaluation_->numbers) {
      if (bad.empty() && !std::isfinite(one.value)) bad = fmt::format("the {} is {}", in_words(one.name), one.value);
    }
  }
  const auto all = tell_all(transport_, std::as_bytes(std::span(bad)));
  if (!all[0].empty()) give_up(std::string(reinterpret_cast<const char*>(all[0].data()), all[0].size()));
}

Result Training::finish() {
  const bool is_finished = step_ == config_.steps;
  if (is_finished) average_state();
  run_or_fail_on_all(transport_, [&] {
    if (!pending_error_.empty()) throw std::runtime_error(pending_error_);
    if (!is_root() || !is_finished) return;
    if (!evaluation_) evaluation_ = evaluate(problem_, replica_->weights(), config_.eval_train);
  });
  if (is_finished) check_evaluation();
  run_or_fail_on_all(transport_, [&] {
    if (is_root() && is_finished && !config_.save_weights.empty())
      write_weights(config_.save_weights, replica_->weights());
  });
  const std::uint32_t checksum = compare_weights();
  Result result{.finished = is_finished,
                .step = step_,
                .first_step = first_step_,
                .evaluation = evaluation_,
                .totals = sum(values_of_all(transport_, totals_)),
                .weights_crc32c = checksum,
                .checkpoint = std::nullopt};
  result.sifted_on = replica_->gradient().device;
  result.changes = changes_;
  if (is_root()) result.weights.assign(replica_->weights().begin(), replica_->weights().end());
  struct Thresholds {
    double up;
    double down;
  };
  const Thresholds mine{worker_.threshold().value_or(0), worker_.server_threshold().value_or(0)};
  const Thresholds first = values_of_all(transport_, mine)[0];
  if (first.up > 0) result.threshold = first.up;
  if (first.down > 0) result.downlink_threshold = first.down;
  if (checkpoints_ && checkpoints_->last()) result.checkpoint = checkpoints_->last_path();
  return result;
}

}  // namespace sparsewire::train
