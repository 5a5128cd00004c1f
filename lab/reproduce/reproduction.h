// A published experiment that anybody can run again: its claim, what was measured, and whether the claim holds here.
//
// One file for each and one line in reproductions.def; `sparsewire reproduce`, its list and its tests walk the
// registry.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sparsewire::study {
struct Plan;
struct Results;
}  // namespace sparsewire::study

namespace sparsewire::reproduce {

// quick: takes seconds, for tests (of deep networks minutes); full: as large as in the paper.
enum class Size : std::uint8_t { quick, usual, full };

// What a user may choose; nothing stands for the experiment's own value. The reader of the options checks ranges.
struct Options {
  Size size = Size::usual;
  std::optional<std::vector<std::uint64_t>> at;  // steps, ascending
  std::optional<std::vector<double>> ratio;      // ascending
  std::optional<double> mu;
  std::optional<std::uint64_t> rounds;
  std::optional<std::uint64_t> seed;   // the first
  std::optional<std::uint64_t> seeds;  // how many
  std::optional<double> gap;
  std::optional<std::string> data;
  // Of experiments that are studies (deep.h).
  std::optional<std::uint64_t> workers;
  std::optional<std::string> device;
  std::optional<std::string> data_dir;
  std::optional<std::vector<std::string>> only;  // names of parts
  std::string out;                               // the folder in which each part has one
  // Does the study in this folder, as far as it is not done. Null: it was only asked for what it would take.
  std::function<std::unique_ptr<study::Results>(study::Plan& plan, const std::string& folder)> run_study;

  template <class T>
  T by_size(T quick, T usual, T full) const {
    return size == Size::quick ? quick : size == Size::usual ? usual : full;
  }
};

// One number, and the setting in which it was measured. What does not apply stays empty.
struct Measured {
  std::string method;
  std::optional<std::string> part = {};  // of an experiment that has several
  std::optional<std::string> form = {};  // of RegTop-k: a, b
  std::optional<std::string> problem = {};
  std::optional<std::string> codec = {};
  std::optional<std::string> stage = {};  // tuning, judging
  std::optional<std::uint64_t> workers = {};
  std::optional<std::uint64_t> dim = {};
  std::optional<double> ratio = {};
  std::optional<std::uint64_t> k = {};
  std::optional<std::uint64_t> s = {};
  std::optional<double> mu = {};
  std::optional<double> lambda = {};
  std::optional<double> gap = {};
  std::optional<double> lr = {};
  std::optional<std::string> schedule = {};
  std::optional<std::uint64_t> every = {};  // rounds between two that send
  std::optional<std::uint64_t> seed = {};
  std::optional<std::uint64_t> step = {};
  std::string metric = {};
  std::optional<double> value = {};  // nothing: never reached
};

// partly: under conditions that the claim does not name. not_judged: the run was too short, or compared nothing.
enum class Verdict : std::uint8_t { holds, partly, does_not_hold, not_judged };

// "holds", "partly", "does not hold", "not judged"
std::string_view name_of(Verdict verdict) noexcept;

struct Result {
  Verdict verdict = Verdict::does_not_hold;
  std::string reason;                   // one sentence, with the numbers that decided
  std::vector<std::string> conditions;  // each one sentence: where the claim holds and where not, as measured here
  std::vector<Measured> measured;
  std::string table;  // for people
};

// Takes the verdict back if the run had fewer rounds than the quick form has: what has not happened yet says nothing.
void withhold_if_short(std::uint64_t rounds, std::uint64_t quick, Result& result);

// Called from time to time: `done` of `of` parts are done.
using Progress = std::function<void(std::size_t done, std::size_t of)>;

struct Reproduction {
  std::string_view name;
  std::string_view paper;
  std::string_view options;  // those of Options that it takes, apart from the size: "at mu"
  std::string_view claim;    // one line
  Result (*run)(const Options& options, const Progress& progress);

  bool takes(std::string_view option) const noexcept;
};

// Every reproduction there is.
std::span<const Reproduction> reproductions();
// Throws UsageError with all names if there is no such experiment.
const Reproduction& find_reproduction(std::string_view name);

}  // namespace sparsewire::reproduce
