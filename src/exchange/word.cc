#include "exchange/word.h"

#include <cstring>

#include "core/text.h"
#include "sparsewire/errors.h"

namespace sparsewire {
namespace {

// On the wire, little-endian: kind u8, flags u8, rank u32, number u64, behind the frame. A kind is 0 (all is well; the
// number counts entries) or 1 (failed; the number is an index, and of a verdict the rank says whose).
constexpr std::size_t kSize = 1 + 1 + 4 + 8;

void append_fields(Message& message, bool failed, std::uint8_t flags, std::uint32_t rank, std::uint64_t number) {
  const std::size_t at = message.size();
  message.resize(at + kSize);
  std::byte* const to = message.data() + at;
  to[0] = static_cast<std::byte>(failed ? 1 : 0);
  to[1] = static_cast<std::byte>(flags);
  std::memcpy(to + 2, &rank, 4);
  std::memcpy(to + 6, &number, 8);
}

struct Fields {
  std::span<const std::byte> frame;
  bool failed;
  std::uint8_t flags;
  std::uint32_t rank;
  std::uint64_t number;
};

Fields take_fields(std::span<const std::byte> message, int from) {
  if (message.size() < kSize || std::to_integer<int>(message[message.size() - kSize]) > 1) {
    throw TransportError(text("rank ", from, " sent ", message.size(), " bytes that are no message of this version"),
                         from);
  }
  const std::byte* const at = message.data() + message.size() - kSize;
  Fields fields{.frame = message.first(message.size() - kSize),
                .failed = at[0] != std::byte{0},
                .flags = std::to_integer<std::uint8_t>(at[1]),
                .rank = 0,
                .number = 0};
  std::memcpy(&fields.rank, at + 2, 4);
  std::memcpy(&fields.number, at + 6, 8);
  return fields;
}

}  // namespace

void Verdict::hear(int rank, const Word& word) noexcept {
  flags |= word.flags;
  if (!word.failed) {
    entries += word.entries;
  } else if (!failure || rank < failure->rank) {
    failure = Failure{rank, word.entries};
  }
}

void append(Message& message, const Word& word) { append_fields(message, word.failed, word.flags, 0, word.entries); }

Heard take_apart(std::span<const std::byte> message, int from) {
  const Fields fields = take_fields(message, from);
  return {fields.frame, {.failed = fields.failed, .flags = fields.flags, .entries = fields.number}};
}

void append(Message& message, const Verdict& verdict) {
  const bool failed = verdict.failure.has_value();
  append_fields(message, failed, verdict.flags, failed ? static_cast<std::uint32_t>(verdict.failure->rank) : 0,
                failed ? verdict.failure->index : verdict.entries);
}

HeardVerdict take_verdict_apart(std::span<const std::byte> message, int from) {
  const Fields fields = take_fields(message, from);
  Verdict verdict{.failure = std::nullopt, .flags = fields.flags, .entries = fields.failed ? 0 : fields.number};
  if (fields.failed) verdict.failure = Verdict::Failure{static_cast<int>(fields.rank), fields.number};
  return {fields.frame, verdict};
}

}  // namespace sparsewire
