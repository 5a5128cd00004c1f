// The whole engine on one screen: Worker::step. What each line does is below; how a worker is made and saved, in
// construct.cc and state.cc.
#include "sparsewire/worker.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "core/crc32c_extend.h"
#include "core/spec.h"
#include "exchange/clock.h"
#include "sparsewire/codec.h"
#include "sparsewire/errors.h"
#include "transport/all_gather_values.h"
#include "worker/parts.h"

namespace sparsewire {
namespace {

// Collective, where there is a vote: all ranks go on with the median of theirs.
void agree_on_vote(Sifter& sifter, Transport& transport) {
  const std::optional<float> vote = sifter.vote();
  if (!vote) return;
  std::vector<float> votes = all_gather_values(transport, *vote);
  const auto middle = votes.begin() + static_cast<std::ptrdiff_t>((votes.size() - 1) / 2);
  std::nth_element(votes.begin(), middle, votes.end());
  sifter.set_vote(*middle);
}

}  // namespace

const StepStats& Worker::step(Gradient gradient, std::span<float> update, const StepOptions& options) {
  Parts& p = *parts_;
  p.begin(update);
  p.sift(gradient, options);            // sparsify/  out of the memory, what is worth sending
  p.exchange_all();                     // exchange/  encode, move, decode, merge: the same bits on every rank
  p.handle_failure(gradient, options);  //            a gradient that was bad anywhere: all take the step back
  p.keep_rounding_loss();               // sparsify/  what the codec's rounding took waits in the memory
  p.observe();                          // sparsify/  RegTop-k learns what the others made of it
  p.vote_threshold();                   //            one measured threshold for all
  p.scatter(update);                    //            back to dense for the optimiser
  p.account();                          //            the statistics of the step
  p.compare_replicas();                 //            every so often
  return p.stats;
}

void Worker::Parts::begin(std::span<const float> update) const {
  if (!usable) throw UsageError(fmt::format("[worker] failed in step {}; make a new one", sifter.step()));
  if (update.size() == layout.dim()) return;
  throw UsageError(
      fmt::format("[worker] an update of {} entries does not fit a layout of {}", update.size(), layout.dim()));
}

Exchange& Worker::Parts::active_exchange() noexcept { return goes_dense ? *dense_exchange : *exchange; }

void Worker::Parts::sift(const Gradient& gradient, const StepOptions& options) {
  stats.ns_sift = 0;
  StageClock clock;
  const std::uint64_t step = sifter.step();
  trailer = {.failed = false,
             .flags = options.flags,
             .step_id = crc32c_extend(identity, std::as_bytes(std::span(&step, 1))),
             .entries = 0,
             .loss = options.loss};
  try {
    sifter.sift(gradient, sent, options.lr);
    trailer.entries = sent.size();
    if (goes_dense) sifter.flush(sent);
  } catch (const BadGradient& error) {
    trailer.failed = true;
    trailer.entries = error.index();
  }
  clock.lap(stats.ns_sift);
}

void Worker::Parts::exchange_all() {
  usable = false;
  outcome = active_exchange().run(sent, trailer, received, total);
}

void Worker::Parts::handle_failure(const Gradient& gradient, const StepOptions& options) {
  stats.flags = outcome.flags;
  stats.loss = outcome.loss;
  if (!outcome.failure) return;
  total.clear(layout.dim());
  if (!trailer.failed) sifter.undo(gradient, sent, options.lr);
  usable = outcome.failure->kind == Failure::Kind::bad_gradient;
  throw_failure(*outcome.failure);
}

void Worker::Parts::throw_failure(const Failure& failure) const {
  const std::uint64_t step = sifter.step();
  switch (failure.kind) {
    case Failure::Kind::bad_gradient:
      throw BadGradient(fmt::format("[worker] the gradient of rank {} is not finite at index {} in step {}, or a sum "
                                    "with it is not; all ranks took the step back",
                                    failure.rank, failure.index, step),
                        failure.rank, step, failure.index);
    case Failure::Kind::out_of_step:
      throw TransportError(
          fmt::format("[worker] rank {} is not in the same step as rank 0, or it steps another worker", failure.rank),
          failure.rank);
    default:
      const std::string why =
          failure.index == Failure::kNoTrailer ? "it is not a message of this version"
          : failure.index == Failure::kOtherDim
              ? "its vector has another size"
              : fmt::format("its frame: {}", describe(DecodeStatus{static_cast<std::uint8_t>(failure.index)}));
      throw TransportError(
          fmt::format("[worker] what rank {} sent in step {} cannot be read: {}", failure.rank, step, why),
          failure.rank);
  }
}

void Worker::Parts::keep_rounding_loss() {
  if (received.empty()) return;
  sifter.keep_rounding_loss(sent, received);
  sent.values.swap(received);
}

void Worker::Parts::observe() {
  if (!observes || goes_dense) return;
  at_sent.assign(sent.size(), 0.0F);
  if (total.is_full()) {
    for (std::size_t i = 0; i < sent.size(); ++i) at_sent[i] = total.values[sent.index(i)];
  } else {
    std::size_t t = 0;
    for (std::size_t i = 0; i < sent.size(); ++i) {
      const std::uint32_t index = sent.index(i);
      while (t < total.size() && total.indices[t] < index) ++t;
      if (t < total.size() && total.indices[t] == index) at_sent[i] = total.values[t];
    }
  }
  sifter.observe(sent, at_sent);
}

// All ranks measure a threshold in the same step, so all of them are here together; of servers, those that have one.
void Worker::Parts::vote_threshold() {
  agree_on_vote(sifter, transport);
  Sifter* const server = exchange->server();
  if (server != nullptr && !server_votes_alone) agree_on_vote(*server, transport);
  usable = true;
}

void Worker::Parts::scatter(std::span<float> update) {
  stats.ns_apply = 0;
  StageClock clock;
  if (total.is_full()) {
    std::copy(total.values.begin(), total.values.end(), update.begin());
  } else {
    std::fill(update.begin(), update.end(), 0.0F);
    for (std::size_t i = 0; i < total.size(); ++i) update[total.indices[i]] = total.values[i];
  }
  clock.lap(stats.ns_apply);
}

void Worker::Parts::account() {
  const SiftStats& sifted = sifter.stats();
  const Traffic& traffic = active_exchange().traffic();
  stats.step = sifted.step;
  stats.entries_sent = sent.size();
  stats.entries_total = total.size();
  stats.density = layout.dim() == 0 ? 0 : static_cast<double>(total.size()) / static_cast<double>(layout.dim());
  stats.dense_bytes = layout.dim() * sizeof(float);
  stats.bytes_up = traffic.bytes_up;
  stats.bytes_down = traffic.bytes_down;
  stats.bytes_served = traffic.bytes_served;
  stats.sent_norm2 = sifted.sent_norm2;
  stats.memory_norm2 = sifted.memory_norm2;
  stats.total_error = sifted.total_error;
  stats.went_dense = goes_dense || Spec(config.exchange).name() == "dense";
  stats.ns_encode = traffic.ns_encode;
  stats.ns_exchange = traffic.ns_transport;
  stats.ns_decode = traffic.ns_decode;
  stats.ns_merge = traffic.ns_merge;
  if (!dense_exchange || !counts_vary) return;
  const double mean = static_cast<double>(outcome.entries) / transport.size();  // agreed on, so all decide alike
  goes_dense = is_dense_shorter(config, mean, layout.dim(), transport.size());
}

// Of all updates up to now: once replicas differ, they do for ever.
void Worker::Parts::compare_replicas() {
  if (config.check_every == 0) return;
  for (const auto bytes : {std::as_bytes(std::span(total.indices)), std::as_bytes(std::span(total.values))}) {
    checksum = crc32c_extend(checksum, bytes);
  }
  if (stats.step % config.check_every != 0) return;
  std::map<std::uint32_t, std::vector<std::size_t>> ranks_with;
  const std::vector<std::uint32_t> checksums = all_gather_values(transport, checksum);
  for (std::size_t r = 0; r < checksums.size(); ++r) ranks_with[checksums[r]].push_back(r);
  if (ranks_with.size() == 1) return;
  const auto most = std::max_element(ranks_with.begin(), ranks_with.end(),
                                     [](auto& a, auto& b) { return a.second.size() < b.second.size(); });
  std::string others;
  for (std::size_t r = 0; r < checksums.size(); ++r) {
    if (checksums[r] != most->first) others += fmt::format("{}{}", others.empty() ? "" : ", ", r);
  }
  throw ReplicasDiffer(
      fmt::format("[worker] in step {} the update of rank {} differs from that of most others, such as rank {}",
                  stats.step, others, most->second.front()));
}

const SparseVector& Worker::update() const noexcept { return parts_->total; }
const StepStats& Worker::stats() const noexcept { return parts_->stats; }
std::span<const float> Worker::memory() const noexcept { return std::as_const(parts_->sifter).memory(); }

void Worker::add_server_memory(std::span<double> owed) const {
  if (owed.size() != parts_->layout.dim()) {
    throw UsageError(fmt::format("[worker] {} entries are not the {} of the model", owed.size(), parts_->layout.dim()));
  }
  const Sifter* const server = parts_->exchange->server();
  if (server == nullptr) return;
  const std::span<const float> memory = server->memory();
  for (std::size_t i = 0; i < memory.size(); ++i) {
    owed[parts_->exchange->served_index(static_cast<std::uint32_t>(i))] += static_cast<double>(memory[i]);
  }
}

Worker::~Worker() = default;
Worker::Worker(Worker&&) noexcept = default;
Worker& Worker::operator=(Worker&&) noexcept = default;

}  // namespace sparsewire
