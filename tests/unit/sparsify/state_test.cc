// Saving and loading: a sifter continues bit for bit, tensors are found by name, and damaged bytes are refused.
#include "reference/state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <string_view>

#include "sparsewire/errors.h"
#include "unit/sifters.h"
#include "unit/specs.h"
#include "unit/walk.h"

namespace sparsewire::state_test {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using Bytes = std::vector<std::byte>;

constexpr int kBefore = 3;
constexpr int kAfter = 5;

SifterContext three_tensors(Scope scope = Scope::model) {
  return {.layout = layout_of({300, 0, 900}), .scope = scope, .rank = 1, .ranks = 3, .seed = 4};
}

// A step that changes everything that a state holds.
SparseVector step_of(Sifter& sifter, int step, const char* kind = "normal") {
  const Numbers gradient = reference::input(kind).make(sifter.layout().dim(), step, 31);
  SparseVector sent;
  sifter.sift(Gradient(gradient), sent, step < 4 ? 0.5F : 0.25F);
  sifter.observe(sent, made_up_update(sent, three_tensors()));
  return sent;
}

void expect_same(const SiftStats& expected, const SiftStats& actual) {
  EXPECT_EQ(actual.step, expected.step);
  EXPECT_EQ(actual.entries, expected.entries);
  EXPECT_TRUE(same_bits(expected.sent_norm2, actual.sent_norm2));
  EXPECT_TRUE(same_bits(expected.memory_norm2, actual.memory_norm2));
  EXPECT_TRUE(same_bits(expected.total_error, actual.total_error));
}

void expect_continues(Sifter& original, Sifter& restored) {
  ASSERT_TRUE(same_bits(original.memory(), restored.memory()));
  for (int step = kBefore; step < kBefore + kAfter; ++step) {
    SCOPED_TRACE("step " + std::to_string(step));
    ASSERT_TRUE(same_bits(step_of(original, step), step_of(restored, step)));
    ASSERT_TRUE(same_bits(original.memory(), restored.memory()));
    ASSERT_TRUE(same_bits(original.velocity(), restored.velocity()));
    expect_same(original.stats(), restored.stats());
  }
}

class SavedState : public ::testing::TestWithParam<std::string> {};  // the parameter is the sparsifier

INSTANTIATE_TEST_SUITE_P(Specs, SavedState, ::testing::ValuesIn(every_spec()), spec_as_name);

TEST_P(SavedState, ContinuesBitForBit) {
  for (const std::string& feedback : every_feedback()) {
    for (const Scope scope : {Scope::model, Scope::layer}) {
      SCOPED_TRACE(feedback + (scope == Scope::model ? ", model" : ", layer"));
      Sifter original(GetParam(), feedback, three_tensors(scope));
      for (int step = 0; step < kBefore; ++step) step_of(original, step);
      const Bytes saved = original.save();

      Sifter fresh(GetParam(), feedback, three_tensors(scope));
      fresh.load(saved);
      ASSERT_EQ(fresh.save(), saved);
      ASSERT_NO_FATAL_FAILURE(expect_continues(original, fresh));
    }
  }
}

TEST_P(SavedState, ReplacesWhateverWasThereBefore) {
  Sifter original(GetParam(), "momentum:m=0.9", three_tensors());
  for (int step = 0; step < kBefore; ++step) step_of(original, step);
  Sifter used(GetParam(), "momentum:m=0.9", three_tensors());
  for (int step = 0; step < 7; ++step) step_of(used, step, "heavy_tailed");
  used.load(original.save());
  ASSERT_NO_FATAL_FAILURE(expect_continues(original, used));
}

TEST_P(SavedState, ContinuesAlsoFromBeforeTheFirstStep) {
  Sifter original(GetParam(), "ef", three_tensors());
  Sifter restored(GetParam(), "ef", three_tensors());
  step_of(restored, 5);
  restored.load(original.save());
  ASSERT_NO_FATAL_FAILURE(expect_continues(original, restored));
}

TEST_P(SavedState, IsRefusedByAnotherSparsifierOrFeedback) {
  Sifter original(GetParam(), "ef", three_tensors());
  step_of(original, 0);
  const Bytes saved = original.save();
  for (const std::string& spec : every_spec()) {
    if (spec == GetParam()) continue;
    SCOPED_TRACE(spec);
    Sifter other(spec, "ef", three_tensors());
    const Bytes before = other.save();
    EXPECT_THROW(other.load(saved), UsageError);
    EXPECT_EQ(other.save(), before);
  }
  for (const char* feedback : {"none", "momentum:m=0.9"}) {
    Sifter other(GetParam(), feedback, three_tensors());
    EXPECT_THROW(other.load(saved), UsageError);
  }
}

TEST(SavedStateOfThreshold, HoldsItsVote) {
  for (const bool voted : {false, true}) {
    Sifter original("threshold:ratio=0.5,calibrate=1", "ef", {.layout = 4});
    const Numbers gradient = {4, 3, 2, 1};
    SparseVector sent;
    original.sift(Gradient(gradient), sent);
    if (voted) original.set_vote(2.5F);
    Sifter restored("threshold:ratio=0.5,calibrate=1", "ef", {.layout = 4});
    restored.load(original.save());
    ASSERT_TRUE(restored.vote()) << "it is voting until the next step";
    EXPECT_EQ(*restored.vote(), voted ? 2.5F : 3.0F);
  }
}

// load() throws and changes nothing.
void expect_refused(Sifter& sifter, const Bytes& bytes) {
  const Bytes before = sifter.save();
  ASSERT_THROW(sifter.load(bytes), UsageError);
  ASSERT_EQ(sifter.save(), before);
}

TEST_P(SavedState, IsRefusedWhenCutOffAnywhereOrOneBitIsWrong) {
  const SifterContext small{.layout = layout_of({5, 3}), .ranks = 2};
  Sifter original(GetParam(), "momentum:m=0.9", small);
  for (int step = 0; step < 2; ++step) step_of(original, step);
  const Bytes saved = original.save();

  Sifter sifter(GetParam(), "momentum:m=0.9", small);
  step_of(sifter, 9);
  for (std::size_t size = 0; size < saved.size(); ++size) {
    SCOPED_TRACE("cut to " + std::to_string(size));
    ASSERT_NO_FATAL_FAILURE(
        expect_refused(sifter, Bytes(saved.begin(), saved.begin() + static_cast<std::ptrdiff_t>(size))));
  }
  for (std::size_t bit = 0; bit < 8 * saved.size(); ++bit) {
    SCOPED_TRACE("bit " + std::to_string(bit));
    Bytes damaged = saved;
    damaged[bit / 8] ^= std::byte{1} << (bit % 8);
    ASSERT_NO_FATAL_FAILURE(expect_refused(sifter, damaged));
  }
  Bytes longer = saved;
  longer.push_back(std::byte{0});
  ASSERT_NO_FATAL_FAILURE(expect_refused(sifter, longer));
  EXPECT_NO_THROW(sifter.load(saved));
}

// The same tensors in the order of another layout.
Numbers reordered(std::span<const float> numbers, const Layout& from, const Layout& to) {
  Numbers result;
  for (const TensorRange& tensor : to.tensors()) {
    const std::span<const float> part = numbers.subspan(from.find(tensor.name)->begin, tensor.size);
    result.insert(result.end(), part.begin(), part.end());
  }
  return result;
}

Numbers dense_form(const SparseVector& sent) {
  Numbers dense(sent.dim);
  for (std::size_t i = 0; i < sent.size(); ++i) dense[sent.index(i)] = sent.values[i];
  return dense;
}

Layout tensors_in_order() { return Layout({{"a", 200, 0}, {"b", 10, 0}, {"empty", 0, 0}, {"c", 500, 0}}); }
Layout tensors_in_another_order() { return Layout({{"c", 500, 0}, {"a", 200, 0}, {"empty", 0, 0}, {"b", 10, 0}}); }

// These sparsifiers look only at the numbers, so they send the same entries in either order. Others draw by index.
TEST(SavedStateOfTensors, FindsTensorsByNameInAnotherOrder) {
  const Layout from = tensors_in_order();
  const Layout to = tensors_in_another_order();
  for (const char* spec : {"topk:ratio=0.05", "topk:ratio=0.05,dense_below=20", "regtopk:ratio=0.05,mu=1",
                           "regtopk:ratio=0.1,mu=2,form=b", "threshold:lambda=2", "threshold:ratio=0.05,calibrate=4"}) {
    for (const char* feedback : {"ef", "momentum:m=0.9"}) {
      SCOPED_TRACE(std::string(spec) + " " + feedback);
      Sifter original(spec, feedback, {.layout = from, .ranks = 2});
      for (int step = 0; step < kBefore; ++step) step_of(original, step);
      Sifter restored(spec, feedback, {.layout = to, .ranks = 2});
      restored.load(original.save());
      if (!original.velocity().empty()) {
        EXPECT_TRUE(same_bits(reordered(original.velocity(), from, to), restored.velocity()));
      }
      for (int step = kBefore; step < kBefore + kAfter; ++step) {
        SCOPED_TRACE("step " + std::to_string(step));
        ASSERT_TRUE(same_bits(reordered(original.memory(), from, to), restored.memory()));
        const Numbers gradient = reference::input("normal").make(from.dim(), step, 33);
        SparseVector sent;
        SparseVector sent_reordered;
        original.sift(Gradient(gradient), sent);
        restored.sift(Gradient(reordered(gradient, from, to)), sent_reordered);
        ASSERT_EQ(reordered(dense_form(sent), from, to), dense_form(sent_reordered));
      }
    }
  }
}

TEST_P(SavedState, KeepsTheMemoryOfEveryTensorInAnotherOrder) {
  Sifter original(GetParam(), "ef", {.layout = tensors_in_order()});
  for (int step = 0; step < kBefore; ++step) step_of(original, step);
  Sifter restored(GetParam(), "ef", {.layout = tensors_in_another_order()});
  restored.load(original.save());
  EXPECT_TRUE(same_bits(reordered(original.memory(), original.layout(), restored.layout()), restored.memory()));
  EXPECT_EQ(restored.stats().step, original.stats().step);
  EXPECT_NO_THROW(step_of(restored, kBefore));
}

TEST_P(SavedState, GivesSomeOfTheTensorsToASmallerSifter) {
  const Layout some({{"c", 500, 0}, {"b", 10, 0}});
  Sifter original(GetParam(), "momentum:m=0.9", {.layout = tensors_in_order()});
  for (int step = 0; step < kBefore; ++step) step_of(original, step);
  Sifter restored(GetParam(), "momentum:m=0.9", {.layout = some});
  restored.load(original.save());
  EXPECT_TRUE(same_bits(reordered(original.memory(), original.layout(), some), restored.memory()));
  EXPECT_TRUE(same_bits(reordered(original.velocity(), original.layout(), some), restored.velocity()));
  EXPECT_NO_THROW(step_of(restored, kBefore));
}

TEST_P(SavedState, IsRefusedWhenATensorIsMissingOrOfAnotherSize) {
  Sifter original(GetParam(), "ef", {.layout = tensors_in_order()});
  step_of(original, 0);
  const Bytes saved = original.save();
  for (const Layout& layout : {Layout({{"a", 200, 0}, {"d", 10, 0}}), Layout({{"a", 199, 0}, {"b", 10, 0}})}) {
    Sifter other(GetParam(), "ef", {.layout = layout});
    step_of(other, 1);
    ASSERT_NO_FATAL_FAILURE(expect_refused(other, saved));
  }
}

std::size_t find(const Bytes& state, std::string_view name) {
  const auto* const begin = reinterpret_cast<const char*>(state.data());
  const std::string_view all(begin, state.size());
  const std::size_t at = all.find(std::string(1, static_cast<char>(name.size())) + std::string(name));
  EXPECT_NE(at, std::string_view::npos) << name;
  return at + 1;
}

TEST_P(SavedState, ChangesNothingIfOnlyItsEndIsWrong) {
  Sifter original(GetParam(), "ef", three_tensors());
  for (int step = 0; step < kBefore; ++step) step_of(original, step);
  Bytes state = original.save();
  state[find(state, "step")] = std::byte{'S'};  // the sparsifier's: read after the memory and the stats
  Sifter other(GetParam(), "ef", three_tensors());
  step_of(other, 7);
  const Bytes before = other.save();
  EXPECT_THAT([&] { other.load(reference::with_checksums(state)); },
              ThrowsMessage<UsageError>(HasSubstr("'step' is missing")));
  EXPECT_EQ(other.save(), before);
}

// As a later version may write it: more optional fields, also of the sparsifier, and another order.
TEST_P(SavedState, IsReadWithUnknownOptionalFieldsInAnyOrder) {
  Sifter original(GetParam(), "ef", three_tensors());
  for (int step = 0; step < kBefore; ++step) step_of(original, step);
  const auto with_more = [](const Bytes& state, bool is_optional) {
    std::vector<reference::StateField> fields = reference::read_state(state);
    fields.push_back({"unknown_here", Bytes(3), is_optional});
    std::reverse(fields.begin(), fields.end());
    return fields;
  };
  for (const bool outer_is_optional : {true, false}) {
    for (const bool inner_is_optional : {true, false}) {
      std::vector<reference::StateField> fields = with_more(original.save(), outer_is_optional);
      const auto own = std::find_if(fields.begin(), fields.end(),
                                    [](const auto& field) { return field.name == "sparsifier_state"; });
      ASSERT_NE(own, fields.end());
      own->data = reference::write_state(with_more(own->data, inner_is_optional));
      const Bytes state = reference::write_state(fields);
      Sifter other(GetParam(), "ef", three_tensors());
      step_of(other, 7);
      if (outer_is_optional && inner_is_optional) {
        other.load(state);
        EXPECT_EQ(other.save(), original.save());
      } else {
        ASSERT_NO_FATAL_FAILURE(expect_refused(other, state));
      }
    }
  }
}

TEST(SavedStateOfALayout, IsRefusedIfTheMemoryHasAnotherSize) {
  Sifter original("topk:k=1", "ef", {.layout = 8});
  Bytes state = original.save();
  state[find(state, "tensor_sizes") + std::string_view("tensor_sizes").size() + 8] = std::byte{9};
  Sifter larger("topk:k=1", "ef", {.layout = 9});
  EXPECT_THROW(larger.load(reference::with_checksums(state)), UsageError);
}

TEST(SavedStateOfThreshold, IsRefusedIfAFlagOrANumberIsInvalid) {
  Sifter original("threshold:ratio=0.1", "ef", {.layout = 8});
  const Bytes good = original.save();
  const auto loading = [&](const Bytes& state) {
    return [&original, &state] { original.load(reference::with_checksums(state)); };
  };
  Bytes flag = good;
  flag[find(flag, "voting") + std::string_view("voting").size() + 8] = std::byte{187};
  EXPECT_THAT(loading(flag), ThrowsMessage<UsageError>(HasSubstr("'voting' is neither 0 nor 1")));
  Bytes lambda = good;
  lambda[find(lambda, "lambda") + std::string_view("lambda").size() + 8 + 3] = std::byte{0x7F};
  lambda[find(lambda, "lambda") + std::string_view("lambda").size() + 8 + 2] = std::byte{0xC0};  // NaN
  EXPECT_THAT(loading(lambda), ThrowsMessage<UsageError>(HasSubstr("cannot have been measured")));
  Bytes memory = good;
  memory[find(memory, "memory") + std::string_view("memory").size() + 8 + 3] = std::byte{0x7F};
  memory[find(memory, "memory") + std::string_view("memory").size() + 8 + 2] = std::byte{0x80};  // infinity
  EXPECT_THAT(loading(memory), ThrowsMessage<UsageError>(HasSubstr("not finite")));
  EXPECT_EQ(original.save(), good);
}

// The update of the last step decides which entries are sent, also if the tensors are in another order.
TEST(SavedStateOfRegTopK, FindsItsLastRoundInAnotherOrder) {
  const auto context = [](std::vector<TensorRange> tensors) {
    return SifterContext{.layout = Layout(std::move(tensors)), .ranks = 2};
  };
  Sifter original("regtopk:k=2,mu=1", "ef", context({{"a", 2}, {"b", 2}}));
  SparseVector sent;
  original.sift(std::vector<float>{8, 1, 9, 2}, sent);
  ASSERT_EQ(sent.indices, (std::vector<std::uint32_t>{0, 2}));
  original.observe(sent, std::vector<float>{0, 0});  // both cancelled
  Sifter reversed("regtopk:k=2,mu=1", "ef", context({{"b", 2}, {"a", 2}}));
  reversed.load(original.save());
  reversed.sift(std::vector<float>{9, 2, 8, 1}, sent);
  EXPECT_EQ(sent.indices, (std::vector<std::uint32_t>{1, 3}));
}

}  // namespace
}  // namespace sparsewire::state_test
