// Tables for people.
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
  // The first column is aligned to the left, all others to the right; each is as wide as its longest cell. If lines
  // would be longer than 80 letters, titles of several words are stacked, then the columns move together, and at last
  // a first cell that is too long has a line of its own above the others.
  std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

// With `decimals` digits after the point: 0.20433; "never" if there is no number.
std::string fixed(std::optional<double> number, int decimals);
// With `count` significant digits: 0.00125, 1.2e-11.
std::string digits(double number, int count = 6);

}  // namespace sparsewire::reproduce
