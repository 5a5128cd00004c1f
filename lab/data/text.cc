#include "data/text.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "data/data_file.h"
#include "sparsewire/errors.h"

namespace sparsewire::train {

TextData parse_text(std::string_view bytes, std::string_view name) {
  constexpr std::size_t kFewest = 100;  // so that no part is empty
  DataContent content(bytes, name);
  const std::string_view text = content.first(kMostDataBytes + 1);
  if (text.size() > kMostDataBytes) throw UsageError(fmt::format("'{}' unpacks to more than 2 GiB", name));
  if (text.size() < kFewest) {
    throw UsageError(fmt::format("'{}' has {} bytes: a text needs at least {}", name, text.size(), kFewest));
  }
  if (text.find('\0') != std::string_view::npos) {
    throw UsageError(fmt::format("'{}' is not a text file, it has a zero byte", name));
  }
  TextData data;
  std::array<bool, 256> occurs{};
  for (const char c : text) occurs[static_cast<std::uint8_t>(c)] = true;
  std::array<std::uint8_t, 256> symbol{};
  for (std::size_t byte = 0; byte < occurs.size(); ++byte) {
    if (!occurs[byte]) continue;
    symbol[byte] = static_cast<std::uint8_t>(data.alphabet.size());
    data.alphabet += static_cast<char>(byte);
  }
  if (data.alphabet.size() < 2) throw UsageError(fmt::format("'{}' repeats a single byte: it is no text", name));
  data.symbols.resize(text.size());
  std::transform(text.begin(), text.end(), data.symbols.begin(),
                 [&](char c) { return symbol[static_cast<std::uint8_t>(c)]; });
  data.validation_begin = text.size() * 90 / 100;
  data.test_begin = text.size() * 95 / 100;
  Fingerprint fingerprint;
  fingerprint.add(text);
  data.fingerprint = fingerprint.text();
  return data;
}

TextData read_text(const std::string& path) {
  const files::Bytes bytes = read_data_file(path);
  return parse_text(bytes.text(), path);
}

void fill_windows(std::span<const std::uint8_t> text, std::size_t length, std::span<const std::uint32_t> samples,
                  std::span<const std::uint32_t> shifts, std::span<std::int64_t> inputs,
                  std::span<std::int64_t> targets) noexcept {
  for (std::size_t row = 0; row < samples.size(); ++row) {
    const std::uint8_t* from = text.data() + std::size_t{samples[row]} * length + (shifts.empty() ? 0 : shifts[row]);
    std::copy_n(from, length, inputs.data() + row * length);
    std::copy_n(from + 1, length, targets.data() + row * length);
  }
}

}  // namespace sparsewire::train
