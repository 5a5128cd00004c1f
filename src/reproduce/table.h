// Numbers in columns, for people.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace sparsewire::reproduce {

class Table {
 public:
  explicit Table(std::vector<std::string> titles) : rows_{std::move(titles)} {}

  // REQUIRES: as many cells as titles.
  void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  // The first column to the left, all others to the right, each as wide as it must be.
  std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

// 0.20433; "never" for nothing.
std::string fixed(std::optional<double> number, int decimals);
// Six digits that count: 0.00125, 1.2e-11.
std::string digits(double number, int count = 6);

}  // namespace sparsewire::reproduce
