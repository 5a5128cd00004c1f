#include "report/metrics_reader.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "report/json_line.h"
#include "unit/folder.h"

namespace sparsewire::report::metrics_reader_test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

Metrics read(std::string_view text, std::size_t most = 100, std::size_t piece = 1 << 16) {
  MetricsReader reader("m.jsonl", most);
  for (std::size_t at = 0; at < text.size(); at += piece) reader.add(text.substr(at, piece));
  return reader.finish();
}

std::vector<double> column(const Metrics& metrics, std::string_view name) {
  std::vector<double> numbers;
  const std::size_t index = metrics.series.find(name);
  for (const Row& row : metrics.series.rows()) numbers.push_back(metrics.series.at(row, index));
  return numbers;
}

std::string line(std::uint64_t step, const std::string& rest) { return fmt::format("{{\"step\":{}{}}}\n", step, rest); }

std::string lines(std::uint64_t from, std::uint64_t to) {
  std::string all;
  for (std::uint64_t step = from; step <= to; ++step) all += line(step, fmt::format(",\"loss\":{}.5", step));
  return all;
}

TEST(MetricsReader, ReadsColumnsInPiecesOfAnySize) {
  const std::string text = lines(1, 3) + "\n" + line(4, R"(, "loss" : 4.5 , "lr":0.1)") + line(5, R"(,"lr":0.2)");
  for (const std::size_t piece : {1U, 2U, 7U, 1000U}) {
    const Metrics metrics = read(text, 100, piece);
    EXPECT_THAT(column(metrics, "step"), ElementsAre(1, 2, 3, 4, 5));
    EXPECT_EQ(column(metrics, "loss")[3], 4.5);
    EXPECT_TRUE(is_missing(column(metrics, "loss")[4]));
    EXPECT_TRUE(is_missing(column(metrics, "lr")[0]));
    EXPECT_EQ(metrics.lines, 6U);
    EXPECT_THAT(metrics.notices, IsEmpty());
  }
}

TEST(MetricsReader, LeavesALineOutThatIsCutOffAtAnyByte) {
  const std::string all = lines(1, 3);
  for (std::size_t cut = 0; cut <= all.size(); ++cut) {
    const Metrics metrics = read(std::string_view(all).substr(0, cut));
    const auto whole = static_cast<std::size_t>(std::count(all.begin(), all.begin() + static_cast<long>(cut), '\n'));
    EXPECT_EQ(metrics.series.rows().size(), whole);
    const bool is_cut = cut > 0 && all[cut - 1] != '\n';
    EXPECT_EQ(metrics.notices.size(), is_cut ? 1U : 0U);
    EXPECT_EQ(metrics.lines, whole + (is_cut ? 1 : 0));
  }
}

TEST(MetricsReader, KeepsWhatIsNotFinite) {
  const Metrics metrics =
      read(line(1, ",\"loss\":NaN") + line(2, ",\"loss\":Infinity") + line(3, ",\"loss\":-Infinity") +
           line(4, ",\"loss\":null") + line(5, ",\"loss\":\"nan\"") + line(6, ",\"loss\":1e999") +
           line(7, ",\"loss\":-1e999") + line(8, ",\"loss\":1e-999") + line(9, ""));
  const std::vector<double> loss = column(metrics, "loss");
  for (const std::size_t i : {0U, 3U, 4U}) EXPECT_TRUE(std::isnan(loss[i]) && !is_missing(loss[i])) << i;
  for (const std::size_t i : {1U, 5U}) EXPECT_EQ(loss[i], INFINITY);
  for (const std::size_t i : {2U, 6U}) EXPECT_EQ(loss[i], -INFINITY);
  EXPECT_EQ(loss[7], 0);
  EXPECT_TRUE(is_missing(loss[8]));
  EXPECT_EQ(metrics.diverged_at(), 1U);
  EXPECT_FALSE(read(lines(1, 3)).diverged_at());
}

