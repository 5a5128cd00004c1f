// Lists in strings.
#include "text/list.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

namespace sparsewire::list_test {
namespace {

TEST(Lists, AreSplitAtEverySeparator) {
  using Pieces = std::vector<std::string>;
  EXPECT_EQ(split_list("a,bc,d", ','), (Pieces{"a", "bc", "d"}));
  EXPECT_EQ(split_list("a,bc", '/'), Pieces{"a,bc"});
  EXPECT_EQ(split_list(",a,", ','), (Pieces{"", "a", ""}));
  EXPECT_EQ(split_list("", ','), Pieces{""});
}

TEST(Lists, OfNumbersHoldNothingElse) {
  EXPECT_EQ(parse_numbers("4/2.5/-1", '/'), (std::vector<double>{4, 2.5, -1}));
  for (const char* written : {"", "1/", "/1", "1//2", "1/x", "1/nan", "inf/1", "1, 2"}) {
    EXPECT_EQ(parse_numbers(written, '/'), std::nullopt) << written;
  }
}

}  // namespace
}  // namespace sparsewire::list_test
