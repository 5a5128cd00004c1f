#include "help.h"

#include <algorithm>
#include <sstream>

#include "terminal.h"

namespace sparsewire::cli {
std::string WrappedHelp::make_option_desc(const CLI::Option* option) const {
  return wrapped(CLI::Formatter::make_option_desc(option));
}

std::string WrappedHelp::make_subcommand(const CLI::App* command) const {
  std::ostringstream out;
  CLI::detail::format_help(out, command->get_name(), wrapped(command->get_description()), get_column_width());
  return out.str();
}

// CLI11 indents what follows a line break.
std::string WrappedHelp::wrapped(const std::string& description) const {
  const std::size_t width = kColumns - get_column_width();
  std::istringstream words(description);
  std::string text;
  std::size_t used = 0;  // letters in the last line
  for (std::string word; words >> word;) {
    const bool fits = used == 0 || used + 1 + word.size() <= width;
    if (used > 0) text += fits ? ' ' : '\n';
    used = (fits && used > 0 ? used + 1 : 0) + word.size();
    text += word;
  }
  return text;
}

}  // namespace sparsewire::cli
