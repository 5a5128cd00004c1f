// What a method makes of its text.
#include "study/method.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sparsewire/errors.h"

namespace sparsewire::study::method_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::ThrowsMessage;
using ::testing::UnorderedElementsAre;

train::TrainConfig config_of(const char* text, const Cell& cell = {.ratio = "0.02", .lr = 0.5}) {
  return Method(text).config({}, cell);
}

TEST(Method, PutsTheRatioOfTheCellWhereASpecTakesOne) {
  EXPECT_EQ(config_of("topk").sparsifier, "topk:ratio=0.02");
  EXPECT_EQ(config_of("rtopk:r=4").sparsifier, "rtopk:r=4,ratio=0.02");
  const train::TrainConfig both = config_of("topk | downlink=regtopk:mu=2");
  EXPECT_EQ(both.sparsifier, "topk:ratio=0.02");
  EXPECT_EQ(both.downlink, "regtopk:mu=2,ratio=0.02");
  EXPECT_EQ(both.lr, 0.5);
}

TEST(Method, LeavesARatioOfItsOwn) {
  for (const char* text : {"topk:ratio=0.5", "topk:k=3", "threshold:lambda=1", "dense"}) {
    SCOPED_TRACE(text);
    EXPECT_FALSE(Method(text).takes_ratio());
    EXPECT_EQ(config_of(text).sparsifier, text);
  }
  const train::TrainConfig down = config_of("topk:k=3 | downlink=topk");  // only the downlink takes it
  EXPECT_EQ(down.sparsifier, "topk:k=3");
  EXPECT_EQ(down.downlink, "topk:ratio=0.02");
}

TEST(Method, SetsWhatStandsBehindTheBar) {
  const Method method("  topk   |  codec=golomb:values=bf16   downlink-codec=raw32 name=small clip=2  scope=layer ");
  EXPECT_EQ(method.spec(), "topk | codec=golomb:values=bf16 downlink-codec=raw32 name=small clip=2 scope=layer");
  EXPECT_EQ(method.name(), "small");
  const train::TrainConfig config = method.config({}, {.ratio = "0.1"});
  EXPECT_EQ(config.codec, "golomb:values=bf16");
  EXPECT_EQ(config.downlink_codec, "raw32");
  EXPECT_EQ(config.clip, 2);
  EXPECT_EQ(config.scope, "layer");
  EXPECT_EQ(Method("topk|feedback=none").name(), "topk | feedback=none");
}

TEST(Method, KeepsCommonSettingsButTheDownlink) {
  train::TrainConfig common;
  common.codec = "raw32";
  common.downlink = "topk:k=1";
  common.exchange = "server";
  const train::TrainConfig config = Method("topk").config(common, {.ratio = "0.1"});
  EXPECT_EQ(config.codec, "raw32");
  EXPECT_EQ(config.exchange, "server");
  EXPECT_EQ(config.downlink, "");
}

TEST(Method, HasAsManyStepsOfTheOptimiserWithLocalSteps) {
  train::TrainConfig common;
  common.steps = 500;
  common.eval_every = 50;
  const Method method("topk | local_steps=30");
  EXPECT_EQ(method.config(common, {.ratio = "0.1"}).steps, 16);
  EXPECT_EQ(method.config(common, {.ratio = "0.1"}).eval_every, 1);
  common.local_steps = 3;
  EXPECT_EQ(method.config(common, {.ratio = "0.1"}).steps, 50);
  common.steps = 5;  // 15 of the optimiser
  EXPECT_EQ(method.config(common, {.ratio = "0.1"}).local_steps, 15);
  EXPECT_EQ(method.config(common, {.ratio = "0.1"}).steps, 1);
  common.steps = 500;
  common.local_steps = 30;
  EXPECT_EQ(method.config(common, {.ratio = "0.1"}).steps, 500);
  EXPECT_EQ(method.config(common, {.ratio = "0.1"}).eval_every, 50);
}

