// Pieces of what is printed while something runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace sparsewire::cli {

// What is printed is at most so wide, whatever the terminal has.
inline constexpr std::size_t kColumns = 80;

// Seconds after which the time left is shown: an earlier guess would jump.
inline constexpr double kFirstEstimate = 0.3;

// Width of the terminal at standard error; 80 if it is not known. A line that wraps could not be written over.
std::size_t columns();

// "[######..................]", shorter on a terminal of fewer than 100 columns.
std::string bar(std::uint64_t done, std::uint64_t all);

// 1234567 as "1.2 MB".
std::string in_units(double bytes);

// "45 s", "12 min", "3 h 20 min", "2 d 4 h".
std::string duration(double seconds);

// Lines that are longer than 80 letters are broken between words. What follows an item ("- ...") is indented. Lines of
// tables are short enough.
std::string wrapped(const std::string& text);

// At most so many letters; a longer text ends with "...".
std::string shortened(const std::string& text, std::size_t most);

// A line at the bottom of a terminal that is written over. Other lines are printed above it.
class StatusLine {
 public:
  explicit StatusLine(bool is_shown);
  ~StatusLine();
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;

  void show(const std::string& text);
  // Prints whole lines above it.
  void print(const std::string& lines);
  // Leaves the last status where it is, and begins a new line.
  void end();

 private:
  bool is_shown_;
  std::string text_;
};

}  // namespace sparsewire::cli
