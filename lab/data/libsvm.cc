#include "data/libsvm.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "data/data_file.h"
#include "data/gzip.h"
#include "files/input.h"
#include "sparsewire/errors.h"

namespace sparsewire::train {
namespace {

// A token for a message: short and printable, whatever bytes the file holds.
std::string shown(std::string_view token) {
  constexpr std::size_t kLongest = 40;
  std::string out;
  for (const char c : token.substr(0, kLongest)) out += c >= ' ' && c <= '~' ? c : '?';
  return token.size() > kLongest ? out + "..." : out;
}

// A number that fills the whole token; it may be nan or inf.
std::optional<double> any_number_of(std::string_view token) {
  // from_chars takes no plus sign.
  if (token.size() > 1 && token[0] == '+' && token[1] != '-' && token[1] != '+') token.remove_prefix(1);
  double number = 0;
  const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), number);
  if (error != std::errc() || end != token.data() + token.size()) return std::nullopt;
  return number;
}

// The same if it is finite.
std::optional<double> number_of(std::string_view token) {
  const std::optional<double> number = any_number_of(token);
  return number && std::isfinite(*number) ? number : std::nullopt;
}

// WritableNumbers before words, equal numbers are one: (is a word, number, word).
using LabelKey = std::tuple<bool, double, std::string>;

LabelKey key_of(std::string_view label) {
  const std::optional<double> number = number_of(label);
  // Adding 0 makes one label of 0 and -0.
  return number ? LabelKey(false, *number + 0.0, "") : LabelKey(true, 0, label);
}

class Parser {
 public:
  Parser(std::string_view text, std::string_view name) : rest_(text), name_(name) {}

  LabelledRows parse() {
    constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
    if (rest_.starts_with(kByteOrderMark)) rest_.remove_prefix(kByteOrderMark.size());
    while (!rest_.empty()) {
      ++line_number_;
      parse_line(next_line());
    }
    sort_labels();
    return std::move(out_);
  }

 private:
  std::string_view next_line() {
    const std::size_t end = rest_.find('\n');
    std::string_view line = rest_.substr(0, end);
    rest_ = end == std::string_view::npos ? std::string_view() : rest_.substr(end + 1);
    line = line.substr(0, line.find('#'));
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    return line;
  }

  // The next word of the line; empty at its end.
  static std::string_view next_token(std::string_view& line) {
    constexpr std::string_view kBlank = " \t";
    line.remove_prefix(std::min(line.find_first_not_of(kBlank), line.size()));
    const std::string_view token = line.substr(0, line.find_first_of(kBlank));
    line.remove_prefix(token.size());
    return token;
  }

  void parse_line(std::string_view line) {
    const std::string_view label = next_token(line);
    if (label.empty()) return;
    add_label(label);
    std::uint32_t last = 0;
    for (std::string_view token = next_token(line); !token.empty(); token = next_token(line)) {
      last = add_entry(token, last);
    }
    out_.rows.begin.push_back(out_.rows.index.size());
  }

