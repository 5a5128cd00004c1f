// A training on one screen: Training::run. Each of its lines is a function below; begin() and finish() are in
// training.cc.
#include "loop/loop.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>

#include "loop/agree.h"
#include "loop/run_or_fail.h"
#include "loop/training.h"
#include "sparsewire/errors.h"

namespace sparsewire::train {
namespace {

// Flags that a rank sends to all others with its step.
constexpr std::uint8_t kStop = 1;      // a signal asked this rank to stop
constexpr std::uint8_t kDiverged = 2;  // the loss on this rank is not finite
constexpr std::uint8_t kError = 4;     // something failed on this rank alone

using Clock = std::chrono::steady_clock;

std::uint64_t ns_since(Clock::time_point began) {
  return static_cast<std::uint64_t>(std::chrono::nanoseconds(Clock::now() - began).count());
}

}  // namespace

Result Training::run() {
  begin();
  while (step_ < config_.steps && !stopped_) {
    find_gradient();   // problem     of this worker's batch, or the result of its local steps
    exchange();        // worker      gradients become an update, with the same bits on every rank
    change_weights();  // optimiser
    report();          // metrics     every --eval-every steps rank 0 evaluates, and writes a line
    write_if_due();    // checkpoint  all ranks together
  }
  return finish();
}

void Training::find_gradient() {
  const auto began = Clock::now();
  number_ = step_ + 1;
  lr_ = schedule_.lr(step_);
  if (is_local()) {
    follow_local_steps();
  } else {
    batch_loss_ = replica_->find_gradient(step_);
  }
  ns_gradient_ = ns_since(began);
}

// Then workers exchange the difference between the common weights and their own.
void Training::follow_local_steps() {
  replica_->begin_local_steps();
  batch_loss_ = 0;
  for (std::uint64_t h = 0; h < config_.local_steps; ++h) {
    const double loss = replica_->find_gradient(step_ * config_.local_steps + h);
    batch_loss_ += loss / static_cast<double>(config_.local_steps);
    replica_->local_step(lr_);
  }
  replica_->end_local_steps();
}

void Training::exchange() {
  const double lr = is_local() ? 1 : lr_;
  try {
    worker_.step(replica_->gradient(),
                 {.lr = static_cast<float>(lr), .flags = flags(), .loss = batch_loss_, .update_on_device = true});
    compression_.reset();
    const bool is_due = config_.measure_every != 0 && number_ % config_.measure_every == 0;
    if (is_due) compression_ = worker_.measure_compression();
  } catch (const BadGradient& error) {
    give_up(
        fmt::format("the gradient of rank {} is not finite at index {}, or overflows when it is added to the memory",
                    error.rank(), error.index()));
  }
  if ((worker_.stats().flags & kDiverged) != 0) compare_losses();
  const double share = static_cast<double>(worker_.weight()) * transport_.size();
  totals_.add(worker_.stats(), problem_.layout().dim(), std::abs(share - 1) < 1e-6 ? 1 : share);  // 1/3 is not exact
}

std::uint8_t Training::flags() const {
  unsigned flags = 0;
  if (run_.stop_requested()) flags |= kStop;
  if (!std::isfinite(batch_loss_)) flags |= kDiverged;
  if (!pending_error_.empty()) flags |= kError;
  return static_cast<std::uint8_t>(flags);
}

// Finds the rank whose loss is not finite. Collective.
void Training::compare_losses() {
  const std::vector<double> losses = values_of_all(transport_, batch_loss_);
  const auto bad = std::find_if(losses.begin(), losses.end(), [](double loss) { return !std::isfinite(loss); });
  give_up(fmt::format("the loss of rank {} is {}", bad - losses.begin(), bad == losses.end() ? 0 : *bad));
}

void Training::give_up(const std::string& why) const {
  const std::string from = checkpoints_ && checkpoints_->last()
                               ? fmt::format("the last checkpoint is '{}'", checkpoints_->last_path())
                               : std::string("there is no checkpoint");
  throw SharedError(fmt::format("diverged in step {}: {}; {}; try a smaller --lr", number_, why, from),
                    /*is_usage=*/false, number_);
}

void Training::change_weights() {
  const auto began = Clock::now();
  replica_->apply_update(worker_, {.lr = is_local() ? config_.outer_lr : lr_, .holds_lr = holds_lr_});
  ns_apply_ = ns_since(began);
  ++step_;
}

void Training::report() {
  evaluation_.reset();
  const bool is_due = (config_.eval_every != 0 && step_ % config_.eval_every == 0) || step_ == config_.steps;
  std::optional<Totals> of_all;
  if (is_due) {
    of_all = sum(values_of_all(transport_, totals_));
    average_state();
  }
  if (!is_root()) return;
  if (is_due) evaluation_ = evaluate(problem_, replica_->weights(), config_.eval_train);
  const StepReport report{.step = step_,
                          .loss = totals_.loss,
                          .lr = lr_,
                          .stats = worker_.stats(),
                          .ns_gradient = ns_gradient_,
                          .ns_apply = ns_apply_,
                          .evaluation = evaluation_,
                          .totals = of_all,
                          .compression = compression_,
                          .seconds = seconds(),
                          .steps = config_.steps};
  const bool is_wanted = metrics_ && (is_due || compression_ || config_.metrics_every_step);
  try {
    if (is_wanted && pending_error_.empty()) metrics_->write(report);
  } catch (const std::exception& error) {
    pending_error_ = error.what();  // the other ranks learn of it with the next step
  }
  if (is_wanted && !pending_error_.empty()) missing_metrics_.push_back(step_json(report));
  run_.on_step(report);
}

double Training::seconds() const {
  return seconds_before_ + std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
}

void Training::write_if_due() {
  stopped_ = (worker_.stats().flags & (kStop | kError)) != 0;
  const bool is_due = config_.checkpoint_every != 0 && step_ % config_.checkpoint_every == 0;
  if (!checkpoints_ || !(is_due || stopped_ || step_ == config_.steps)) return;
  check_weights();
  write_checkpoint();
}

// All ranks have the same weights, so all find the same. A checkpoint of weights that are not finite is useless, and
// would displace a useful one.
void Training::check_weights() {
  const std::span<const float> weights = replica_->weights();
  const auto bad = std::find_if_not(weights.begin(), weights.end(), [](float w) { return std::isfinite(w); });
  if (bad != weights.end()) give_up(fmt::format("weight {} is {}", bad - weights.begin(), *bad));
}

Result train(const Run& run) {
  try {
    check(run.config);
    compare_plugins(run.transport);
    compare_data(run.problem, run.transport);
    return Training(run).run();
  } catch (const UsageError& error) {  // all ranks were given the same, so all throw it
    throw SharedError(error.what(), /*is_usage=*/true);
  }
}

}  // namespace sparsewire::train
