// The bytes of a saved state: fields are found by name, and what is damaged or not known is refused by name.
#include "sparsewire/state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "reference/state.h"
#include "sparsewire/errors.h"

namespace sparsewire::state_test {
namespace {

using reference::StateField;
using reference::write_state;
using ::testing::HasSubstr;
using Bytes = std::vector<std::byte>;

template <class T>
Bytes bytes_of(const T& value) {
  Bytes bytes(sizeof value);
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

StateField field(const std::string& name, std::uint32_t value, bool is_optional = false) {
  return {.name = name, .data = bytes_of(value), .is_optional = is_optional};
}

std::uint32_t read(State& state, std::string_view name) {
  std::uint32_t value = 0;
  state.value(name, value);
  return value;
}

// What the UsageError says that `action` throws.
template <class Action>
std::string refusal(Action action) {
  try {
    action();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

// A class as users write it.
struct Everything {
  std::uint64_t number = 0;
  std::vector<float> history;
  std::string text;
  bool flag = false;
  float later = 0;
  bool has_later = false;

  void serialize(State& state) {
    state.value("number", number);
    state.array("history", history);
    state.string("text", text);
    state.flag("flag", flag);
    has_later = state.optional_value("later", later);
  }
};

Bytes saved_everything() {
  Everything all{.number = 7, .history = {1, -2.5F}, .text = "ab", .flag = true, .later = 0.5F};
  State state;
  all.serialize(state);
  return std::move(state).bytes();
}

std::vector<StateField> fields_of_everything() {
  return {{"number", bytes_of(std::uint64_t{7})},
          {"history", bytes_of(std::array{1.0F, -2.5F})},
          {"text", bytes_of(std::array{'a', 'b'})},
          {"flag", {std::byte{1}}},
          {"later", bytes_of(0.5F), true}};
}

Everything loaded(const Bytes& bytes) {
  State state(bytes);
  Everything all;
  all.serialize(state);
  state.finish();
  return all;
}

void expect_everything(const Everything& all) {
  EXPECT_EQ(all.number, 7U);
  EXPECT_EQ(all.history, (std::vector<float>{1, -2.5F}));
  EXPECT_EQ(all.text, "ab");
  EXPECT_TRUE(all.flag);
}

TEST(State, HasTheBytesThatItsPageDescribes) {
  EXPECT_EQ(saved_everything(), write_state(fields_of_everything()));
  EXPECT_EQ(State().bytes(), write_state({}));
}

TEST(State, FindsFieldsInAnyOrder) {
  std::vector<StateField> fields = fields_of_everything();
  for (std::size_t i = 0; i < fields.size(); ++i) {
    std::rotate(fields.begin(), fields.begin() + 1, fields.end());
    const Everything all = loaded(write_state(fields));
    expect_everything(all);
    EXPECT_TRUE(all.has_later);
    EXPECT_EQ(all.later, 0.5F);
  }
}

TEST(State, SkipsOptionalFieldsThatItDoesNotKnow) {
  std::vector<StateField> fields = fields_of_everything();
  fields.insert(fields.begin() + 1, field("of_another_version", 3, true));
  expect_everything(loaded(write_state(fields)));
}

TEST(State, RefusesRequiredFieldsThatItDoesNotKnowAndNamesThem) {
  std::vector<StateField> fields = fields_of_everything();
  fields.insert(fields.begin() + 1, field("of_another_version", 3));
  EXPECT_THAT(refusal([&] { loaded(write_state(fields)); }), HasSubstr("'of_another_version' is not known"));
}

TEST(State, NamesAFieldThatIsMissing) {
  const std::vector<StateField> all = fields_of_everything();
  for (std::size_t i = 0; i + 1 < all.size(); ++i) {
    std::vector<StateField> fields = all;
    fields.erase(fields.begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_THAT(refusal([&] { loaded(write_state(fields)); }), HasSubstr("'" + all[i].name + "' is missing"));
  }
}

TEST(State, LeavesTheValueOfAnOptionalFieldThatIsMissing) {
  std::vector<StateField> fields = fields_of_everything();
  fields.pop_back();
  const Bytes bytes = write_state(fields);
  State state(bytes);
  EXPECT_FALSE(state.has("later"));
  Everything all;
  all.later = 9;
  all.serialize(state);
  state.finish();
  EXPECT_FALSE(all.has_later);
  EXPECT_EQ(all.later, 9.0F);
}

// So that an optional field can become a required one, and the reverse.
TEST(State, ReadsAFieldThatIsOptionalHereOrThere) {
  const Bytes bytes = write_state({field("a", 1, true), field("b", 2, false)});
  State state(bytes);
  EXPECT_EQ(read(state, "a"), 1U);
  std::uint32_t b = 0;
  EXPECT_TRUE(state.optional_value("b", b));
  EXPECT_EQ(b, 2U);
  state.finish();
}

TEST(State, RefusesAFieldOfAnotherSize) {
  const Bytes bytes = write_state({field("a", 1), {"b", Bytes(7)}, field("c", 1, true)});
  State state(bytes);
  std::uint64_t wide = 5;
  EXPECT_THAT(refusal([&] { state.value("a", wide); }), HasSubstr("'a' has the wrong size"));
  EXPECT_THAT(refusal([&] { state.optional_value("c", wide); }), HasSubstr("'c' has the wrong size"));
  EXPECT_EQ(wide, 5U);
  std::vector<std::uint32_t> array = {5};
  EXPECT_THAT(refusal([&] { state.array("b", array); }), HasSubstr("'b' has the wrong size"));
  EXPECT_EQ(array, std::vector<std::uint32_t>{5});
}

TEST(State, RefusesAFlagThatIsNeither0Nor1) {
  const Bytes bytes = write_state({{"a", {std::byte{2}}}});
  State state(bytes);
  bool flag = true;
  EXPECT_THAT(refusal([&] { state.flag("a", flag); }), HasSubstr("'a' is neither 0 nor 1"));
  EXPECT_TRUE(flag);
}

TEST(State, RefusesAFieldTwice) {
  for (const bool is_optional : {false, true}) {
    const Bytes bytes = write_state({field("a", 1), field("b", 1), field("a", 1, is_optional)});
    EXPECT_THAT(refusal([&] { State state(bytes); }), HasSubstr("'a' is there twice"));
  }
  State state;
  std::uint32_t value = 1;
  state.value("a", value);
  EXPECT_THAT(refusal([&] { state.value("a", value); }), HasSubstr("'a' is written twice"));
  EXPECT_THAT(refusal([&] { state.optional_value("a", value); }), HasSubstr("'a' is written twice"));
  EXPECT_EQ(std::move(state).bytes(), write_state({field("a", 1)})) << "what was refused is not in it";
}

TEST(State, TakesNamesOfUpTo127Bytes) {
  const std::string longest(127, 'n');
  for (const bool is_optional : {false, true}) {
    State state;
    std::uint32_t value = 4;
    if (is_optional) {
      state.optional_value(longest, value);
    } else {
      state.value(longest, value);
    }
    EXPECT_THROW(state.value(std::string(128, 'n'), value), UsageError);
    EXPECT_THROW(state.optional_value(std::string(128, 'n'), value), UsageError);
    EXPECT_THROW(state.value(std::string(256, 'n'), value), UsageError);
    const Bytes bytes = std::move(state).bytes();
    EXPECT_EQ(bytes, write_state({field(longest, 4, is_optional)}));
    State back(bytes);
    EXPECT_EQ(read(back, longest), 4U);
  }
}

TEST(State, TakesAnEmptyNameAndEmptyData) {
  const Bytes bytes = write_state({{"", {}}, {"a", {}}});
  State state(bytes);
  std::vector<float> nothing = {1};
  state.array("", nothing);
  EXPECT_TRUE(nothing.empty());
  std::string text = "x";
  state.string("a", text);
  EXPECT_EQ(text, "");
  state.finish();
}

TEST(State, IsRefusedWhenCutOffAnywhereOrLonger) {
  const Bytes whole = saved_everything();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_THROW(State(std::span(whole).first(size)), UsageError) << size;
  }
  Bytes longer = whole;
  longer.push_back(std::byte{0});
  EXPECT_THROW(State{longer}, UsageError);
}

// With a correct length and checksum.
TEST(State, IsRefusedWhenItsFieldsAreCutOffAnywhere) {
  const Bytes whole = write_state({field("abc", 1), {"de", Bytes(3), true}});
  const std::size_t end_of_first = 16 + 1 + 3 + 8 + 4;
  for (std::size_t size = 17; size + 4 < whole.size(); ++size) {
    Bytes cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    const std::uint64_t length = size - 16;
    std::memcpy(cut.data() + 8, &length, 8);
    cut.resize(size + 4);
    cut = reference::with_checksum(cut);
    if (size == end_of_first) {
      EXPECT_NO_THROW(State{cut});
    } else {
      EXPECT_THAT(refusal([&] { State state(cut); }), HasSubstr("truncated")) << size;
    }
  }
}

TEST(State, IsRefusedWhenAFieldIsLongerThanAllBytes) {
  for (const std::uint64_t size : {std::uint64_t{5}, std::uint64_t{1} << 63U, ~std::uint64_t{0}, ~std::uint64_t{9}}) {
    Bytes bytes = write_state({field("abc", 1)});
    std::memcpy(bytes.data() + 16 + 1 + 3, &size, 8);
    EXPECT_THAT(refusal([&] { State state(reference::with_checksum(bytes)); }), HasSubstr("'abc' is truncated"));
  }
}

TEST(State, IsRefusedWhenAnyBitIsWrong) {
  const Bytes whole = saved_everything();
  for (std::size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    Bytes damaged = whole;
    damaged[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_THROW(State{damaged}, UsageError) << bit;
  }
}

TEST(State, HasAtMost1000Fields) {
  std::vector<StateField> fields;
  State state;
  std::uint32_t value = 1;
  for (int i = 0; i < 1000; ++i) {
    fields.push_back(field("f" + std::to_string(i), 1));
    state.value(fields.back().name, value);
  }
  const Bytes most = write_state(fields);
  State back(most);
  EXPECT_EQ(read(back, "f999"), 1U);
  EXPECT_THAT(refusal([&] { state.value("one_more", value); }), HasSubstr("more than 1000 fields"));
  EXPECT_EQ(std::move(state).bytes(), most);
  fields.push_back(field("one_more", 1));
  const Bytes more = write_state(fields);
  EXPECT_THAT(refusal([&] { State too_many(more); }), HasSubstr("more than 1000 fields"));
}

TEST(State, RefusesOtherVersionsAndNamesThem) {
  for (const std::uint32_t version : {0U, 3U, 0x01000001U}) {
    const Bytes bytes = write_state(fields_of_everything(), version);
    EXPECT_THAT(refusal([&] { State state(bytes); }), HasSubstr("version " + std::to_string(version) + ";"));
  }
}

TEST(State, OfVersion1IsRead) {
  std::vector<StateField> fields = fields_of_everything();
  fields.pop_back();
  const Everything all = loaded(write_state(fields, 1));
  expect_everything(all);
  EXPECT_FALSE(all.has_later);
}

TEST(State, OfVersion1HasNoOptionalFields) {
  const std::string name(130, 'n');  // its length has the bit that says "optional" in version 2
  const Bytes bytes = write_state({field(name, 6), field("a", 1)}, 1);
  State state(bytes);
  EXPECT_EQ(read(state, "a"), 1U);
  EXPECT_THAT(refusal([&] { state.finish(); }), HasSubstr(name + "' is not known"));
  EXPECT_EQ(read(state, name), 6U);
  state.finish();
}

TEST(State, CanHoldAStateWithTheSameNames) {
  const auto serialize = [](State& state, std::uint32_t& outer, std::uint32_t& inner) {
    state.value("a", outer);
    state.nested("inside", [&](State& inside) { inside.value("a", inner); });
  };
  std::uint32_t outer = 1;
  std::uint32_t inner = 2;
  State state;
  serialize(state, outer, inner);
  const Bytes bytes = std::move(state).bytes();
  EXPECT_EQ(bytes, write_state({field("a", 1), {"inside", write_state({field("a", 2)})}}));
  State back(bytes);
  outer = inner = 0;
  serialize(back, outer, inner);
  back.finish();
  EXPECT_EQ(outer, 1U);
  EXPECT_EQ(inner, 2U);
}

TEST(State, RefusesAStateInsideThatIsDamagedOrNotAllKnown) {
  const auto read_inside = [](const Bytes& inside) {
    const Bytes bytes = write_state({{"inside", inside}});
    State state(bytes);
    state.nested("inside", [](State& own) { read(own, "a"); });
  };
  const Bytes good = write_state({field("a", 2), field("b", 3, true)});
  EXPECT_NO_THROW(read_inside(good));
  EXPECT_THAT(refusal([&] {
                read_inside(write_state({field("a", 2), field("b", 3)}));
              }),
              HasSubstr("'b' is not known"));
  EXPECT_THAT(refusal([&] { read_inside(write_state({field("b", 3)})); }), HasSubstr("'a' is missing"));
  EXPECT_THAT(refusal([&] { read_inside({}); }), HasSubstr("not a saved state"));
  for (std::size_t i = 0; i < good.size(); ++i) {
    Bytes damaged = good;
    damaged[i] ^= std::byte{1};
    EXPECT_THROW(read_inside(damaged), UsageError) << i;
  }
}

TEST(State, GivesAStateInsideItsRemapping) {
  const Bytes bytes = write_state({{"inside", write_state({})}});
  State state(bytes);
  state.remap_index = [](std::uint32_t index) { return std::optional(index + 5); };
  state.nested("inside", [](State& own) { EXPECT_EQ(own.remap_index(2), 7U); });
}

TEST(State, GivesALayoutBack) {
  for (const Layout& layout : {Layout({{"a", 3}, {"", 0}, {"c", 5}}), Layout(std::vector<TensorRange>{}), Layout(7)}) {
    State state;
    serialize_layout(state, layout);
    const Bytes bytes = std::move(state).bytes();
    State back(bytes);
    EXPECT_EQ(serialize_layout(back, Layout(1)), layout);
    back.finish();
  }
}

TEST(State, RefusesALayoutWithMoreOrFewerNamesThanTensors) {
  const Bytes one_size = bytes_of(std::uint64_t{3});
  const auto names = [](std::string_view text) {
    Bytes bytes(text.size());
    std::memcpy(bytes.data(), text.data(), text.size());
    return bytes;
  };
  const auto refused = [&](const Bytes& text) {
    return refusal([&] {
      const Bytes bytes = write_state({{"tensor_sizes", one_size}, {"tensor_names", text}});
      State state(bytes);
      serialize_layout(state, Layout(1));
    });
  };
  EXPECT_THAT(refused({}), HasSubstr("fewer tensor names"));
  EXPECT_THAT(refused(names("a")), HasSubstr("fewer tensor names"));
  EXPECT_THAT(refused(names(std::string_view("a\0b\0", 4))), HasSubstr("more tensor names"));
}

}  // namespace
}  // namespace sparsewire::state_test
