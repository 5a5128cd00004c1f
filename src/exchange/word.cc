#include "exchange/word.h"

#include <cstring>

namespace sparsewire {
namespace {

// On the wire, little-endian, behind the frame. A kind is 0 (all is well; the number counts entries), or of a failure
// (the number is its index). Of a word `place` is its place, of a verdict the rank whose failure it is.
struct Fields {
  std::uint8_t kind = 0;
  std::uint8_t flags = 0;
  std::uint32_t place = 0;
  std::uint64_t number = 0;
  double loss = 0;
};
constexpr std::size_t kSize = 1 + 1 + 4 + 8 + 8;

// Each field in turn, with its bytes.
template <class Some, class Visit>
void for_each_field(Some& fields, Visit visit) {
  visit(&fields.kind, 1);
  visit(&fields.flags, 1);
  visit(&fields.place, 4);
  visit(&fields.number, 8);
  visit(&fields.loss, 8);
}

void append_fields(Message& message, const Fields& fields) {
  std::size_t at = message.size();
  message.resize(at + kSize);
  for_each_field(fields, [&](const void* field, std::size_t size) {
    std::memcpy(message.data() + at, field, size);
    at += size;
  });
}

std::optional<Fields> take_fields(std::span<const std::byte> message) {
  if (message.size() < kSize) return std::nullopt;
  Fields fields;
  const std::byte* at = message.data() + message.size() - kSize;
  for_each_field(fields, [&](void* field, std::size_t size) {
    std::memcpy(field, at, size);
    at += size;
  });
  if (fields.kind > static_cast<std::uint8_t>(Failure::Kind::elsewhere)) return std::nullopt;
  return fields;
}

}  // namespace

void Verdict::fail(const Failure& another) noexcept {
  const bool is_worse =
      !failure || another.kind > failure->kind || (another.kind == failure->kind && another.rank < failure->rank);
  if (is_worse) failure = another;
}

void append(Message& message, const Word& word) {
  append_fields(message, {.kind = static_cast<std::uint8_t>(word.failed ? 1 : 0),
                          .flags = word.flags,
                          .place = word.place,
                          .number = word.entries,
                          .loss = word.loss});
}

std::optional<Heard> take_apart(std::span<const std::byte> message) {
  const auto fields = take_fields(message);
  if (!fields || fields->kind > 1) return std::nullopt;
  return Heard{message.first(message.size() - kSize),
               {.failed = fields->kind != 0,
                .flags = fields->flags,
                .place = fields->place,
                .entries = fields->number,
                .loss = fields->loss}};
}

void append(Message& message, const Verdict& verdict) {
  Fields fields{.flags = verdict.flags, .number = verdict.entries, .loss = verdict.loss};
  if (verdict.failure) {
    fields.kind = static_cast<std::uint8_t>(verdict.failure->kind);
    fields.place = static_cast<std::uint32_t>(verdict.failure->rank);
    fields.number = verdict.failure->index;
  }
  append_fields(message, fields);
}

HeardVerdict take_verdict_apart(std::span<const std::byte> message, int from) {
  Verdict verdict;
  const auto fields = take_fields(message);
  if (!fields) {
    verdict.fail({Failure::Kind::unreadable, from, Failure::kNoMessage});
    return {{}, verdict};
  }
  verdict.flags = fields->flags;
  verdict.loss = fields->loss;
  if (fields->kind == 0) {
    verdict.entries = fields->number;
  } else {
    verdict.fail({static_cast<Failure::Kind>(fields->kind), static_cast<int>(fields->place), fields->number});
  }
  return {message.first(message.size() - kSize), verdict};
}

Verdict hear_all(std::span<const Message> messages, std::span<const float> weights,
                 std::vector<std::span<const std::byte>>& frames) {
  Verdict verdict;
  std::optional<std::uint32_t> place;  // of rank 0: all compare with that, so all find the same
  frames.clear();
  for (std::size_t r = 0; r < messages.size(); ++r) {
    const auto rank = static_cast<int>(r);
    const auto heard = take_apart(messages[r]);
    if (!heard) {
      verdict.fail({Failure::Kind::unreadable, rank, Failure::kNoMessage});
      continue;
    }
    const Word& word = heard->word;
    if (!place) place = word.place;
    if (word.place != *place) verdict.fail({Failure::Kind::elsewhere, rank, 0});
    if (word.failed) verdict.fail({Failure::Kind::bad_gradient, rank, word.entries});
    if (!word.failed) verdict.entries += word.entries;
    verdict.flags |= word.flags;
    verdict.loss += static_cast<double>(weights[r]) * word.loss;
    frames.push_back(heard->frame);
  }
  return verdict;
}

}  // namespace sparsewire
