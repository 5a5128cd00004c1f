// Other options between two steps.
#include <fmt/core.h>

#include "core/crc32c_extend.h"
#include "sparsewire/errors.h"
#include "sparsewire/support/float_mode.h"
#include "worker/parts.h"

namespace sparsewire {
namespace {

[[noreturn]] void refuse(const char* what) {
  throw UsageError(fmt::format("[worker] retune: {} must stay as it is; for another one create a new worker", what));
}

}  // namespace

// The options are those of a new worker, which checks that all ranks have the same; it then takes over what this one
// has kept. So if anything fails, this one is as it was.
void Worker::retune(const WorkerConfig& config) {
  const StandardFloatMode mode;
  Parts& p = *parts_;
  p.check_between_steps("retune");
  std::unique_ptr<Parts> next;
  try {
    next = make_parts(config, p.layout, p.transport);
    if (next->given_exchange != p.given_exchange) refuse("the exchange");
    if (next->config.average != p.config.average) refuse("the average");
    if (next->config.scope != p.config.scope) refuse("the scope");
    if (next->config.seed != p.config.seed) refuse("the seed");
    if (next->config.downlink.empty() != p.config.downlink.empty()) refuse("whether there is a downlink");
    if (next->config.downlink_feedback != p.config.downlink_feedback) refuse("the downlink's feedback");
    if (next->weights != p.weights) refuse("the weight of every worker");
    next->sifter.continue_from(p.sifter);
    if (Sifter* const server = next->exchange->server()) server->continue_from(*p.exchange->server());
    p.bring_update();
  } catch (const UsageError&) {  // all ranks throw it
    throw;
  } catch (const std::exception& error) {  // out of memory: the others wait, or have changed their options
    p.transport.fail(error.what());
    throw;
  }
  next->identity = crc32c_extend(next->identity, std::as_bytes(std::span(&p.identity, 1)));
  next->step_number = p.step_number;
  next->stats = p.stats;
  next->checksum = p.checksum;
  next->total = std::move(p.total);
  parts_ = std::move(next);
}

}  // namespace sparsewire
