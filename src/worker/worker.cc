// The whole engine on one screen: Worker::step. What each line does is below; how a worker is made and saved, in
// making.cc and saving.cc.
#include "sparsewire/worker.h"

#include <algorithm>
#include <map>

#include "core/crc32c_extend.h"
#include "core/spec.h"
#include "core/text.h"
#include "exchange/clock.h"
#include "sparsewire/codec.h"
#include "sparsewire/errors.h"
#include "transport/everyone.h"
#include "worker/parts.h"

namespace sparsewire {

const StepStats& Worker::step(Gradient gradient, std::span<float> update, const StepOptions& options) {
  Parts& p = *parts_;
  p.begin(update);
  p.sift(gradient, options);   // sparsify/  out of the memory, what is worth sending
  p.exchange_all();            // exchange/  encode, move, decode, merge: the same bits on every rank
  p.judge(gradient, options);  //            a gradient that was bad anywhere: all take the step back
  p.keep_rounding_loss();      // sparsify/  what the codec's rounding took waits in the memory
  p.observe();                 // sparsify/  RegTop-k learns what the others made of it
  p.agree();                   //            one measured threshold for all
  p.scatter(update);           //            back to dense for the optimiser
  p.account();                 //            the books of the step
  p.compare_replicas();        //            every so often
  return p.stats;
}

void Worker::Parts::begin(std::span<const float> update) const {
  if (!is_whole) throw UsageError(text("[worker] failed in step ", sifter.step(), "; make a new one"));
  if (update.size() == layout.dim()) return;
  throw UsageError(text("[worker] an update of ", update.size(), " entries does not fit a layout of ", layout.dim()));
}

Exchange& Worker::Parts::way() noexcept { return goes_dense ? *dense_exchange : *exchange; }

void Worker::Parts::sift(const Gradient& gradient, const StepOptions& options) {
  stats.ns_sift = 0;
  StageClock clock;
  const std::uint64_t step = sifter.step();
  mine = {.failed = false,
          .flags = options.flags,
          .place = crc32c_extend(identity, std::as_bytes(std::span(&step, 1))),
          .entries = 0,
          .loss = options.loss};
  try {
    sifter.sift(gradient, sent, options.lr);
    mine.entries = sent.size();
    if (goes_dense) sifter.flush(sent);
  } catch (const BadGradient& error) {
    mine.failed = true;
    mine.entries = error.index();
  }
  clock.lap(stats.ns_sift);
}

void Worker::Parts::exchange_all() {
  is_whole = false;
  verdict = way().run(sent, mine, received, total);
}

void Worker::Parts::judge(const Gradient& gradient, const StepOptions& options) {
  stats.flags = verdict.flags;
  stats.loss = verdict.loss;
  if (!verdict.failure) return;
  total.clear(layout.dim());
  if (!mine.failed) sifter.undo(gradient, sent, options.lr);
  is_whole = verdict.failure->kind == Failure::Kind::bad_gradient;
  throw_failure(*verdict.failure);
}

void Worker::Parts::throw_failure(const Failure& failure) const {
  const std::uint64_t step = sifter.step();
  switch (failure.kind) {
    case Failure::Kind::bad_gradient:
      throw BadGradient(text("[worker] the gradient of rank ", failure.rank, " is not finite at index ", failure.index,
                             " in step ", step, ", or a sum with it is not; all ranks took the step back"),
                        failure.rank, step, failure.index);
    case Failure::Kind::elsewhere:
      throw TransportError(text("[worker] rank ", failure.rank,
                                " is at another place of the program than rank 0: in another step, or it steps "
                                "another worker"),
                           failure.rank);
    default:
      const std::string why =
          failure.index == Failure::kNoMessage ? "it is no message of this version"
          : failure.index == Failure::kOtherEntries
              ? "its vector has another size"
              : text("its frame: ", describe(DecodeStatus{static_cast<std::uint8_t>(failure.index)}));
      throw TransportError(text("[worker] what rank ", failure.rank, " sent in step ", step, " cannot be read: ", why),
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
void Worker::Parts::agree() {
  Sifter* const server = exchange->server();
  for (float* const vote : {sifter.vote(), server == nullptr ? nullptr : server->vote()}) {
    if (vote == nullptr) continue;
    if (server != nullptr && vote == server->vote() && server_votes_alone) continue;
    std::vector<float> votes = everyones(transport, *vote);
    const auto middle = votes.begin() + static_cast<std::ptrdiff_t>((votes.size() - 1) / 2);
    std::nth_element(votes.begin(), middle, votes.end());
    *vote = *middle;
  }
  is_whole = true;
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
  const Ledger& ledger = sifter.ledger();
  const Traffic& traffic = way().traffic();
  stats.step = ledger.step;
  stats.entries_sent = sent.size();
  stats.entries_total = total.size();
  stats.density = layout.dim() == 0 ? 0 : static_cast<double>(total.size()) / static_cast<double>(layout.dim());
  stats.dense_bytes = layout.dim() * sizeof(float);
  stats.bytes_up = traffic.bytes_up;
  stats.bytes_down = traffic.bytes_down;
  stats.bytes_served = traffic.bytes_served;
  stats.sent_norm2 = ledger.sent_norm2;
  stats.memory_norm2 = ledger.memory_norm2;
  stats.total_error = ledger.total_error;
  stats.went_dense = goes_dense || Spec(config.exchange).name() == "dense";
  stats.ns_encode = traffic.ns_encode;
  stats.ns_exchange = traffic.ns_transport;
  stats.ns_decode = traffic.ns_decode;
  stats.ns_merge = traffic.ns_merge;
  if (!dense_exchange || !counts_vary) return;
  const double mean = static_cast<double>(verdict.entries) / transport.size();  // agreed on, so all decide alike
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
  const std::vector<std::uint32_t> checksums = everyones(transport, checksum);
  for (std::size_t r = 0; r < checksums.size(); ++r) ranks_with[checksums[r]].push_back(r);
  if (ranks_with.size() == 1) return;
  const auto most = std::max_element(ranks_with.begin(), ranks_with.end(),
                                     [](auto& a, auto& b) { return a.second.size() < b.second.size(); });
  std::string others;
  for (std::size_t r = 0; r < checksums.size(); ++r) {
    if (checksums[r] != most->first) others += text(others.empty() ? "" : ", ", r);
  }
  throw ReplicasDiffer(text("[worker] in step ", stats.step, " the update of rank ", others,
                            " differs from that of most others, such as rank ", most->second.front()));
}

const SparseVector& Worker::update() const noexcept { return parts_->total; }
const StepStats& Worker::stats() const noexcept { return parts_->stats; }
std::span<const float> Worker::memory() const noexcept { return std::as_const(parts_->sifter).memory(); }

void Worker::add_server_memory(std::span<double> owed) const {
  if (owed.size() != parts_->layout.dim()) {
    throw UsageError(text("[worker] ", owed.size(), " entries are not the ", parts_->layout.dim(), " of the model"));
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
