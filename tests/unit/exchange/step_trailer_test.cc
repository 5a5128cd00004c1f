// What travels behind a frame: every bit of it is protected. docs/reference/message_format.md describes the bytes.
#include "exchange/step_trailer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <string>

#include "reference/wire.h"
#include "unit/bits.h"

namespace sparsewire::step_trailer_test {
namespace {

using Kind = Failure::Kind;

const Message kFrame = {std::byte{1}, std::byte{2}, std::byte{3}};

StepTrailer trailer_with(std::optional<Failure> failure) {
  return {.rank = 3,
          .fingerprint = 0x89ABCDEF,
          .step = 0x0102030405060708,
          .weight = 0.75F,
          .is_weight_of_step = true,
          .lr = 0.125F,
          .flags = 0x5A,
          .loss = -2.5,
          .entries = failure ? 0U : 77U,
          .failure = failure};
}

Message message_with(const StepTrailer& trailer) {
  Message message = trailer.failure ? Message() : kFrame;
  append(message, trailer);
  return message;
}

Message answer_with(std::optional<Failure> failure) {
  Message message = failure ? Message() : kFrame;
  append(message, StepOutcome{.failure = failure, .flags = 0x5A, .entries = failure ? 0U : 77U, .loss = -2.5},
         trailer_with({}));
  return message;
}

std::vector<std::optional<Failure>> failures_of_workers() {
  return {std::nullopt, Failure{Kind::bad_gradient, 3, 41}, Failure{Kind::error, 3, 0, Cause("the disk is full")},
          Failure{Kind::error, 3, 0, Cause(std::string(300, 'x'))}, Failure{Kind::error, 3, 0, {}}};
}

std::vector<std::optional<Failure>> failures_of_servers() {
  auto all = failures_of_workers();
  all.push_back(Failure{Kind::unreadable, 2, Failure::kOtherDim});
  all.push_back(Failure{Kind::out_of_step, 7, 12});
  return all;
}

bool same(const std::optional<Failure>& a, const std::optional<Failure>& b) {
  if (!a || !b) return a.has_value() == b.has_value();
  return a->kind == b->kind && a->rank == b->rank && a->index == b->index && a->cause.text() == b->cause.text();
}

TEST(StepTrailer, ComesBackAsItWas) {
  for (const auto& failure : failures_of_workers()) {
    const StepTrailer trailer = trailer_with(failure);
    const Message message = message_with(trailer);
    const auto parsed = split_message(message);
    ASSERT_TRUE(parsed);
    EXPECT_EQ(Message(parsed->frame.begin(), parsed->frame.end()), failure ? Message() : kFrame);
    EXPECT_EQ(parsed->trailer.rank, 3);
    EXPECT_EQ(parsed->trailer.fingerprint, trailer.fingerprint);
    EXPECT_EQ(parsed->trailer.step, trailer.step);
    EXPECT_EQ(parsed->trailer.weight, trailer.weight);
    EXPECT_TRUE(parsed->trailer.is_weight_of_step);
    EXPECT_EQ(parsed->trailer.lr, trailer.lr);
    EXPECT_EQ(parsed->trailer.flags, trailer.flags);
    EXPECT_EQ(parsed->trailer.loss, trailer.loss);
    EXPECT_EQ(parsed->trailer.entries, trailer.entries);
    EXPECT_TRUE(same(parsed->trailer.failure, failure));
    EXPECT_LE(message.size(), kFrame.size() + kMostTrailerSize);
  }
}

TEST(AnAnswersTrailer, ComesBackAsItWas) {
  for (const auto& failure : failures_of_servers()) {
    const Message message = answer_with(failure);
    const ParsedAnswer answer = split_answer(message, 1, trailer_with({}));
    EXPECT_EQ(Message(answer.frame.begin(), answer.frame.end()), failure ? Message() : kFrame);
    EXPECT_TRUE(same(answer.outcome.failure, failure));
    EXPECT_EQ(answer.outcome.flags, 0x5A);
    EXPECT_EQ(answer.outcome.loss, -2.5);
    EXPECT_EQ(answer.outcome.entries, failure ? 0U : 77U);
  }
}

// Whether the message is refused: not the one whose trailer is looked for, and not the other kind either.
bool is_refused(const Message& message) {
  const ParsedAnswer answer = split_answer(message, 5, trailer_with({}));
  const bool is_answer = !same(answer.outcome.failure, Failure{Kind::unreadable, 5, Failure::kNoTrailer});
  return !split_message(message) && !is_answer;
}

std::vector<Message> every_message() {
  std::vector<Message> all;
  for (const auto& failure : failures_of_workers()) all.push_back(message_with(trailer_with(failure)));
  for (const auto& failure : failures_of_servers()) all.push_back(answer_with(failure));
  return all;
}

TEST(StepTrailer, IsRefusedIfAnyBitOfItIsFlipped) {
  for (const Message& message : every_message()) {
    const bool has_frame = std::equal(kFrame.begin(), kFrame.end(), message.begin());
    for (std::size_t i = has_frame ? kFrame.size() : 0; i < message.size(); ++i) {
      for (unsigned bit = 0; bit < 8; ++bit) {
        Message changed = message;
        changed[i] ^= static_cast<std::byte>(1U << bit);
        ASSERT_TRUE(is_refused(changed)) << "bit " << bit << " of byte " << i << " of " << message.size();
      }
    }
  }
}

TEST(StepTrailer, IsRefusedAtAnyOtherLength) {
  for (const Message& message : every_message()) {
    for (std::size_t size = 0; size < message.size(); ++size) {
      const auto cut = static_cast<std::ptrdiff_t>(size);
      ASSERT_TRUE(is_refused(Message(message.begin(), message.begin() + cut))) << size << " of " << message.size();
    }
    const bool has_frame = std::equal(kFrame.begin(), kFrame.end(), message.begin());
    for (std::size_t cut = has_frame ? kFrame.size() + 1 : 1; cut <= message.size(); ++cut) {
      ASSERT_TRUE(is_refused(Message(message.begin() + static_cast<std::ptrdiff_t>(cut), message.end()))) << cut;
    }
    Message longer = message;
    longer.push_back(std::byte{0});
    ASSERT_TRUE(is_refused(longer));
    if (has_frame) continue;
    longer = message;  // a frame in front of a failure
    longer.insert(longer.begin(), kFrame.begin(), kFrame.end());
    ASSERT_TRUE(is_refused(longer));
  }
}

// Byte by byte, from docs/reference/message_format.md, with a checksum that shares nothing with the library's.
TEST(StepTrailer, HasTheDocumentedBytes) {
  const Message message = message_with(trailer_with(Failure{Kind::error, 3, 9, Cause("full")}));
  const unsigned char expected[] = {
      'f',  'u',  'l',  'l',                     // the cause
      'S',  'W',  'S',  'T',  2, 1, 2,    0x5A,  // magic, version, sender, kind, flags
      0xEF, 0xCD, 0xAB, 0x89, 3, 0, 4,    1,     // fingerprint, rank, size of the cause, weight of this step
      8,    7,    6,    5,    4, 3, 2,    1,     // step
      9,    0,    0,    0,    0, 0, 0,    0,     // index
      0,    0,    0,    0,    0, 0, 4,    0xC0,  // loss
      0,    0,    0,    0x3E, 0, 0, 0x40, 0x3F,  // lr, weight
      0,    0,    0,    0};                      // checksum
  Message bytes(sizeof expected);
  std::memcpy(bytes.data(), expected, sizeof expected);
  EXPECT_EQ(message, reference::with_checksum(bytes));
  EXPECT_EQ(message.size(), 4 + kTrailerSize);
}

// Shares of a sum with them would be nonsense.
TEST(StepTrailer, IsRefusedWithAWeightThatIsNone) {
  for (const float wrong : {-1.0F, std::nanf(""), std::numeric_limits<float>::infinity()}) {
    StepTrailer trailer = trailer_with({});
    trailer.weight = wrong;
    EXPECT_FALSE(split_message(message_with(trailer))) << wrong;
  }
}

// A server's message behind a right checksum is no worker's message, and the reverse.
TEST(StepTrailer, TellsWorkersFromServers) {
  EXPECT_FALSE(split_message(answer_with({})));
  const ParsedAnswer answer = split_answer(message_with(trailer_with({})), 1, trailer_with({}));
  EXPECT_TRUE(same(answer.outcome.failure, Failure{Kind::unreadable, 1, Failure::kNoTrailer}));
}

TEST(AnAnswersTrailer, IsRefusedInAnotherStepOrByAnotherWorker) {
  for (const auto& change : std::vector<std::function<void(StepTrailer&)>>{
           [](StepTrailer& own) { own.step += 1; }, [](StepTrailer& own) { own.fingerprint ^= 1; }}) {
    StepTrailer own = trailer_with({});
    change(own);
    const ParsedAnswer answer = split_answer(answer_with({}), 1, own);
    ASSERT_TRUE(answer.outcome.failure);
    EXPECT_EQ(answer.outcome.failure->kind, Kind::out_of_step);
  }
}

TEST(ACause, IsCutBetweenCharacters) {
  EXPECT_EQ(Cause("short").text(), "short");
  EXPECT_EQ(Cause("").text(), "");
  EXPECT_EQ(Cause(std::string(1000, 'a')).text(), std::string(200, 'a'));
  const std::string umlaut = "\xC3\xA4";
  EXPECT_EQ(Cause(std::string(199, 'a') + umlaut).text(), std::string(199, 'a'));
  EXPECT_EQ(Cause(std::string(198, 'a') + umlaut).text(), std::string(198, 'a') + umlaut);
}

}  // namespace
}  // namespace sparsewire::step_trailer_test
