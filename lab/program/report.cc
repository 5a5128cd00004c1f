// sparsewire report: results to a page with charts, once or while they are written.
#include <fmt/core.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "commands.h"
#include "files/replace.h"
#include "loop/stop.h"
#include "message.h"
#include "options.h"
#include "report/collect.h"
#include "report/page.h"
#include "report/snapshot.h"
#include "sparsewire/errors.h"
#include "text/number.h"

namespace sparsewire::cli {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr double kDefaultEvery = 2;  // seconds
constexpr std::size_t kMostNotices = 5;

struct ReportCommand {
  std::vector<std::string> inputs;
  std::optional<std::string> output;
  std::optional<std::string> title;
  std::optional<std::string> follow_text;
  std::optional<double> follow;  // seconds between two looks
};

// What stands behind --follow may already be an input.
void read_follow(ReportCommand& command) {
  if (command.follow_text) {
    const std::string& text = *command.follow_text;
    const auto seconds = parse_number<double>(text);
    if (!seconds && !text.empty()) command.inputs.insert(command.inputs.begin(), text);
    command.follow = seconds.value_or(kDefaultEvery);
    if (!(*command.follow >= 0.1) || *command.follow > 86400) {
      throw UsageError(fmt::format("--follow {} is not a number of seconds in [0.1, 86400]", text));
    }
  }
  if (command.inputs.empty()) throw UsageError("INPUT is missing: a folder, or metrics files");
}

// Beside what it is of: in a folder, otherwise here.
std::string output_of(const ReportCommand& command) {
  if (command.output) return output_path(*command.output);
  const std::string& first = command.inputs.front();
  const bool is_folder = fs::is_directory(first) || first.ends_with('/');
  return is_folder ? (fs::path(first) / "report.html").string() : "report.html";
}

void check_inputs(const ReportCommand& command, const std::string& output) {
  for (const std::string& input : command.inputs) {
    if (input == "-") throw UsageError("an input cannot be -: name a file");
    if (files::is_same_file(input, output)) {
      throw UsageError(fmt::format("'{}' is an input: name another file with -o", output));
    }
  }
  report::check_output(output);
}

void show_notices(const report::Document& document) {
  const std::size_t shown = std::min(document.notices.size(), kMostNotices);
  for (std::size_t i = 0; i < shown; ++i) complain("note: " + document.notices[i]);
  if (shown < document.notices.size()) {
    complain(fmt::format("note: {} more are on the page", document.notices.size() - shown));
  }
}

void print_path(const std::string& path) {
  if (files::is_standard_output(path)) return;
  if (std::printf("%s\n", printable(path).c_str()) < 0 || std::fflush(stdout) != 0) {
    throw std::runtime_error("cannot write standard output");
  }
}

void write_once(const ReportCommand& command, const std::string& output) {
  report::CollectOptions options;
  options.title = command.title;
  const report::Document document = report::collect(command.inputs, options);
  report::write_page(document, output);
  show_notices(document);
  print_path(output);
}

// Writes the page again whenever its inputs have changed, until they are finished or a signal comes.
class Follower {
 public:
  Follower(const ReportCommand& command, std::string output) : command_(command), output_(std::move(output)) {
    if (fs::exists(output_) && !fs::is_regular_file(output_)) {
      throw UsageError(fmt::format("--follow writes '{}' again and again, so it must be a file", output_));
    }
    for (const std::string& input : command.inputs) {
      if (fs::exists(input) && !fs::is_regular_file(input) && !fs::is_directory(input)) {
        throw UsageError(fmt::format("--follow reads '{}' again and again, so it must be a file or a folder", input));
      }
    }
    options_.title = command.title;
    options_.is_live = true;
  }

  void run() {
    const train::StopSignals signals;
    complain(fmt::format("following, looking every {} s; Ctrl-C ends it", *command_.follow));
    while (true) {
      const std::uint64_t now = report::snapshot(command_.inputs, output_);
      if (seen_ != now) {
        const auto began = Clock::now();
        const bool is_finished = write();
        took_ = std::chrono::duration<double>(Clock::now() - began).count();
        seen_ = now;
        if (is_finished) {
          complain("all runs are finished");
          return;
        }
      }
      if (!wait()) break;
    }
    if (is_written_) {
      options_.is_live = false;
      write_last();
    }
  }

