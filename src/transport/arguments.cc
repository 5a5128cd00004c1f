#include "transport/arguments.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "sparsewire/errors.h"

namespace sparsewire {
namespace {

constexpr std::size_t kCauseBytes = 1000;

void check_rank(const char* call, const char* what, int rank, int size) {
  if (rank >= 0 && rank < size) return;
  throw UsageError(fmt::format("[transport] {}: {} {} is not in [0, {})", call, what, rank, size));
}

// Throws if two messages have the same rank. `direction`: "to" or "from".
template <class Messages>
void check_one_per_rank(const Messages& messages, const char* direction) {
  // The collectives list ranks in ascending order, which costs nothing to check.
  const auto is_not_below = [](const auto& a, const auto& b) { return a.rank >= b.rank; };
  if (std::adjacent_find(messages.begin(), messages.end(), is_not_below) == messages.end()) return;
  std::vector<int> ranks;
  for (const auto& message : messages) ranks.push_back(message.rank);
  std::sort(ranks.begin(), ranks.end());
  const auto twice = std::adjacent_find(ranks.begin(), ranks.end());
  if (twice == ranks.end()) return;
  throw UsageError(
      fmt::format("[transport] send_receive: two messages {} rank {}, at most one is allowed", direction, *twice));
}

}  // namespace

void check_root(const char* call, int root, int size) { check_rank(call, "root", root, size); }

void check_message_count(std::size_t count, int size) {
  if (count == static_cast<std::size_t>(size)) return;
  throw UsageError(
      fmt::format("[transport] all_to_all: {} messages for {} ranks, there must be one for each rank", count, size));
}

void check_messages(int rank, int size, std::span<const Transport::Outgoing> out,
                    std::span<const Transport::Incoming> in) {
  bool sends_to_itself = false;
  bool receives_from_itself = false;
  for (const Transport::Outgoing& message : out) {
    check_rank("send_receive", "destination", message.rank, size);
    sends_to_itself |= message.rank == rank;
  }
  for (const Transport::Incoming& message : in) {
    check_rank("send_receive", "source", message.rank, size);
    receives_from_itself |= message.rank == rank;
    if (message.bytes != nullptr) continue;
    throw UsageError(
        fmt::format("[transport] send_receive: no buffer for the message from rank {}, `bytes` is null", message.rank));
  }
  check_one_per_rank(out, "to");
  check_one_per_rank(in, "from");
  if (sends_to_itself == receives_from_itself) return;
  throw UsageError(fmt::format("[transport] send_receive: rank {} {}", rank,
                               sends_to_itself ? "sends to itself but does not receive from itself"
                                               : "receives from itself but does not send to itself"));
}

void check_numbers(const WritableNumbers& numbers) {
  if (numbers.type != NumberType::f32 && numbers.type != NumberType::bf16) {
    throw UsageError("[transport] all_reduce_sum: numbers of this type cannot be added, take f32 or bf16");
  }
  if (numbers.data == nullptr && numbers.size != 0) {
    throw UsageError(fmt::format("[transport] all_reduce_sum: `data` is null, but there are {} numbers", numbers.size));
  }
}

std::string failure_text(int rank, std::string_view why) {
  return fmt::format("rank {} failed: {}", rank, why.substr(0, kCauseBytes));
}

}  // namespace sparsewire
