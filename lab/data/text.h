// Text for language models, one symbol for each character.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/part.h"

namespace sparsewire::train {

// The three parts follow one another in the text: 90 % for training, 5 % for validation, 5 % for testing.
struct TextData {
  std::string alphabet;               // every byte that occurs, ascending; symbol s stands for alphabet[s]
  std::vector<std::uint8_t> symbols;  // of the whole text
  std::size_t validation_begin = 0;   // where the training part ends
  std::size_t test_begin = 0;         // where the validation part ends
  std::string fingerprint;            // of the text: "1115394 bytes, CRC-32C 0badcafe"

  std::span<const std::uint8_t> part(Part part) const noexcept {
    const std::span<const std::uint8_t> all(symbols);
    if (part == Part::train) return all.first(validation_begin);
    if (part == Part::validation) return all.subspan(validation_begin, test_begin - validation_begin);
    return all.subspan(test_begin);
  }
};

// Reads a file, which may be compressed with gzip. Characters are bytes. Throws UsageError, also if a part would be
// empty or if the file has fewer than two different bytes or a zero byte, which no text has.
TextData read_text(const std::string& path);
// The same of bytes that were read; `name` is for messages.
TextData parse_text(std::string_view bytes, std::string_view name);

// A text as samples, for Batches: sample i has inputs text[i*length] ... text[i*length + length - 1], and its targets
// are the same, one symbol further on. The samples do not overlap.
inline std::size_t windows(std::size_t symbols, std::size_t length) noexcept {
  return symbols == 0 ? 0 : (symbols - 1) / length;
}
// Writes the inputs and the targets of these samples, row by row. Row i begins `shifts[i]` symbols later; no shifts:
// all begin where they begin. REQUIRES: room for samples.size() * length in each; a sample that is shifted is not the
// last, and by less than `length`.
void fill_windows(std::span<const std::uint8_t> text, std::size_t length, std::span<const std::uint32_t> samples,
                  std::span<const std::uint32_t> shifts, std::span<std::int64_t> inputs,
                  std::span<std::int64_t> targets) noexcept;

}  // namespace sparsewire::train