 private:
  // Returns whether everything is finished.
  bool write() {
    std::optional<report::Document> document;
    try {
      document = report::collect(command_.inputs, options_);
    } catch (const UsageError& error) {  // half written, or being replaced: the next look may find it whole
      say_once(error.what());
      return false;
    }
    // A name among several may be mistyped.
    for (const std::string& input : command_.inputs) {
      if (!fs::exists(input)) say_once(fmt::format("'{}' is not there yet", input));
    }
    if (document->is_empty()) {
      for (const std::string& notice : document->notices) say_once(notice);
      if (document->notices.empty()) say_once(fmt::format("'{}' has nothing to show yet", command_.inputs.front()));
    }
    // A page in an empty folder would keep a study from taking it.
    const bool is_inside = document->is_empty() && !command_.output && fs::path(output_).has_parent_path();
    if (is_inside) return false;
    const bool is_finished = document->is_finished;
    if (!is_finished) document->live = *command_.follow;
    report::write_page(*document, output_);
    if (!is_written_) print_path(output_);
    is_written_ = true;
    return is_finished;
  }

  // Once more, so that the page does not load itself for ever.
  void write_last() {
    try {
      report::write_page(report::collect(command_.inputs, options_), output_);
    } catch (const UsageError&) {  // nothing has come, or it is gone: what was known last
      options_.is_live = true;
      report::write_page(report::collect(command_.inputs, options_), output_);
    }
  }

  void say_once(const std::string& message) {
    if (said_.insert(message).second) complain(message);
  }

  // Until the next look. One that took long is not repeated at once. Returns false if a signal came.
  bool wait() const {
    constexpr double kRest = 4;  // times as long as it took
    const auto until = Clock::now() + std::chrono::duration<double>(std::max(*command_.follow, kRest * took_));
    while (Clock::now() < until) {
      if (train::stop_requested()) return false;
      ::poll(nullptr, 0, 50);
    }
    return !train::stop_requested();
  }

  const ReportCommand& command_;
  std::string output_;
  report::CollectOptions options_;
  std::optional<std::uint64_t> seen_;
  std::set<std::string> said_;
  double took_ = 0;
  bool is_written_ = false;
};

void report_command(const ReportCommand& command) {
  ignore_broken_outputs();
  const std::string output = output_of(command);
  check_inputs(command, output);
  if (!command.follow) return write_once(command, output);
  Follower(command, output).run();
}

}  // namespace

void add_report(CLI::App& program) {
  CLI::App* const app = program.add_subcommand("report", "Make a page with charts from results: one HTML file");
  app->footer(
      "An INPUT is the folder of a study or of a comparison, a metrics file or a folder\n"
      "of them (several become one report), or what train or reproduce wrote with\n"
      "--json. The page needs no network and no other files.\n"
      "Examples:\n"
      "  sparsewire report study-out\n"
      "  sparsewire report topk.jsonl dense.jsonl -o both.html\n"
      "  sparsewire report run-*.jsonl --follow");
  const auto command = std::make_shared<ReportCommand>();
  app->add_option("INPUT", command->inputs, "What the report is of")->type_name("");
  app->add_option("-o,--output", command->output,
                  "Where to write the page; - is standard output (default: report.html, in the folder that is INPUT; "
                  "of files: in this folder)")
      ->type_name("FILE")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app->add_option("--title", command->title, "Title of the page")
      ->type_name("TEXT")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app->add_option("--follow", command->follow_text,
                  "Write the page again as lines arrive; look every so many seconds (default 2)")
      ->type_name("[SECONDS]")
      ->expected(0, 1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app->callback([command] {
    read_follow(*command);
    report_command(*command);
  });
}

}  // namespace sparsewire::cli
