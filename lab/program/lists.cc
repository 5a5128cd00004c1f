#include "lists.h"

#include <fmt/core.h>

#include <algorithm>
#include <functional>

#include "text/list.h"
#include "text/number.h"

namespace sparsewire::cli {
namespace {

double read_number(const std::string& name, const std::string& given, const Range& range) {
  const auto number = parse_number<double>(given);
  if (number && range.holds(*number)) return *number;
  throw CLI::ValidationError(name, fmt::format("'{}' is not a number in {}", given, range.text()));
}

std::uint64_t read_integer(const std::string& name, const std::string& given, std::uint64_t min, std::uint64_t max) {
  const auto number = parse_number<std::uint64_t>(given);
  if (!number || *number < min || *number > max) {
    throw CLI::ValidationError(name, fmt::format("'{}' is not a whole number in [{}, {}]", given, min, max));
  }
  return *number;
}

template <class Number, class Read>
std::vector<Number> read_list(const std::string& given, const Read& read) {
  std::vector<Number> numbers;
  for (const std::string& one : split_list(given, ',')) numbers.push_back(read(one));
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  return numbers;
}

}  // namespace

void add_number(CLI::App& command, const std::string& name, std::optional<double>& value, Range range,
                const std::string& help) {
  const auto read = [&value, name, range](const std::string& given) { value = read_number(name, given, range); };
  command.add_option_function<std::string>(name, read, help)
      ->type_name("X")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

void add_numbers(CLI::App& command, const std::string& name, std::optional<std::vector<double>>& values, Range range,
                 const std::string& help) {
  const auto read = [&values, name, range](const std::string& given) {
    values = read_list<double>(given, [&](const std::string& one) { return read_number(name, one, range); });
  };
  command.add_option_function<std::string>(name, read, help)
      ->type_name("X,X,...")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

void add_integers(CLI::App& command, const std::string& name, std::optional<std::vector<std::uint64_t>>& values,
                  std::uint64_t min, std::uint64_t max, const std::string& help) {
  const auto read = [&values, name, min, max](const std::string& given) {
    values = read_list<std::uint64_t>(given, [&](const std::string& one) { return read_integer(name, one, min, max); });
  };
  command.add_option_function<std::string>(name, read, help)
      ->type_name("N,N,...")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

}  // namespace sparsewire::cli
