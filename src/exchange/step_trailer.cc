#include "exchange/step_trailer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "sparsewire/support/crc32c.h"

namespace sparsewire {
namespace {

constexpr std::uint32_t kMagic = 0x54535753;  // "SWST"
constexpr std::uint8_t kVersion = 2;
enum class Sender : std::uint8_t { worker = 1, server = 2 };

// The numbers of a trailer on the wire, little-endian. The text of a cause is in front of them, the frame in front of
// that. The checksum is over all that is behind the frame, and comes last.
struct Fields {
  std::uint32_t magic = kMagic;
  std::uint8_t version = kVersion;
  std::uint8_t sender = 0;
  std::uint8_t kind = 0;  // 0: no failure
  std::uint8_t flags = 0;
  std::uint32_t fingerprint = 0;
  std::uint16_t rank = 0;  // of the sender; in an answer, the rank that failed
  std::uint8_t text_size = 0;
  std::uint8_t is_weight_of_step = 0;
  std::uint64_t step = 0;
  std::uint64_t number = 0;  // of entries; after a failure, Failure::index
  double loss = 0;
  float lr = 0;
  float weight = 0;
};
constexpr std::size_t kChecksumSize = 4;

// Each field in turn, with its size in bytes.
template <class Some, class Visit>
void for_each_field(Some& fields, Visit visit) {
  visit(&fields.magic, 4);
  visit(&fields.version, 1);
  visit(&fields.sender, 1);
  visit(&fields.kind, 1);
  visit(&fields.flags, 1);
  visit(&fields.fingerprint, 4);
  visit(&fields.rank, 2);
  visit(&fields.text_size, 1);
  visit(&fields.is_weight_of_step, 1);
  visit(&fields.step, 8);
  visit(&fields.number, 8);
  visit(&fields.loss, 8);
  visit(&fields.lr, 4);
  visit(&fields.weight, 4);
}

void append_fields(Message& message, Fields fields, const std::optional<Failure>& failure) {
  const std::string_view text = failure ? failure->cause.text() : std::string_view();
  if (failure) {
    fields.kind = static_cast<std::uint8_t>(failure->kind);
    fields.rank = static_cast<std::uint16_t>(failure->rank);
    fields.number = failure->index;
    fields.text_size = static_cast<std::uint8_t>(text.size());
  }
  const std::size_t begin = message.size();
  message.resize(begin + text.size() + kTrailerSize);
  std::byte* at = message.data() + begin;
  if (!text.empty()) std::memcpy(at, text.data(), text.size());
  at += text.size();
  for_each_field(fields, [&](const void* field, std::size_t size) {
    std::memcpy(at, field, size);
    at += size;
  });
  const std::uint32_t checksum =
      crc32c(std::span<const std::byte>(message).subspan(begin, text.size() + kTrailerSize - kChecksumSize));
  std::memcpy(at, &checksum, kChecksumSize);
}

struct Parsed {
  std::span<const std::byte> frame;
  Fields fields;
  std::optional<Failure> failure;
};

// Nothing unless the message ends with a trailer of this version from this kind of sender.
std::optional<Parsed> parse(std::span<const std::byte> message, Sender sender, Failure::Kind worst) {
  if (message.size() < kTrailerSize) return std::nullopt;
  Parsed parsed;
  Fields& fields = parsed.fields;
  const std::byte* at = message.data() + message.size() - kTrailerSize;
  for_each_field(fields, [&](void* field, std::size_t size) {
    std::memcpy(field, at, size);
    at += size;
  });
  std::uint32_t checksum = 0;
  std::memcpy(&checksum, at, kChecksumSize);
  const std::size_t room = message.size() - kTrailerSize;  // for the frame and the text
  if (fields.magic != kMagic || fields.version != kVersion || fields.text_size > std::min(room, Cause::kMostBytes)) {
    return std::nullopt;
  }
  const std::size_t begin = room - fields.text_size;
  if (crc32c(message.subspan(begin, message.size() - begin - kChecksumSize)) != checksum) return std::nullopt;
  // Where there is no failure there is no text, and where there is one there is no frame.
  const bool fits = fields.kind == 0 ? fields.text_size == 0 : begin == 0;
  if (!fits || fields.sender != static_cast<std::uint8_t>(sender) || fields.kind > static_cast<std::uint8_t>(worst)) {
    return std::nullopt;
  }
  parsed.frame = message.first(begin);
  if (fields.kind != 0) {
    const Cause cause({reinterpret_cast<const char*>(message.data()), fields.text_size});
    parsed.failure = {static_cast<Failure::Kind>(fields.kind), static_cast<int>(fields.rank), fields.number, cause};
  }
  return parsed;
}

// Shares of the weights in the trailers, added in rank order, where a rank has one of its own; zeros if nobody counts.
void find_shares(std::span<const Message> messages, std::span<float> shares) {
  const auto sum_of = [&](auto number_of) {
    double sum = 0;
    for (const Message& message : messages) {
      if (const auto parsed = split_message(message)) sum += number_of(parsed->trailer);
    }
    return sum;
  };
  if (sum_of([](const StepTrailer& trailer) { return trailer.is_weight_of_step ? 1.0 : 0.0; }) == 0) return;
  const double sum = sum_of([](const StepTrailer& trailer) { return static_cast<double>(trailer.weight); });
  for (std::size_t r = 0; r < messages.size(); ++r) {
    const auto parsed = split_message(messages[r]);
    const bool counts = parsed && sum != 0;
    shares[r] = counts ? static_cast<float>(static_cast<double>(parsed->trailer.weight) / sum) : 0;
  }
}

}  // namespace

Cause::Cause(std::string_view text) noexcept {
  std::size_t size = std::min(text.size(), kMostBytes);
  const auto continues = [&](std::size_t i) { return (static_cast<unsigned char>(text[i]) & 0xC0U) == 0x80U; };
  if (size < text.size()) {
    while (size > 0 && continues(size)) --size;  // not in the middle of a UTF-8 character
  }
  std::copy_n(text.data(), size, bytes_.data());
  size_ = static_cast<std::uint8_t>(size);
}

void StepOutcome::fail(const Failure& another) noexcept {
  const bool is_worse =
      !failure || another.kind > failure->kind || (another.kind == failure->kind && another.rank < failure->rank);
  if (is_worse) failure = another;
}

void append(Message& message, const StepTrailer& trailer) {
  Fields fields;
  fields.sender = static_cast<std::uint8_t>(Sender::worker);
  fields.flags = trailer.flags;
  fields.fingerprint = trailer.fingerprint;
  fields.rank = static_cast<std::uint16_t>(trailer.rank);
  fields.step = trailer.step;
  fields.number = trailer.entries;
  fields.loss = trailer.loss;
  fields.weight = trailer.weight;
  fields.is_weight_of_step = trailer.is_weight_of_step ? 1 : 0;
  fields.lr = trailer.lr;
  append_fields(message, fields, trailer.failure);
}

void append(Message& message, const StepOutcome& outcome, const StepTrailer& own) {
  Fields fields;
  fields.sender = static_cast<std::uint8_t>(Sender::server);
  fields.flags = outcome.flags;
  fields.fingerprint = own.fingerprint;
  fields.step = own.step;
  fields.number = outcome.entries;
  fields.loss = outcome.loss;
  fields.lr = outcome.lr;
  append_fields(message, fields, outcome.failure);
}

std::optional<ParsedMessage> split_message(std::span<const std::byte> message) {
  const auto parsed = parse(message, Sender::worker, Failure::Kind::error);
  if (!parsed) return std::nullopt;
  const Fields& fields = parsed->fields;
  if (!std::isfinite(fields.weight) || fields.weight < 0 || fields.is_weight_of_step > 1) return std::nullopt;
  return ParsedMessage{parsed->frame,
                       {.rank = static_cast<int>(fields.rank),
                        .fingerprint = fields.fingerprint,
                        .step = fields.step,
                        .weight = fields.weight,
                        .is_weight_of_step = fields.is_weight_of_step == 1,
                        .lr = fields.lr,
                        .flags = fields.flags,
                        .loss = fields.loss,
                        .entries = parsed->failure ? 0 : fields.number,
                        .failure = parsed->failure}};
}

ParsedAnswer split_answer(std::span<const std::byte> message, int from, const StepTrailer& own) {
  const auto parsed = parse(message, Sender::server, Failure::Kind::out_of_step);
  ParsedAnswer answer;
  if (!parsed) {
    answer.outcome.fail({Failure::Kind::unreadable, from, Failure::kNoTrailer, {}, true});
    return answer;
  }
  const Fields& fields = parsed->fields;
  answer.frame = parsed->frame;
  answer.outcome = {parsed->failure, fields.flags, parsed->failure ? 0 : fields.number, fields.loss, fields.lr};
  const bool is_ours = fields.fingerprint == own.fingerprint && fields.step == own.step;
  if (!answer.outcome.failure && !is_ours) answer.outcome.fail({Failure::Kind::out_of_step, from, fields.step});
  return answer;
}

StepOutcome parse_trailers(std::span<const Message> messages, std::span<const float> weights,
                           std::vector<float>& shares, std::vector<std::span<const std::byte>>& frames) {
  shares.assign(weights.begin(), weights.end());
  find_shares(messages, shares);
  StepOutcome outcome;
  double mean_lr = 0;
  bool same_lr = true;
  std::optional<StepTrailer> first;  // that of rank 0: all ranks compare with it, so all find the same
  frames.assign(messages.size(), {});
  for (std::size_t r = 0; r < messages.size(); ++r) {
    const auto rank = static_cast<int>(r);
    const auto parsed = split_message(messages[r]);
    if (!parsed || parsed->trailer.rank != rank) {
      outcome.fail({Failure::Kind::unreadable, rank, Failure::kNoTrailer, {}, true});
      continue;
    }
    const StepTrailer& trailer = parsed->trailer;
    if (!first) first = trailer;
    if (trailer.fingerprint != first->fingerprint || trailer.step != first->step) {
      outcome.fail({Failure::Kind::out_of_step, rank, trailer.step});
    }
    if (trailer.failure) outcome.fail(*trailer.failure);
    outcome.entries += trailer.entries;
    outcome.flags |= trailer.flags;
    outcome.loss += static_cast<double>(shares[r]) * trailer.loss;
    mean_lr += static_cast<double>(shares[r]) * std::abs(static_cast<double>(trailer.lr));
    same_lr = same_lr && trailer.lr == first->lr;
    frames[r] = parsed->frame;
  }
  if (first) outcome.lr = same_lr ? first->lr : static_cast<float>(mean_lr);
  return outcome;
}

}  // namespace sparsewire
