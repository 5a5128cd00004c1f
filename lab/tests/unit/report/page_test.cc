#include "report/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>
#include <string>

#include "sparsewire/errors.h"
#include "unit/folder.h"

namespace sparsewire::report::page_test {
namespace {

using testing::HasSubstr;
using testing::Not;

std::size_t count(std::string_view text, std::string_view piece) {
  std::size_t found = 0;
  for (std::size_t at = text.find(piece); at != std::string_view::npos; at = text.find(piece, at + 1)) ++found;
  return found;
}

Json data_in(const std::string& page) {
  const std::string begin = "id=\"sparsewire-data\">";
  const std::size_t from = page.find(begin) + begin.size();
  return Json::parse(page.substr(from, page.find("</script>", from) - from));
}

Document hostile() {
  Document document;
  const std::string text = "</script><!-- <b>&amp; \xe2\x80\xa8 {{DATA}} {{STYLE}} \xff\xfe\xc0\x80 \" \\ \x01";
  document.title = text;
  document.notices = {text};
  document.methods.push_back({.name = text, .ratio = {}, .label = text, .spec = text});
  ReportedRun run;
  run.id = text;
  run.config = {{text, text}};
  run.series.column(text);
  run.series.column("loss");
  run.series.rows().push_back({.line = 0, .values = {1, NAN}});
  run.series.rows().push_back({.line = 1, .values = {missing(), INFINITY}});
  run.series.rows().push_back({.line = 2, .values = {0.125, -INFINITY}});
  run.series.rows().push_back({.line = 3, .values = {9007199254740991}});
  document.runs.push_back(run);
  document.summary = {{"notes", {text}}};
  document.reproduction = {{"table", text}};
  return document;
}

TEST(Page, HoldsItsTwoPlacesOnce) {
  EXPECT_NO_THROW(filled(kPageHtml, "", ""));
  EXPECT_EQ(filled("a{{TITLE}}b{{DATA}}c", "{{DATA}}", "{{TITLE}}"), "a{{DATA}}b{{TITLE}}c");
  EXPECT_THROW(filled("{{DATA}}", "", ""), std::logic_error);
  EXPECT_THROW(filled("{{DATA}}{{DATA}} {{TITLE}}", "", ""), std::logic_error);
  EXPECT_EQ(count(kPageHtml, "{{"), 2U) << "the build has filled the other places";
  EXPECT_EQ(count(kPageHtml, "</script"), 2U) << "the data and the script";
  EXPECT_EQ(count(kPageHtml, "</style"), 1U);
}

TEST(Page, NeedsNoNetwork) {
  for (const char* const word : {"<script src", "@import", "url(http", "fetch(", "XMLHttpRequest", "<link"}) {
    EXPECT_THAT(std::string(kPageHtml), Not(HasSubstr(word)));
  }
}

TEST(Page, IsNotBrokenByTextOfFiles) {
  const std::string page = page_text(hostile());
  const std::string bare = page_text({});
  EXPECT_EQ(count(page, "</script"), count(bare, "</script"));
  EXPECT_EQ(count(page, "<!--"), count(bare, "<!--"));
  EXPECT_EQ(count(page, "\xe2\x80\xa8"), count(bare, "\xe2\x80\xa8") + 1) << "in the title";
  EXPECT_THAT(page, HasSubstr("<title>&lt;/script&gt;&lt;!-- &lt;b&gt;&amp;amp; "));
  const Json data = data_in(page);
  const std::string read = data.at("title").get<std::string>();
  EXPECT_THAT(read, HasSubstr("</script><!-- <b>&amp; \xe2\x80\xa8 {{DATA}} {{STYLE}} \xef\xbf\xbd"));
  EXPECT_EQ(data.at("notices").at(0), read);
  EXPECT_EQ(data.at("runs").at(0).at("config").at(read), read);
  EXPECT_EQ(data.at("runs").at(0).at("series").at(read), Json::parse("[1, null, 0.125, 9007199254740991]"));
  EXPECT_EQ(data.at("runs").at(0).at("series").at("loss"), Json::parse(R"(["nan", "inf", "-inf", null])"));
  EXPECT_NO_THROW(Json(page).dump()) << "all of it is UTF-8";
}

TEST(Page, HasAllFieldsOfItsData) {
  const Json data = data_in(page_text({}));
  for (const char* const key : {"schema", "kind", "title", "made_by", "problem", "notices", "live", "summary",
                                "methods", "runs", "timings", "reproduction"}) {
    EXPECT_TRUE(data.contains(key)) << key;
  }
  EXPECT_EQ(data.at("live"), nullptr);
  Document live;
  live.live = 2;
  EXPECT_EQ(data_in(page_text(live)).at("live"), Json::parse(R"({"every": 2.0, "finished": false})"));
}

TEST(Page, IsWrittenOverNothingElse) {
  const Folder folder;
  folder.write("notes.html", "<!doctype html>\n<p>mine");
  EXPECT_THROW(write_page({}, folder / "notes.html"), UsageError);
  EXPECT_EQ(folder.read("notes.html"), "<!doctype html>\n<p>mine");
  folder.write("empty.html", "");
  for (const char* const name : {"empty.html", "new.html"}) {
    write_page({}, folder / name);
    EXPECT_TRUE(is_page(folder / name));
    EXPECT_NO_THROW(write_page({}, folder / name));
  }
  EXPECT_THROW(write_page({}, folder / "none/new.html"), std::runtime_error);
  EXPECT_EQ(folder.names().size(), 3U) << "no temporary file is left";
}

TEST(Page, RoundsNumbersOfSeriesButNotWholeOnes) {
  Document document;
  ReportedRun run;
  run.series.column("x");
  run.series.rows().push_back({.line = 0, .values = {1.0 / 3}});
  run.series.rows().push_back({.line = 1, .values = {123456789012.0}});
  run.series.rows().push_back({.line = 2, .values = {-1e300}});
  document.runs.push_back(run);
  EXPECT_THAT(to_text(document), HasSubstr(R"("x":[0.33333333,123456789012,-1e+300])"));
}

TEST(Page, ThinsAllRunsTogether) {
  Document document;
  for (std::size_t i = 0; i < 50; ++i) {
    ReportedRun run;
    run.series.column("step");
    for (std::uint64_t line = 0; line < 4000; ++line) {
      run.series.rows().push_back({.line = line, .values = {static_cast<double>(line)}});
    }
    run.lines = 4000;
    document.runs.push_back(std::move(run));
  }
  thin(document);
  std::size_t rows = 0;
  for (const ReportedRun& run : document.runs) rows += run.series.rows().size();
  EXPECT_LE(rows, kMostLines);
  ASSERT_EQ(document.notices.size(), 1U);
  EXPECT_THAT(document.notices[0], HasSubstr("of 200000 lines of metrics are shown, of 50 runs"));
}

}  // namespace
}  // namespace sparsewire::report::page_test