TEST(Method, ExchangesDenseVectorsDenselyUnlessToldOtherwise) {
  EXPECT_EQ(config_of("dense").exchange, "dense");
  EXPECT_EQ(config_of("dense | exchange=server").exchange, "server");
}

TEST(Method, MakesACellOfEachCombinationOfLists) {
  EXPECT_THAT(Method("topk").combinations(), ElementsAre(IsEmpty()));
  EXPECT_THAT(Method("regtopk:mu=1/4 | clip=2/3").combinations(),
              ElementsAre(UnorderedElementsAre(Pair("mu", "1"), Pair("clip", "2")),
                          UnorderedElementsAre(Pair("mu", "1"), Pair("clip", "3")),
                          UnorderedElementsAre(Pair("mu", "4"), Pair("clip", "2")),
                          UnorderedElementsAre(Pair("mu", "4"), Pair("clip", "3"))));
  const Cell cell{.ratio = "0.1", .own = {{"mu", "4"}, {"clip", "3"}}};
  const train::TrainConfig config = Method("regtopk:mu=1/4 | clip=2/3").config({}, cell);
  EXPECT_EQ(config.sparsifier, "regtopk:mu=4,ratio=0.1");
  EXPECT_EQ(config.clip, 3);
  const Cell down{.ratio = "0.1", .own = {{"downlink.r", "8"}}};
  EXPECT_EQ(Method("topk | downlink=rtopk:r=2/8").config({}, down).downlink, "rtopk:r=8,ratio=0.1");
}

TEST(Method, HasLearningRatesOfItsOwnInOrder) {
  EXPECT_THAT(Method("topk").lrs(), IsEmpty());
  EXPECT_THAT(Method("topk | lr=1/0.1/0.5/1").lrs(), ElementsAre(0.1, 0.5, 1));
}

TEST(Method, NeedsAPilotForAThresholdThatIsToBeMeasured) {
  EXPECT_TRUE(Method("threshold").needs_pilot());
  EXPECT_TRUE(Method("threshold:ratio=0.1").needs_pilot());
  EXPECT_TRUE(Method("topk | downlink=threshold").needs_pilot());
  EXPECT_FALSE(Method("threshold:lambda=0.1").needs_pilot());
  EXPECT_FALSE(Method("threshold:rule=sqrt").needs_pilot());
  EXPECT_FALSE(Method("topk").needs_pilot());
}

TEST(Method, TakesMeasuredThresholdsForRatios) {
  train::TrainConfig config = config_of("threshold:dense_below=10 | downlink=threshold");
  set_thresholds(config, 0.25, 0.125);
  EXPECT_EQ(config.sparsifier, "threshold:lambda=0.25,dense_below=10");
  EXPECT_EQ(config.downlink, "threshold:lambda=0.125");
  train::TrainConfig other = config_of("topk");
  set_thresholds(other, 0.25, std::nullopt);
  EXPECT_EQ(other.sparsifier, "topk:ratio=0.02");
}

TEST(Method, RefusesWhatItCannotRead) {
  const auto error = [](const char* text, const char* why) {
    EXPECT_THAT([&] { Method{text}; }, ThrowsMessage<UsageError>(HasSubstr(why))) << text;
  };
  error("", "must begin with one sparsifier");
  error("| downlink=topk", "must begin with one sparsifier");
  error("topk regtopk", "must begin with one sparsifier");
  error("dense,rtopk:r=2,ratio=0.1", "put spaces between methods");
  error("dense,topk | downlink=topk", "put spaces between methods");
  error("topk | downlink", "'downlink' is not of the form option=value");
  error("topk | steps=3", "'steps' cannot stand behind the bar; there are downlink, codec");
  error("topk | sparsifier=dense", "'sparsifier' cannot stand behind the bar");
  error("topk | codec=auto codec=raw32", "'codec' is given twice");
  error("topk | lr=0.1/x", "lr=x is not a number above 0");
  error("topk:k=1/2", "a list of k=");
  error("topk:k=1 | downlink=threshold:ratio=0.1", "the sparsifier needs a ratio");
}

}  // namespace
}  // namespace sparsewire::study::method_test
