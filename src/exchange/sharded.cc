// Every rank is the server of a region: entries go to their owners, and the owners' answers to all ranks. With a
// downlink each rank moves 2k(P-1)/P entries, however large P is. A rank is the owner of a part of its own entries,
// too: these are rounded as a frame would round them, and not encoded. So a rank that is alone makes no frames.
//
// The regions are those of Li et al., Near-optimal sparse allreduce (Ok-Topk), 2022; the server's memory is that of Zou
// et al., 2022.
#include "core/slices.h"
#include "exchange/aggregator.h"
#include "exchange/clock.h"
#include "exchange/messages.h"
#include "exchange/regions.h"

namespace sparsewire {
namespace {

class ShardedExchange final : public Exchange {
 public:
  ShardedExchange(const ExchangePlan& plan, Transport& transport)
      : plan_(plan),
        transport_(transport),
        regions_(plan.dim, transport.size(), plan.config.pool),
        rounding_(plan.config.codec),
        aggregator_(plan,
                    {.region = transport.rank(), .regions = transport.size(), .dim = regions_.size(transport.rank())}),
        reader_(plan.config.pool, transport.size()),
        model_(plan.config.pool),
        to_(static_cast<std::size_t>(transport.size())),
        answered_(to_.size()) {
    const int threads = plan.config.pool == nullptr ? 1 : plan.config.pool->size();
    for (int t = 0; t < threads; ++t) codecs_.emplace_back(plan.config.codec);
    for (Message& message : to_) message.reserve(kMostTrailerSize);
    answer_.reserve(kMostTrailerSize);
  }

  StepOutcome run(const SparseVector& sent, const StepTrailer& trailer, std::vector<float>& received,
                  SparseVector& total) override {
    traffic_ = {};
    thrown_ = nullptr;
    clock_ = {};
    encode(sent, trailer, received);
    clock_.lap(traffic_.ns_encode);
    transport_.all_to_all(to_, from_);
    keep_room(from_);
    clock_.lap(traffic_.ns_transport);

    const StepOutcome read = parse_trailers(from_, plan_.weights, shares_, frames_);
    serve(read, trailer);
    transport_.all_gather(answer_, answers_);
    keep_room(answers_);
    clock_.lap(traffic_.ns_transport);

    // If one region failed, all ranks fail, and the other regions take their answers back. Only what the answers say
    // counts, so that all ranks find the same failure.
    StepOutcome outcome = read;
    outcome.failure.reset();
    for (int r = 0; r < transport_.size(); ++r) {
      const ParsedAnswer answer = split_answer(answers_[as_index(r)], r, trailer);
      if (answer.outcome.failure) outcome.fail(*answer.outcome.failure);
      frames_[as_index(r)] = answer.frame;
    }
    if (outcome.failure) {
      aggregator_.undo();
      return outcome;
    }
    aggregator_.finish();
    outcome.failure = collect(total);
    traffic_.trailers_up = traffic_.trailers_down = static_cast<std::uint64_t>(transport_.size() - 1);
    traffic_.trailers_served = 2 * traffic_.trailers_up;
    return outcome;
  }

  void take_back() override { aggregator_.undo(); }
  Sifter* server() noexcept override { return aggregator_.sifter(); }
  bool has_many_servers() const noexcept override { return true; }
  std::uint32_t served_index(std::uint32_t local) const noexcept override {
    return regions_.global(transport_.rank(), local);
  }

 private:
  static std::size_t as_index(int rank) { return static_cast<std::size_t>(rank); }
  std::size_t own() const { return as_index(transport_.rank()); }
  bool is_alone() const { return transport_.size() == 1; }

  // Writes a message to the owner of each region. `received` becomes the rounded values, in the order of `sent`.
  void encode(const SparseVector& sent, const StepTrailer& trailer, std::vector<float>& received) {
    received.clear();
    if (trailer.failure) return write_trailers(trailer);
    try {
      encode_parts(sent, received);
      for (Message& message : to_) append(message, trailer);
    } catch (const std::exception& error) {
      thrown_ = std::current_exception();
      received.clear();
      StepTrailer failed = trailer;
      failed.failure = failure_of(trailer.rank, error);
      write_trailers(failed);
    }
  }

