// A training on one screen: Training::run. Each of its lines is a function below; begin() and finish() are in
// training.cc.
#include "train/loop.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>

#include "sparsewire/errors.h"
#include "train/run_or_fail.h"
#include "train/training.h"
#include "transport/gather_and_broadcast.h"

namespace sparsewire::train {
namespace {

// Flags that a rank sends to all others with its step.
constexpr std::uint8_t kStop = 1;      // a signal asked this rank to stop
constexpr std::uint8_t kDiverged = 2;  // the loss on this rank is not finite
constexpr std::uint8_t kError = 4;     // something failed on this rank alone

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
  number_ = step_ + 1;
  lr_ = schedule_.lr(step_);
  if (is_local()) {
    follow_local_steps();
  } else {
    batch_loss_ = batch_gradient(step_, weights_);
  }
}

double Training::batch_gradient(std::uint64_t number, std::span<const float> weights) {
  const double loss = problem_.gradient(transport_.rank(), number, weights, gradient_);
  clip();
  return loss;
}

// To the norm --clip. A gradient that is not finite is left to the worker, whose error names the index.
void Training::clip() {
  if (config_.clip == 0) return;
  double norm2 = 0;
  for (const float g : gradient_) norm2 += static_cast<double>(g) * static_cast<double>(g);
  const double norm = std::sqrt(norm2);
  if (!(norm > config_.clip) || !std::isfinite(norm)) return;
  const double factor = config_.clip / norm;
  for (float& g : gradient_) g = static_cast<float>(static_cast<double>(g) * factor);
}

// Then workers exchange the difference between the common weights and their own.
void Training::follow_local_steps() {
  local_ = weights_;
  batch_loss_ = 0;
  for (std::uint64_t h = 0; h < config_.local_steps; ++h) {
    batch_loss_ += batch_gradient(step_ * config_.local_steps + h, local_) / static_cast<double>(config_.local_steps);
    optimiser_->apply(gradient_, {.lr = lr_}, local_);
  }
  std::transform(weights_.begin(), weights_.end(), local_.begin(), gradient_.begin(), std::minus<>());
}

void Training::exchange() {
  const double lr = is_local() ? 1 : lr_;
  try {
    worker_.step(gradient_, {.lr = static_cast<float>(lr), .flags = flags(), .loss = batch_loss_});
    worker_.write_update(update_);
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
  totals_.add(worker_.stats(), weights_.size(), std::abs(share - 1) < 1e-6 ? 1 : share);  // 1/3 is not exact
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
  const std::vector<double> losses = gather_and_broadcast(transport_, batch_loss_);
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
  if (is_local()) {
    std::transform(weights_.begin(), weights_.end(), update_.begin(), weights_.begin(), std::minus<>());
  } else {
    optimiser_->apply(update_, {.lr = lr_, .holds_lr = holds_lr_}, weights_);
  }
  ++step_;
}

void Training::report() {
  evaluation_.reset();
  const bool is_due = (config_.eval_every != 0 && step_ % config_.eval_every == 0) || step_ == config_.steps;
  std::optional<Totals> of_all;
  if (is_due) {
    of_all = sum(gather_and_broadcast(transport_, totals_));
    average_state();
  }
  if (!is_root()) return;
  if (is_due) evaluation_ = evaluate(problem_, weights_, config_.eval_train);
  const StepReport report{.step = step_,
                          .loss = totals_.loss,
                          .lr = lr_,
                          .stats = worker_.stats(),
                          .evaluation = evaluation_,
                          .totals = of_all,
                          .compression = compression_,
                          .seconds = seconds(),
                          .steps = config_.steps};
  try {
    const bool is_wanted = is_due || compression_ || config_.metrics_every_step;
    if (metrics_ && is_wanted && pending_error_.empty()) metrics_->write(report);
  } catch (const std::exception& error) {
    pending_error_ = error.what();  // the other ranks learn of it with the next step
  }
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
void Training::check_weights() const {
  const auto bad = std::find_if_not(weights_.begin(), weights_.end(), [](float w) { return std::isfinite(w); });
  if (bad != weights_.end()) give_up(fmt::format("weight {} is {}", bad - weights_.begin(), *bad));
}

Result train(const Run& run) {
  try {
    check(run.config);
    compare_data(run.problem, run.transport);
    return Training(run).run();
  } catch (const UsageError& error) {  // all ranks were given the same, so all throw it
    throw SharedError(error.what(), /*is_usage=*/true);
  }
}

}  // namespace sparsewire::train
