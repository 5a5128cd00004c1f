#include "exchange/step_trailer.h"

#include <cstring>

namespace sparsewire {
namespace {

// On the wire, little-endian, behind the frame. `kind` is 0 (no failure; `number` counts entries) or a Failure::Kind
// (`number` is Failure::index). `id` is a worker's step_id; in a server's answer, the rank that failed.
struct Fields {
  std::uint8_t kind = 0;
  std::uint8_t flags = 0;
  std::uint32_t id = 0;
  std::uint64_t number = 0;
  double loss = 0;
};
constexpr std::size_t kSize = 1 + 1 + 4 + 8 + 8;

// Each field in turn, with its size in bytes.
template <class Some, class Visit>
void for_each_field(Some& fields, Visit visit) {
  visit(&fields.kind, 1);
  visit(&fields.flags, 1);
  visit(&fields.id, 4);
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

std::optional<Fields> parse_fields(std::span<const std::byte> message) {
  if (message.size() < kSize) return std::nullopt;
  Fields fields;
  const std::byte* at = message.data() + message.size() - kSize;
  for_each_field(fields, [&](void* field, std::size_t size) {
    std::memcpy(field, at, size);
    at += size;
  });
  if (fields.kind > static_cast<std::uint8_t>(Failure::Kind::out_of_step)) return std::nullopt;
  return fields;
}

}  // namespace

void StepOutcome::fail(const Failure& another) noexcept {
  const bool is_worse =
      !failure || another.kind > failure->kind || (another.kind == failure->kind && another.rank < failure->rank);
  if (is_worse) failure = another;
}

void append(Message& message, const StepTrailer& trailer) {
  append_fields(message, {.kind = static_cast<std::uint8_t>(trailer.failed ? 1 : 0),
                          .flags = trailer.flags,
                          .id = trailer.step_id,
                          .number = trailer.entries,
                          .loss = trailer.loss});
}

std::optional<ParsedMessage> split_message(std::span<const std::byte> message) {
  const auto fields = parse_fields(message);
  if (!fields || fields->kind > 1) return std::nullopt;
  return ParsedMessage{message.first(message.size() - kSize),
                       {.failed = fields->kind != 0,
                        .flags = fields->flags,
                        .step_id = fields->id,
                        .entries = fields->number,
                        .loss = fields->loss}};
}

void append(Message& message, const StepOutcome& outcome) {
  Fields fields{.flags = outcome.flags, .number = outcome.entries, .loss = outcome.loss};
  if (outcome.failure) {
    fields.kind = static_cast<std::uint8_t>(outcome.failure->kind);
    fields.id = static_cast<std::uint32_t>(outcome.failure->rank);
    fields.number = outcome.failure->index;
  }
  append_fields(message, fields);
}

ParsedAnswer split_answer(std::span<const std::byte> message, int from) {
  StepOutcome outcome;
  const auto fields = parse_fields(message);
  if (!fields) {
    outcome.fail({Failure::Kind::unreadable, from, Failure::kNoTrailer});
    return {{}, outcome};
  }
  outcome.flags = fields->flags;
  outcome.loss = fields->loss;
  if (fields->kind == 0) {
    outcome.entries = fields->number;
  } else {
    outcome.fail({static_cast<Failure::Kind>(fields->kind), static_cast<int>(fields->id), fields->number});
  }
  return {message.first(message.size() - kSize), outcome};
}

StepOutcome parse_trailers(std::span<const Message> messages, std::span<const float> weights,
                           std::vector<std::span<const std::byte>>& frames) {
  StepOutcome outcome;
  std::optional<std::uint32_t> expected_id;  // that of rank 0: all ranks compare with it, so all find the same
  frames.clear();
  for (std::size_t r = 0; r < messages.size(); ++r) {
    const auto rank = static_cast<int>(r);
    const auto parsed = split_message(messages[r]);
    if (!parsed) {
      outcome.fail({Failure::Kind::unreadable, rank, Failure::kNoTrailer});
      continue;
    }
    const StepTrailer& trailer = parsed->trailer;
    if (!expected_id) expected_id = trailer.step_id;
    if (trailer.step_id != *expected_id) outcome.fail({Failure::Kind::out_of_step, rank, 0});
    if (trailer.failed) outcome.fail({Failure::Kind::bad_gradient, rank, trailer.entries});
    if (!trailer.failed) outcome.entries += trailer.entries;
    outcome.flags |= trailer.flags;
    outcome.loss += static_cast<double>(weights[r]) * trailer.loss;
    frames.push_back(parsed->frame);
  }
  return outcome;
}

}  // namespace sparsewire
