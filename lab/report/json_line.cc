#include "report/json_line.h"

#include <array>
#include <charconv>
#include <cstddef>
#include <limits>
#include <string>
#include <system_error>

namespace sparsewire::report {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct Word {
  std::string_view text;
  double value;
};
// As Python, JavaScript, C and others write them.
constexpr std::array kWords = {
    Word{"NaN", kNan},        Word{"nan", kNan},        Word{"-nan", kNan},      Word{"Infinity", kInfinity},
    Word{"inf", kInfinity},   Word{"Inf", kInfinity},   Word{"+inf", kInfinity}, Word{"-Infinity", -kInfinity},
    Word{"-inf", -kInfinity}, Word{"-Inf", -kInfinity},
};

bool find_word(std::string_view text, double& value) {
  for (const Word& word : kWords) {
    if (word.text != text) continue;
    value = word.value;
    return true;
  }
  return false;
}

bool is_blank(char letter) { return letter == ' ' || letter == '\t' || letter == '\r'; }

class Scanner {
 public:
  explicit Scanner(std::string_view line) : rest_(line) {}

  bool run(const std::function<void(const Field&)>& take) {
    skip_blanks();
    if (!skip('{')) return false;
    skip_blanks();
    if (skip('}')) return is_at_end();
    while (true) {
      Field field;
      std::string_view name;
      if (!read_string(name)) return false;
      field.name = name.substr(1, name.size() - 2);
      skip_blanks();
      if (!skip(':')) return false;
      skip_blanks();
      if (!read_value(field)) return false;
      take(field);
      skip_blanks();
      if (skip('}')) return is_at_end();
      if (!skip(',')) return false;
      skip_blanks();
    }
  }

 private:
  void skip_blanks() {
    while (!rest_.empty() && is_blank(rest_.front())) rest_.remove_prefix(1);
  }
  bool skip(char letter) {
    if (rest_.empty() || rest_.front() != letter) return false;
    rest_.remove_prefix(1);
    return true;
  }
  bool is_at_end() {
    skip_blanks();
    return rest_.empty();
  }

  // With its quotes.
  bool read_string(std::string_view& text) {
    if (rest_.empty() || rest_.front() != '"') return false;
    std::size_t end = 1;
    while (end < rest_.size() && rest_[end] != '"') end += rest_[end] == '\\' ? 2U : 1U;
    if (end >= rest_.size()) return false;
    text = rest_.substr(0, end + 1);
    rest_.remove_prefix(end + 1);
    return true;
  }

  bool read_value(Field& field) {
    if (rest_.empty()) return false;
    const char first = rest_.front();
    if (first == '"') {
      if (!read_string(field.raw)) return false;
      const bool is_number = find_word(field.raw.substr(1, field.raw.size() - 2), field.number);
      field.kind = is_number ? FieldKind::number : FieldKind::text;
      return true;
    }
    if (first == '{' || first == '[') return read_nested(field);
    std::size_t end = 0;
    while (end < rest_.size() && rest_[end] != ',' && rest_[end] != '}' && !is_blank(rest_[end])) ++end;
    field.raw = rest_.substr(0, end);
    rest_.remove_prefix(end);
    if (field.raw == "null") {
      field.kind = FieldKind::null;
      return true;
    }
    if (field.raw == "true" || field.raw == "false") return true;  // other
    field.kind = FieldKind::number;
    return read_number(field.raw, field.number) || find_word(field.raw, field.number);
  }

  static bool read_number(std::string_view text, double& number) {
    const bool begins_well = !text.empty() && (text.front() == '-' || (text.front() >= '0' && text.front() <= '9'));
    if (!begins_well) return false;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, number);
    if (stop != end) return false;
    if (error == std::errc::result_out_of_range) {  // 1e999, 1e-999
      const bool is_small = text.find("e-") != std::string_view::npos || text.find("E-") != std::string_view::npos;
      number = is_small ? 0 : text.front() == '-' ? -kInfinity : kInfinity;
      return true;
    }
    return error == std::errc();
  }

  // Only its brackets and strings are looked at.
  bool read_nested(Field& field) {
    const std::string_view from = rest_;
    std::string open;  // brackets that are to be closed
    std::string_view text;
    do {
      if (rest_.empty()) return false;
      const char letter = rest_.front();
      if (letter == '"') {
        if (!read_string(text)) return false;
        continue;
      }
      rest_.remove_prefix(1);
      if (letter == '{' || letter == '[') {
        open += letter == '{' ? '}' : ']';
      } else if (letter == '}' || letter == ']') {
        if (open.back() != letter) return false;
        open.pop_back();
      }
    } while (!open.empty());
    field.raw = from.substr(0, from.size() - rest_.size());
    return true;
  }

  std::string_view rest_;
};

}  // namespace

bool scan_line(std::string_view line, const std::function<void(const Field&)>& take) { return Scanner(line).run(take); }

}  // namespace sparsewire::report
