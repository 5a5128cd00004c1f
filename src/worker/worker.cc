// The whole path of a gradient on one screen: Worker::step. Its stages are below; how a worker is constructed and saved
// is in construct.cc and state.cc.
#include "sparsewire/worker.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>

#include "core/crc32c_extend.h"
#include "exchange/clock.h"
#include "exchange/messages.h"
#include "sparsewire/codec.h"
#include "sparsewire/errors.h"
#include "sparsewire/support/float_mode.h"
#include "worker/parts.h"

namespace sparsewire {
namespace {

// Collective: all ranks continue with the median of their votes, each of which counts as often as it has entries: a
// region of one entry says little about the others. All take part, also those that have no vote to give.
// REQUIRES: the sifters of all ranks are voting in this step, or none is.
void agree_on_vote(Sifter& sifter, ControlGather& control) {
  if (!sifter.is_voting()) return;
  struct Vote {
    float threshold;
    float entries;  // 0: there is no vote
  };
  std::optional<float> mine = sifter.vote();
  if (mine && !std::isfinite(*mine)) mine.reset();  // of a sparsifier from outside
  const Vote own{mine.value_or(0), mine ? static_cast<float>(sifter.layout().dim()) : 0};
  std::vector<Vote> votes;
  control.gather(own, votes);
  std::erase_if(votes, [](const Vote& vote) { return vote.entries == 0; });
  if (votes.empty()) return;
  std::sort(votes.begin(), votes.end(), [](const Vote& a, const Vote& b) { return a.threshold < b.threshold; });
  double left = 0;  // until the middle
  for (const Vote& vote : votes) left += static_cast<double>(vote.entries) / 2;
  auto middle = votes.begin();
  while ((left -= static_cast<double>(middle->entries)) > 0) ++middle;
  sifter.set_vote(middle->threshold);
}

// Throws ReplicasDiffer, which names the ranks whose checksum is not the most frequent one. `checksums` is in rank
// order, or empty if there was no comparison.
void throw_if_different(const std::vector<std::uint32_t>& checksums, std::uint64_t steps) {
  if (std::adjacent_find(checksums.begin(), checksums.end(), std::not_equal_to()) == checksums.end()) return;
  std::map<std::uint32_t, std::vector<std::size_t>> ranks_with;
  for (std::size_t r = 0; r < checksums.size(); ++r) ranks_with[checksums[r]].push_back(r);
  const auto most = std::max_element(ranks_with.begin(), ranks_with.end(),
                                     [](auto& a, auto& b) { return a.second.size() < b.second.size(); });
  std::string others;
  for (std::size_t r = 0; r < checksums.size(); ++r) {
    if (checksums[r] != most->first) others += fmt::format("{}{}", others.empty() ? "" : ", ", r);
  }
  throw ReplicasDiffer(
      fmt::format("[worker] after {} steps the updates of rank {} differ from those of rank {} and most "
                  "others: check that machine, then continue from a state saved before",
                  steps, others, most->second.front()));
}

}  // namespace

const SparseVector& Worker::step(const Gradient& gradient, const StepOptions& options) {
  begin_step(gradient, options);
  return finish_step();
}

void Worker::begin_step(const Gradient& gradient, const StepOptions& options) {
  Parts& p = *parts_;
  const StandardFloatMode mode;
  p.check_between_steps("begin_step");
  p.can_take_back = false;
  p.gradient = gradient;
  p.options = options;
  p.stats_before = p.stats;
  p.checksum_before = p.checksum;
  p.went_dense = p.goes_dense;
  p.sift();  // sparsify/  moves the entries worth sending out of the memory
  p.has_begun = true;
}

const SparseVector& Worker::finish_step() {
  Parts& p = *parts_;
  const StandardFloatMode mode;
  p.check_usable();
  if (!p.has_begun) throw UsageError("[worker] finish_step: no step has begun");
  p.has_begun = false;
  try {
    p.exchange_all();        // exchange/  encodes, sends, decodes, merges: the same bits on every rank
    p.handle_failure();      //            if any rank failed, all take the step back
    p.keep_rounding_loss();  // sparsify/  puts what the codec's rounding took back into the memory
    p.observe();             // sparsify/  tells RegTop-k the update at the entries it sent
    p.vote_threshold();      //            makes a measured threshold the same on all ranks
    p.account();             //            fills in the statistics of the step
    p.compare_replicas();    //            checks, every so often, that all ranks got the same updates
  } catch (const std::exception& error) {
    // The others may wait for a message of this rank, unless all have read the same.
    const bool all_know = p.outcome.failure && !p.outcome.failure->found_here;
    if (!p.usable && !all_know) p.transport.fail(error.what());
    throw;
  }
  p.can_take_back = true;
  return p.total;
}

void Worker::take_back_step() {
  Parts& p = *parts_;
  const StandardFloatMode mode;
  p.check_between_steps("take_back_step");
  if (!p.can_take_back) throw UsageError("[worker] take_back_step: there is no finished step that could be taken back");
  p.can_take_back = false;
  p.undo_sift();
  p.goes_dense = p.went_dense;
  p.active_exchange().take_back();
  p.stats = p.stats_before;
  p.checksum = p.checksum_before;
  p.total.clear(p.layout.dim());
  p.sum = nullptr;
}

void Worker::Parts::check_between_steps(const char* what) const {
  check_usable();
  if (!has_begun) return;
  throw UsageError(fmt::format("[worker] {}: step {} has begun; finish it first", what, step_number));
}

// Takes the last sift back. The sifter needs the entries as it sent them.
void Worker::Parts::undo_sift() {
  if (has_swapped) sent.values.swap(received);
  has_swapped = false;
  sifter.undo(gradient, sent, options.lr, options.unscale);
}

void Worker::Parts::check_usable() const {
  if (usable) return;
  throw UsageError(
      fmt::format("[worker] step {} was not completed; this worker must not be used again: create a new "
                  "one and load a saved state",
                  step_number));
}

Exchange& Worker::Parts::active_exchange() noexcept { return goes_dense ? *dense_exchange : *exchange; }

// An error here must not leave the other ranks waiting: it travels with the trailer, and is thrown after the exchange.
void Worker::Parts::sift() {
  stats.ns_sift = 0;
  StageClock clock;
  step_number = sifter.step();
  has_sifted = has_swapped = false;
  thrown = nullptr;
  const int rank = transport.rank();
  const double largest = std::numeric_limits<float>::max();  // that a trailer can hold
  trailer = {.rank = rank,
             .fingerprint = identity,
             .step = step_number,
             .weight = static_cast<float>(std::min(config.weight, largest)),
             .lr = options.lr,
             .flags = options.flags,
             .loss = options.loss,
             .entries = 0,
             .failure = {}};
  try {
    take_weight();
    exchange->sift(sifter, gradient, options.lr, options.unscale, sent);
    has_sifted = true;
    // The memory of a server is on the device of its worker, too.
    if (Sifter* const server = exchange->server()) server->move_to(gradient.device);
    trailer.entries = sifter.stats().entries;
    if (goes_dense) sifter.flush(sent);
  } catch (const BadGradient& error) {
    trailer.failure = {.rank = rank, .index = error.index()};
  } catch (const std::exception& error) {
    thrown = std::current_exception();
    trailer.failure = failure_of(rank, error);
  }
  clock.lap(stats.ns_sift);
}

void Worker::Parts::take_weight() {
  if (!options.weight) return;
  const auto weight = static_cast<float>(*options.weight);
  if (!std::isfinite(weight) || weight < 0) {
    throw UsageError(fmt::format("[worker] the weight of this step, {}, is not in [0, inf)", *options.weight));
  }
  if (config.average != Average::senders || exchange->is_dense() || dense_exchange != nullptr || observes) {
    throw UsageError(
        "[worker] a weight of one step needs average senders, an exchange that is neither dense nor auto, and a "
        "sparsifier that does not learn from the update");
  }
  trailer.weight = weight;
  trailer.is_weight_of_step = true;
}

void Worker::Parts::exchange_all() {
  usable = false;
  outcome = {};
  sum = nullptr;
  outcome = active_exchange().run(sent, trailer, received, total);
  sum = active_exchange().sum_on_device();
  sum_device = gradient.device;
  if (!options.update_on_device) bring_update();
}

void Worker::Parts::handle_failure() {
  stats.flags = outcome.flags;
  stats.loss = outcome.loss;
  if (!outcome.failure) return;
  total.clear(layout.dim());
  if (has_sifted) undo_sift();
  const Failure::Kind kind = outcome.failure->kind;
  usable = kind == Failure::Kind::bad_gradient || kind == Failure::Kind::error;
  if (kind == Failure::Kind::error && thrown) std::rethrow_exception(thrown);
  if (kind == Failure::Kind::error && active_exchange().thrown()) std::rethrow_exception(active_exchange().thrown());
  throw_failure(*outcome.failure);
}

void Worker::Parts::throw_failure(const Failure& failure) const {
  constexpr const char* kRecover = "to recover, create new workers and load a saved state";
  switch (failure.kind) {
    case Failure::Kind::bad_gradient:
      throw BadGradient(fmt::format("[worker] the gradient of rank {} is not finite at index {} in step {}, or a sum "
                                    "with it is not; all ranks took the step back",
                                    failure.rank, failure.index, step_number),
                        failure.rank, step_number, failure.index);
    case Failure::Kind::error:
      throw RankFailed(fmt::format("[worker] rank {} failed in step {}: {}; all ranks took the step back", failure.rank,
                                   step_number, failure.cause.text()),
                       failure.rank);
    case Failure::Kind::out_of_step:
      throw TransportError(fmt::format("[worker] in step {}: rank {} is not in the same step as rank 0, or it steps "
                                       "another worker; all ranks must step the same workers in the same order; {}",
                                       step_number, failure.rank, kRecover),
                           failure.rank);
    default:
      if (failure.index == Failure::kElsewhere) {
        throw TransportError(fmt::format("[worker] in step {}: another rank could not read the messages of all; {}",
                                         step_number, kRecover),
                             failure.rank);
      }
      const std::string why =
          failure.index == Failure::kNoTrailer ? "it is not a message of this version"
          : failure.index == Failure::kOtherDim
              ? "its vector has another dimension"
              : fmt::format("its frame: {}", describe(DecodeStatus{static_cast<std::uint8_t>(failure.index)}));
      throw TransportError(fmt::format("[worker] in step {}: the message of rank {} cannot be read: {}; {}",
                                       step_number, failure.rank, why, kRecover),
                           failure.rank);
  }
}

void Worker::Parts::keep_rounding_loss() {
  if (received.empty()) return;
  sifter.keep_rounding_loss(sent, received);
  sent.values.swap(received);
  has_swapped = true;
}

void Worker::Parts::observe() {
  if (!observes || goes_dense) return;
  at_sent.assign(sent.size(), 0.0F);
  const std::vector<float>& values = config.average == Average::senders ? *active_exchange().undivided() : total.values;
  const bool has_downlink = !config.downlink.empty();  // without one, entries that cancel out may not be in the sum
  came_back.assign(has_downlink ? sent.size() : 0, 0);
  if (total.is_full()) {
    came_back.clear();
    for (std::size_t i = 0; i < sent.size(); ++i) at_sent[i] = values[sent.index(i)];
  } else {
    std::size_t t = 0;
    for (std::size_t i = 0; i < sent.size(); ++i) {
      const std::uint32_t index = sent.index(i);
      while (t < total.size() && total.indices[t] < index) ++t;
      if (t == total.size() || total.indices[t] != index) continue;
      at_sent[i] = values[t];
      if (has_downlink) came_back[i] = 1;
    }
  }
  sifter.observe(sent, at_sent, came_back);
}

// All ranks measure their thresholds in the same step, so all of them vote in the same step. So do the servers.
void Worker::Parts::vote_threshold() {
  agree_on_vote(sifter, control);
  Sifter* const server = exchange->server();
  if (server != nullptr && exchange->has_many_servers()) agree_on_vote(*server, control);
}

void Worker::Parts::account() {
  const SiftStats& sifted = sifter.stats();
  const Traffic& traffic = active_exchange().traffic();
  const std::uint64_t all_entries = layout.dim() * static_cast<std::uint64_t>(transport.size());
  const std::uint64_t updated = sum != nullptr ? layout.dim() : total.size();
  const bool all_were_sent = outcome.entries == all_entries && updated == layout.dim() && layout.dim() != 0;
  stats.step = sifted.step;
  stats.entries_sent = sifted.entries;
  stats.entries_total = updated;
  stats.density = layout.dim() == 0 ? 0 : static_cast<double>(updated) / static_cast<double>(layout.dim());
  stats.dense_bytes = layout.dim() * sizeof(float);
  stats.bytes_up = traffic.bytes_up;
  stats.bytes_down = traffic.bytes_down;
  stats.bytes_served = traffic.bytes_served;
  stats.trailer_bytes_up = traffic.trailers_up * kTrailerSize;
  stats.trailer_bytes_down = traffic.trailers_down * kTrailerSize;
  stats.trailer_bytes_served = traffic.trailers_served * kTrailerSize;
  stats.sent_norm2 = sifted.sent_norm2;
  stats.memory_norm2 = sifted.memory_norm2;
  stats.total_error = sifted.total_error;
  if (const Sifter* const server = exchange->server()) {
    stats.server_memory_norm2 = active_exchange().is_dense() ? 0 : server->stats().memory_norm2;
    stats.server_error = server->stats().total_error;
  }
  stats.went_dense = active_exchange().is_dense() || all_were_sent;
  stats.ns_encode = traffic.ns_encode;
  stats.ns_exchange = traffic.ns_transport;
  stats.ns_decode = traffic.ns_decode;
  stats.ns_merge = traffic.ns_merge;
  if (!cost || !counts_vary) return;
  const double mean = static_cast<double>(outcome.entries) / transport.size();  // the same on all ranks
  goes_dense = cost->is_dense_shorter(mean);
}

// The checksum is over all updates so far: once replicas differ, every later comparison finds it. The last stage: when
// its messages have arrived, the step is complete, and the worker can be used again.
void Worker::Parts::compare_replicas() {
  checksums.clear();
  if (config.check_every != 0) {
    if (sum != nullptr) {
      checksum = sum->extend_checksum(checksum);
    } else {
      for (const auto bytes : {std::as_bytes(std::span(total.indices)), std::as_bytes(std::span(total.values))}) {
        checksum = crc32c_extend(checksum, bytes);
      }
    }
    if (stats.step % config.check_every == 0) control.gather(checksum, checksums);
  }
  usable = true;
  throw_if_different(checksums, stats.step);
}

const SparseVector& Worker::update() const noexcept { return parts_->total; }
const StepStats& Worker::stats() const noexcept { return parts_->stats; }
const Layout& Worker::layout() const noexcept { return parts_->layout; }
float Worker::weight() const noexcept { return parts_->weights[static_cast<std::size_t>(parts_->transport.rank())]; }
std::optional<double> Worker::threshold() const noexcept { return parts_->sifter.threshold(); }
std::optional<double> Worker::server_threshold() const noexcept {
  const Sifter* const server = parts_->exchange->server();
  return server == nullptr ? std::nullopt : server->threshold();
}
std::vector<float> Worker::memory() const { return parts_->sifter.memory(); }

void Worker::read_memory(std::string_view tensor, WritableNumbers numbers) const {
  parts_->check_between_steps("read_memory");
  parts_->sifter.read_memory(tensor, numbers);
}

void Worker::write_memory(std::string_view tensor, const Gradient& numbers) {
  parts_->check_between_steps("write_memory");
  parts_->sifter.write_memory(tensor, numbers);
  parts_->can_take_back = false;
}

void Worker::add_server_memory(std::span<double> owed) const {
  if (owed.size() != parts_->layout.dim()) {
    throw UsageError(fmt::format("[worker] add_server_memory needs {} entries, as many as the model has, not {}",
                                 parts_->layout.dim(), owed.size()));
  }
  const Sifter* const server = parts_->exchange->server();
  if (server == nullptr) return;
  const std::vector<float> memory = server->memory();
  for (std::size_t i = 0; i < memory.size(); ++i) {
    owed[parts_->exchange->served_index(static_cast<std::uint32_t>(i))] += static_cast<double>(memory[i]);
  }
}

Worker::~Worker() = default;
Worker::Worker(Worker&&) noexcept = default;
Worker& Worker::operator=(Worker&&) noexcept = default;

}  // namespace sparsewire