  void add_label(std::string_view label) {
    if (label.find(':') != std::string_view::npos)
      fail(fmt::format("'{}' stands where a label is expected", shown(label)));
    if (std::any_of(label.begin(), label.end(),
                    [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7F'; })) {
      fail(fmt::format("the label '{}' has control characters in it", shown(label)));
    }
    const std::optional<double> number = any_number_of(label);
    if (number && !std::isfinite(*number)) fail(fmt::format("the label '{}' is not a finite number", shown(label)));
    if (label.find(',') != std::string_view::npos && number_of(label.substr(0, label.find(',')))) {
      fail(fmt::format("'{}' stands for several labels: a sample must have one", shown(label)));
    }
    const auto [it, is_new] = known_.try_emplace(key_of(label), static_cast<std::uint32_t>(known_.size()));
    if (is_new) out_.labels.emplace_back(label);
    out_.label.push_back(it->second);
  }

  // Returns its index, as written. `last`: that of the entry before, 0 if there is none.
  std::uint32_t add_entry(std::string_view token, std::uint32_t last) {
    const std::size_t colon = token.find(':');
    if (colon == std::string_view::npos) fail(fmt::format("'{}' is not index:value", shown(token)));
    const std::uint32_t index = index_of(token.substr(0, colon));
    if (index <= last) fail(fmt::format("index {} follows {}: indices must ascend", index, last));
    const std::optional<double> value = number_of(token.substr(colon + 1));
    if (!value) fail(fmt::format("'{}' has no finite number after the colon", shown(token)));
    out_.rows.index.push_back(index - 1);
    out_.rows.value.push_back(*value);
    out_.rows.dim = std::max(out_.rows.dim, index);
    return index;
  }

  std::uint32_t index_of(std::string_view token) const {
    std::uint32_t index = 0;
    const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), index);
    if (error != std::errc() || end != token.data() + token.size() || index == 0 || index > kMaxLibsvmIndex) {
      fail(fmt::format("index '{}' is not a whole number in [1, {}]", shown(token), kMaxLibsvmIndex));
    }
    return index;
  }

  // Renumbers the labels: from the order in which they appeared to the order of their keys.
  void sort_labels() {
    std::vector<std::string> sorted;
    std::vector<std::uint32_t> place(known_.size());
    for (const auto& [key, came] : known_) {
      place[came] = static_cast<std::uint32_t>(sorted.size());
      sorted.push_back(std::move(out_.labels[came]));
    }
    out_.labels = std::move(sorted);
    for (std::uint32_t& label : out_.label) label = place[label];
  }

  [[noreturn]] void fail(const std::string& message) const {
    throw UsageError(fmt::format("{}:{}: {}", name_, line_number_, message));
  }

  std::string_view rest_;
  std::string_view name_;
  std::uint64_t line_number_ = 0;
  std::map<LabelKey, std::uint32_t> known_;  // each with its number, in the order in which they appeared
  LabelledRows out_;
};

}  // namespace

LabelledRows parse_libsvm(std::string_view text, std::string_view name) { return Parser(text, name).parse(); }

void number_as(const std::vector<std::string>& labels, LabelledRows& data, std::string_view name) {
  std::vector<std::uint32_t> place;
  for (const std::string& label : data.labels) {
    const auto same = std::find_if(labels.begin(), labels.end(),
                                   [&](const std::string& other) { return key_of(other) == key_of(label); });
    if (same == labels.end()) {
      throw UsageError(fmt::format("'{}' has the label '{}', which the training data have not", name, shown(label)));
    }
    place.push_back(static_cast<std::uint32_t>(same - labels.begin()));
  }
  for (std::uint32_t& label : data.label) label = place[label];
  data.labels = labels;
}

namespace {

void refuse_binary(std::string_view beginning, const std::string& path) {
  if (beginning.find('\0') == std::string_view::npos) return;
  throw UsageError(fmt::format(
      "'{}' is not a text file, it has a zero byte; if it is compressed, but not with gzip, unpack it first", path));
}

}  // namespace

LabelledRows read_libsvm(const std::string& path) {
  // A device or a pipe may never end: what it begins with shows whether it is worth reading on.
  constexpr std::uint64_t kFirstLook = 65536;
  files::Input input(path);
  files::Bytes bytes = input.read(kFirstLook);
  const bool is_compressed = is_gzip(bytes.text());
  if (!is_compressed) refuse_binary(bytes.text(), path);
  input.read_until(files::kNoLimit, bytes);
  std::string unpacked;
  if (is_compressed) {
    unpacked = gunzip(bytes.text(), path);
    refuse_binary(std::string_view(unpacked).substr(0, kFirstLook), path);
  }
  const std::string_view text = is_compressed ? std::string_view(unpacked) : bytes.text();
  LabelledRows data = parse_libsvm(text, path);
  // Of the text: a file may be compressed between two trainings.
  Fingerprint fingerprint;
  fingerprint.add(text);
  data.fingerprint = fingerprint.text();
  return data;
}

}  // namespace sparsewire::train