TEST(MetricsReader, LeavesOutWhatIsNoLineOfMetrics) {
  std::string text = lines(1, 2);
  for (const char* bad :
       {"not json", "[1]", "{\"step\":3,}", "{\"step\":3 \"loss\":1}", "{\"step\":+3}", "{\"step\":0x3}",
        "{\"step\":3}}", "{\"step\":3", "{\"step\":3,\"a\":[1}}", "{\"step\":3,\"a\":\"x}", "{step:3}"}) {
    text += std::string(bad) + "\n";
  }
  text += "{\"loss\":1}\n{}\n{\"step\":null}\n{\"step\":-1}\n{\"step\":\"x\"}\n" + lines(3, 4);
  const Metrics metrics = read(text);
  EXPECT_THAT(column(metrics, "step"), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(metrics.notices, Contains("11 lines are not JSON, and were left out (the first is line 3)"));
  EXPECT_THAT(metrics.notices, Contains("5 lines have no step, and were left out (the first is line 14)"));
}

TEST(MetricsReader, SurvivesBinaryRubbish) {
  std::string rubbish;
  std::uint32_t state = 1;
  for (int i = 0; i < 100'000; ++i) rubbish += static_cast<char>((state = state * 1664525U + 1013904223U) >> 24U);
  const Metrics metrics = read(rubbish + "\n" + lines(1, 1));
  EXPECT_EQ(metrics.series.rows().size(), 1U);
  EXPECT_THAT(metrics.notices, Contains(HasSubstr("are not JSON")));
  const std::string deep = std::string(100'000, '[');
  EXPECT_THAT(read(line(1, ",\"x\":" + deep)).notices, ElementsAre("line 1 is not JSON, and was left out"));
}

// Memory is not taken for a line that is too long.
TEST(MetricsReader, LeavesOutALineThatIsTooLong) {
  MetricsReader reader("m.jsonl", 100);
  reader.add(lines(1, 1));
  reader.add("{\"step\":2,\"loss\":\"");
  const std::string piece(1 << 20, 'x');
  for (int i = 0; i < 100; ++i) reader.add(piece);
  reader.add("\"}\n" + lines(3, 3));
  for (int i = 0; i < 3; ++i) reader.add(piece);  // and one without an end
  const Metrics metrics = reader.finish();
  EXPECT_THAT(column(metrics, "step"), ElementsAre(1, 3));
  EXPECT_EQ(metrics.lines, 4U);
  EXPECT_THAT(metrics.notices, ElementsAre("2 lines are longer than 1 MiB, and were left out (the first is line 2)"));
}

TEST(MetricsReader, NamesFieldsThatItDoesNotKnow) {
  const Metrics metrics = read(line(1, R"(,"loss":1,"f\u006fo":7,"note":"x","went_dense":true)"));
  EXPECT_THAT(metrics.notices, ElementsAre("has fields that this version does not know: foo, note"));
  EXPECT_THAT(column(metrics, "foo"), ElementsAre(7));
  EXPECT_THAT(metrics.series.names(), ElementsAre("step", "loss", "foo"));
  std::string many;
  for (int i = 0; i < 300; ++i) many += fmt::format(",\"x{}\":{}", i, i);
  const Metrics most = read(line(1, many));
  EXPECT_EQ(most.series.names().size(), Series::kMostColumns);
  EXPECT_THAT(most.notices, Contains("has more than 100 fields; the others were left out"));
}

TEST(MetricsReader, ShowsTheLaterOfStepsThatWereDoneAgain) {
  const Metrics metrics = read(lines(1, 5) + "{\"step\":3,\"loss\":7}\n" + lines(4, 4));
  EXPECT_THAT(column(metrics, "step"), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(column(metrics, "loss"), ElementsAre(1.5, 2.5, 7, 4.5));
  EXPECT_THAT(metrics.notices, ElementsAre(StartsWith("steps go back in line 6:")));
  EXPECT_THAT(read(lines(1, 2) + lines(2, 2)).notices, IsEmpty()) << "a pass that the hook skipped";
}

TEST(MetricsReader, KnowsHowManyStepsThereAreAndWhatChanged) {
  const Metrics metrics = read(line(1, ",\"steps\":10") +
                               R"({"step":1,"changed":{"lr":{"from":0.1,"to":0.01}}})"
                               "\n" +
                               line(2, ",\"steps\":20"));
  EXPECT_EQ(metrics.steps, 20);
  EXPECT_THAT(column(metrics, "step"), ElementsAre(1, 2));
  EXPECT_THAT(metrics.notices, ElementsAre(R"(options changed after step 1: {"lr":{"from":0.1,"to":0.01}})"));
}

TEST(MetricsReader, UnderstandsTheHookForPytorch) {
  const Metrics metrics = read(R"({"step": 1, "skipped": false, "rank": 0, "density": 0.1, "sent_norm": 2.0, )"
                               R"("memory_norm": 3.0, "seconds_sift": 0.5, "factor_against_dense": 4.0})"
                               "\n");
  EXPECT_THAT(metrics.notices, IsEmpty());
  EXPECT_THAT(column(metrics, "memory_norm2"), ElementsAre(9));
  EXPECT_THAT(column(metrics, "sent_norm2"), ElementsAre(4));
  EXPECT_THAT(column(metrics, "ns_sift"), ElementsAre(5e8));
}

// What is kept does not depend on how often rows were thinned on the way.
TEST(MetricsReader, ThinsALongFileAsIfItHadReadItAtOnce) {
  MetricsReader reader("m.jsonl", 100);
  Series whole;
  const std::size_t loss = (whole.column("step"), whole.column("loss"));
  std::vector<std::uint64_t> evaluations;
  for (std::uint64_t i = 0; i < 20'000; ++i) {
    const auto number = static_cast<double>(i * 2654435761U % 1000003U);
    const bool is_evaluation = i % 1000 == 500;
    if (is_evaluation) evaluations.push_back(i);
    reader.add(line(i, fmt::format(",\"loss\":{}{}", number, is_evaluation ? ",\"test_loss\":1" : "")));
    whole.rows().push_back({.line = i, .is_evaluation = is_evaluation, .values = {static_cast<double>(i), number}});
  }
  Metrics metrics = reader.finish();
  EXPECT_EQ(metrics.lines, 20'000U);
  EXPECT_LE(metrics.series.rows().size(), 400U);
  metrics.series.thin(100);
  whole.thin(100);
  EXPECT_LE(whole.rows().size(), 100U);
  EXPECT_GE(whole.rows().size(), 50U);
  const auto steps = [](const Series& series) {
    std::vector<double> all;
    for (const Row& row : series.rows()) all.push_back(row.values[0]);
    return all;
  };
  EXPECT_EQ(steps(metrics.series), steps(whole));
  EXPECT_EQ(steps(whole).front(), 0);
  EXPECT_EQ(steps(whole).back(), 19'999);
  for (const std::uint64_t one : evaluations) EXPECT_THAT(steps(whole), Contains(static_cast<double>(one)));
  double smallest = 1e9;
  double largest = 0;
  for (const Row& row : whole.rows()) {
    smallest = std::min(smallest, row.values[loss]);
    largest = std::max(largest, row.values[loss]);
  }
  EXPECT_EQ(smallest, 0);
  EXPECT_GT(largest, 999'900);
}

TEST(MetricsReader, ThinsEvaluationsTooIfThereIsNothingElse) {
  std::string text;
  for (std::uint64_t i = 1; i <= 3000; ++i) text += line(i, ",\"loss\":1,\"test_loss\":1");
  Metrics metrics = read(text);
  metrics.series.thin(100);
  EXPECT_LE(metrics.series.rows().size(), 100U);
  EXPECT_TRUE(metrics.series.is_thinned());
}

}  // namespace
}  // namespace sparsewire::report::metrics_reader_test
