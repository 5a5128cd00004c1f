// Fuzzes split_message() and split_answer(). Any bytes are refused, or come back when they are written again.
//
// The checksum would stop almost every mutation, so the bytes are tried a second time with a correct checksum: of
// everything, which is right where there is no frame, and of the last bytes alone, which is right where there is no
// cause.
#include <algorithm>
#include <vector>

#include "exchange/step_trailer.h"
#include "reference/wire.h"
#include "require.h"

namespace sparsewire {
namespace {

void check(const Message& bytes) {
  if (const auto parsed = split_message(bytes)) {
    Message again(parsed->frame.begin(), parsed->frame.end());
    append(again, parsed->trailer);
    require(again == bytes, "a worker's message comes back");
  }
  // An answer is compared with the step of the reader, so it is read once more with its own: they are at fixed places.
  StepTrailer own;
  if (bytes.size() >= kTrailerSize) {
    const std::byte* const trailer = bytes.data() + bytes.size() - kTrailerSize;
    std::copy_n(trailer + 8, 4, reinterpret_cast<std::byte*>(&own.fingerprint));
    std::copy_n(trailer + 16, 8, reinterpret_cast<std::byte*>(&own.step));
  }
  const ParsedAnswer answer = split_answer(bytes, 1, own);
  require(answer.frame.empty() || !answer.outcome.failure, "a failure has no frame");
  Message again(answer.frame.begin(), answer.frame.end());
  append(again, answer.outcome, own);
  const ParsedAnswer second = split_answer(again, 1, own);
  require(second.outcome.failure.has_value() == answer.outcome.failure.has_value(), "an answer comes back");
  require(second.outcome.flags == answer.outcome.flags && second.outcome.entries == answer.outcome.entries,
          "an answer's flags and entries come back");
  require(second.frame.size() == answer.frame.size(), "an answer's frame comes back");
}

}  // namespace
}  // namespace sparsewire

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sparsewire;
  const auto bytes = std::as_bytes(std::span(data, size));
  const Message message(bytes.begin(), bytes.end());
  check(message);
  check(reference::with_checksum(message));
  if (size < kTrailerSize) return 0;
  const auto middle = message.end() - static_cast<std::ptrdiff_t>(kTrailerSize);
  Message behind_a_frame(message.begin(), middle);
  const Message trailer = reference::with_checksum(Message(middle, message.end()));
  behind_a_frame.insert(behind_a_frame.end(), trailer.begin(), trailer.end());
  check(behind_a_frame);
  return 0;
}