  void encode_parts(const SparseVector& sent, std::vector<float>& received) {
    regions_.split(sent, parts_);
    rounded_.resize(parts_.size());
    const bool rounds = codecs_[0].rounds();
    for_each_item(plan_.config.pool, parts_.size(), [&](std::size_t r, std::size_t thread) {
      if (r == own()) {
        to_[r].clear();
        rounding_.round(parts_[r], rounded_[r]);
      } else {
        codecs_[thread].encode(parts_[r], to_[r], rounds ? &rounded_[r] : nullptr);
      }
    });
    for (const Message& message : to_) traffic_.bytes_up += message.size();
    if (rounds) regions_.join(rounded_, received);
  }

  // Messages without frames.
  void write_trailers(const StepTrailer& trailer) {
    for (Message& message : to_) {
      message.clear();
      append(message, trailer);
    }
  }

  // Writes the answer of this rank's region.
  void serve(const StepOutcome& read, const StepTrailer& own) {
    StepOutcome outcome = read;
    answer_.clear();
    aggregator_.begin();
    try {
      if (!outcome.failure) aggregate(outcome);
    } catch (const std::exception& error) {
      thrown_ = std::current_exception();
      outcome.fail(failure_of(transport_.rank(), error));
    }
    if (outcome.failure) answer_.clear();
    traffic_.bytes_served += answer_.size() * static_cast<std::size_t>(transport_.size() - 1);
    append(answer_, outcome, own);
    clock_.lap(traffic_.ns_merge);
  }

  void aggregate(StepOutcome& outcome) {
    const std::span<SparseVector> inputs = aggregator_.inputs();
    std::swap(inputs[own()], parts_[own()]);
    if (codecs_[0].rounds()) inputs[own()].values.swap(rounded_[own()]);
    const std::uint64_t dim = regions_.size(transport_.rank());
    const auto failure = reader_.decode(
        frames_, transport_.rank(), [&](int) { return dim; }, inputs);
    if (failure) return outcome.fail(*failure);
    for (const auto& frame : frames_) traffic_.bytes_served += frame.size();
    clock_.lap(traffic_.ns_decode);
    const auto bad = aggregator_.choose(shares_, outcome.lr);
    clock_.lap(traffic_.ns_merge);
    if (bad) {
      outcome.fail({.rank = transport_.rank(), .index = served_index(static_cast<std::uint32_t>(*bad))});
    } else if (is_alone()) {
      aggregator_.round();
    } else {
      aggregator_.encode(answer_);
    }
    make_room_for_trailer(answer_);
    clock_.lap(traffic_.ns_encode);
  }

  // Makes one vector of the answers of all regions. The regions are disjoint, so this only sorts the entries.
  std::optional<Failure> collect(SparseVector& total) {
    if (is_alone()) aggregator_.read_answer(answered_[0]);
    const int left_out = is_alone() ? transport_.rank() : -1;
    const auto failure = reader_.decode(
        frames_, left_out, [&](int r) { return regions_.size(r); }, answered_);
    if (failure) return failure;
    for (int r = 0; r < transport_.size(); ++r) {
      if (r != transport_.rank()) traffic_.bytes_down += frames_[as_index(r)].size();
    }
    clock_.lap(traffic_.ns_decode);
    if (!is_alone() && regions_.are_full(answered_)) {
      regions_.unite_full(answered_, total);
    } else {
      for_each_item(plan_.config.pool, answered_.size(),
                    [&](std::size_t r, std::size_t) { regions_.make_global(static_cast<int>(r), answered_[r]); });
      model_.unite(plan_.dim, answered_, total);
    }
    clock_.lap(traffic_.ns_merge);
    return std::nullopt;
  }

  const ExchangePlan plan_;
  Transport& transport_;
  Regions regions_;
  std::vector<Codec> codecs_;  // one for each thread
  Rounding rounding_;          // that of the codecs, for this rank's own part
  Aggregator aggregator_;
  FrameReader reader_;
  Merger model_;
  StageClock clock_;
  std::vector<SparseVector> parts_;
  std::vector<std::vector<float>> rounded_;
  std::vector<Message> to_;
  std::vector<Message> from_;
  std::vector<float> shares_;                       // of all ranks in the sum
  std::vector<std::span<const std::byte>> frames_;  // of the messages that were received last
  Message answer_;
  std::vector<Message> answers_;
  std::vector<SparseVector> answered_;  // the answers of all regions
};

}  // namespace

std::unique_ptr<Exchange> make_sharded_exchange(Spec& /*spec*/, const ExchangePlan& plan, Transport& transport) {
  return std::make_unique<ShardedExchange>(plan, transport);
}

}  // namespace sparsewire
