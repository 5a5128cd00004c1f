// Wrong specs are refused at construction, with a message that names the value and the allowed ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "sparsewire/errors.h"
#include "sparsewire/sifter.h"
#include "sparsewire/sparsifier.h"
#include "unit/bare_sparsifier.h"
#include "unit/specs.h"

namespace sparsewire::spec_errors_test {
namespace {

using ::testing::HasSubstr;

struct Wrong {
  std::string spec;
  std::vector<std::string> says;  // parts of the message
};

// The message of the UsageError that `make` throws, or an empty string.
template <class Make>
std::string complaint(Make&& make) {
  try {
    make();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

template <class Make>
void expect_refused(const std::vector<Wrong>& specs, Make&& make) {
  for (const Wrong& wrong : specs) {
    SCOPED_TRACE("\"" + wrong.spec + "\"");
    const std::string message = complaint([&] { make(wrong.spec); });
    EXPECT_FALSE(message.empty()) << "was accepted";
    for (const std::string& part : wrong.says) EXPECT_THAT(message, HasSubstr(part));
  }
}

void expect_sparsifiers_refused(const std::vector<Wrong>& specs) {
  expect_refused(specs, [](const std::string& spec) { make_bare(spec, {.layout = 100}); });
}

TEST(BadSpec, HasTheDocumentedMessage) {
  EXPECT_EQ(complaint([] { make_bare("topk:ratio=7", {.layout = 100}); }), "[topk] ratio=7 is not in (0, 1]");
}

TEST(BadSpec, OfAnUnknownNameListsTheKnownOnes) {
  for (const char* spec : {"top", "topkk:ratio=0.1", "TOPK:ratio=0.1", " topk:ratio=0.1", "nosuch"}) {
    SCOPED_TRACE(spec);
    const std::string message = complaint([&] { make_bare(spec, {.layout = 100}); });
    for (const SparsifierInfo& info : sparsifiers()) EXPECT_THAT(message, HasSubstr(std::string(info.name)));
  }
}

TEST(BadSpec, OfAnUnknownKeyListsTheKnownOnes) {
  expect_sparsifiers_refused({{"topk:ratio=0.1,nosuch=1", {"[topk]", "nosuch", "ratio", "chunk", "dense_below"}},
                              {"topk:ratio=0.1,lambda=1", {"[topk]", "lambda"}},
                              {"randomk:ratio=0.1,chunk=5", {"[randomk]", "chunk", "seed", "shared"}},
                              {"rtopk:ratio=0.1,mu=1", {"[rtopk]", "mu", "r_ratio"}},
                              {"threshold:lambda=1,mu=1", {"[threshold]", "mu", "calibrate"}},
                              {"regtopk:ratio=0.1,r=2", {"[regtopk]", "form", "weight"}},
                              {"dense:ratio=0.1", {"[dense]", "ratio"}}});
}

TEST(BadSpec, NamesAMisspeltKeyRatherThanTheMissingOne) {
  EXPECT_NE(complaint([] { make_bare("topk:ratoi=0.1", {.layout = 100}); }).find("unknown key 'ratoi'"),
            std::string::npos);
  EXPECT_NE(complaint([] { make_bare("threshold:k=10", {.layout = 100}); }).find("unknown key 'k'"), std::string::npos);
}

TEST(BadSpec, IsRefusedWhenItIsNotKeysAndValues) {
  expect_sparsifiers_refused({{"", {}},
                              {":ratio=0.1", {}},
                              {"topk:", {"[topk]"}},
                              {"topk:ratio", {"[topk]", "ratio"}},
                              {"topk:ratio=", {"[topk]", "ratio"}},
                              {"topk:=0.1", {"[topk]"}},
                              {"topk:ratio=0.1,", {"[topk]"}},
                              {"topk:ratio=0.1,,k=1", {"[topk]"}},
                              {"topk:ratio=0.1,ratio=0.1", {"[topk]", "ratio"}},
                              {"topk:ratio=abc", {"[topk]", "ratio=abc"}},
                              {"topk:ratio=0.1x", {"[topk]", "ratio=0.1x"}},
                              {"topk:ratio= 0.1", {"[topk]", "ratio"}},
                              {"topk:k=1.5", {"[topk]", "k=1.5"}},
                              {"topk:k=1e1x", {"[topk]", "k=1e1x"}},
                              {"topk:k=99999999999999999999999", {"[topk]", "k=99999999999999999999999"}}});
}

TEST(BadSpec, NamesTheCountThatDoesNotFit) {
  for (const char* name : {"topk", "randomk", "rtopk", "regtopk"}) {
    const std::string start = std::string(name) + ":";
    const std::string tag = "[" + std::string(name) + "]";
    expect_sparsifiers_refused({{name, {tag, "ratio", "k"}},
                                {start + "ratio=0", {tag, "ratio=0", "(0, 1]"}},
                                {start + "ratio=-0.1", {tag, "ratio=-0.1", "(0, 1]"}},
                                {start + "ratio=7", {tag, "ratio=7", "(0, 1]"}},
                                {start + "ratio=1.0001", {tag, "ratio=1.0001", "(0, 1]"}},
                                {start + "ratio=nan", {tag, "ratio=nan", "(0, 1]"}},
                                {start + "ratio=inf", {tag, "ratio=inf", "(0, 1]"}},
                                {start + "k=0", {tag, "k=0"}},
                                {start + "k=-1", {tag, "k=-1"}},
                                {start + "k=101", {tag, "k=101", "100"}},
                                {start + "ratio=0.1,k=10", {tag, "ratio", "k"}},
                                {start + "ratio=0.1,dense_below=-1", {tag, "dense_below=-1"}},
                                {start + "k=10,warmup_from=0.5,warmup_steps=3", {tag, "warmup"}},
                                {start + "ratio=0.1,warmup_from=7,warmup_steps=3", {tag, "warmup_from=7", "(0, 1]"}},
                                {start + "ratio=0.1,warmup_from=0,warmup_steps=3", {tag, "warmup_from=0"}},
                                {start + "ratio=0.1,warmup_from=nan,warmup_steps=3", {tag, "warmup_from=nan"}},
                                {start + "ratio=0.1,warmup_from=0.5,warmup_steps=-3", {tag, "warmup_steps=-3"}},
                                {start + "ratio=0.1,warmup_from=0.5", {tag, "warmup"}},
                                {start + "ratio=0.1,warmup_steps=5", {tag, "warmup"}}});
  }
}

TEST(BadSpec, OfTopKNamesTheChunk) {
  expect_sparsifiers_refused({{"topk:ratio=0.1,chunk=0", {"[topk]", "chunk=0"}},
                              {"topk:ratio=0.1,chunk=-5", {"[topk]", "chunk=-5"}},
                              {"topk:k=65,chunk=64", {"[topk]", "k=65", "64"}}});
}

TEST(BadSpec, OfRandomKNamesTheSeedOrWhetherItIsShared) {
  expect_sparsifiers_refused(
      {{"randomk:ratio=0.1,seed=-1", {"[randomk]", "seed=-1"}},
       {"randomk:ratio=0.1,seed=x", {"[randomk]", "seed=x"}},
       {"randomk:ratio=0.1,seed=18446744073709551616", {"[randomk]", "seed=18446744073709551616"}},
       {"randomk:ratio=0.1,shared=maybe", {"[randomk]", "shared=maybe", "true", "false"}}});
}

TEST(BadSpec, OfRTopKNamesAnRBelowK) {
  expect_sparsifiers_refused({{"rtopk:ratio=0.1,r=0.5", {"[rtopk]", "r=0.5"}},
                              {"rtopk:ratio=0.1,r=0", {"[rtopk]", "r=0"}},
                              {"rtopk:ratio=0.1,r=-2", {"[rtopk]", "r=-2"}},
                              {"rtopk:ratio=0.1,r=nan", {"[rtopk]", "r=nan"}},
                              {"rtopk:ratio=0.1,r_ratio=0", {"[rtopk]", "r_ratio=0"}},
                              {"rtopk:ratio=0.1,r_ratio=1.5", {"[rtopk]", "r_ratio=1.5"}},
                              {"rtopk:ratio=0.1,r_ratio=0.05", {"[rtopk]", "r_ratio=0.05"}},
                              {"rtopk:ratio=0.1,r=2,r_ratio=0.2", {"[rtopk]", "r", "r_ratio"}}});
}

TEST(BadSpec, OfThresholdNamesWhatLambdaCannotBe) {
  expect_sparsifiers_refused({{"threshold", {"[threshold]", "lambda", "ratio"}},
                              {"threshold:lambda=-1", {"[threshold]", "lambda=-1"}},
                              {"threshold:lambda=nan", {"[threshold]", "lambda=nan"}},
                              {"threshold:lambda=inf", {"[threshold]", "lambda=inf"}},
                              {"threshold:lambda=1,ratio=0.1", {"[threshold]", "lambda", "ratio"}},
                              {"threshold:lambda=1,calibrate=5", {"[threshold]", "calibrate"}},
                              {"threshold:lambda=1,rule=sqrt", {"[threshold]", "rule"}},
                              {"threshold:rule=sqrt", {"[threshold]", "ratio"}},
                              {"threshold:calibrate=5", {"[threshold]", "ratio"}},
                              {"threshold:ratio=7", {"[threshold]", "ratio=7", "(0, 1]"}},
                              {"threshold:ratio=0.1,calibrate=0", {"[threshold]", "calibrate=0"}},
                              {"threshold:ratio=0.1,calibrate=-1", {"[threshold]", "calibrate=-1"}},
                              {"threshold:ratio=0.1,rule=cube", {"[threshold]", "rule=cube", "sqrt"}},
                              {"threshold:ratio=0.1,rule=sqrt,calibrate=5", {"[threshold]", "calibrate"}}});
}

TEST(BadSpec, OfRegTopKNamesTheParameterOfItsFormula) {
  expect_sparsifiers_refused({{"regtopk:ratio=0.1,mu=0", {"[regtopk]", "mu=0"}},
                              {"regtopk:ratio=0.1,mu=-1", {"[regtopk]", "mu=-1"}},
                              {"regtopk:ratio=0.1,mu=nan", {"[regtopk]", "mu=nan"}},
                              {"regtopk:ratio=0.1,mu=1,q=nan", {"[regtopk]", "q=nan"}},
                              {"regtopk:ratio=0.1,mu=1,form=c", {"[regtopk]", "form=c"}},
                              {"regtopk:ratio=0.1,withheld=maybe", {"[regtopk]", "withheld=maybe"}},
                              {"regtopk:ratio=0.1,mu=1,weight=-1", {"[regtopk]", "weight=-1"}},
                              {"regtopk:ratio=0.1,mu=1,weight=nan", {"[regtopk]", "weight=nan"}}});
}

TEST(BadSpec, OfAFeedbackNamesTheValue) {
  expect_refused({{"", {}},
                  {"nosuch", {"nosuch", "ef", "none", "momentum"}},
                  {"ef:nosuch=1", {"[ef]", "nosuch", "decay", "scale"}},
                  {"ef:decay=0", {"[ef]", "decay=0", "[1e-06, 1]"}},
                  {"ef:decay=1e-50", {"[ef]", "decay=1e-50", "[1e-06, 1]"}},
                  {"ef:decay=1.5", {"[ef]", "decay=1.5", "[1e-06, 1]"}},
                  {"ef:decay=nan", {"[ef]", "decay=nan"}},
                  {"ef:scale=2", {"[ef]", "scale=2", "lr"}},
                  {"none:decay=0.5", {"[none]", "decay"}},
                  {"momentum:m=-0.1", {"[momentum]", "m=-0.1"}},
                  {"momentum:m=1.5", {"[momentum]", "m=1.5"}},
                  {"momentum:m=1e-50", {"[momentum]", "m=1e-50"}},
                  {"momentum:m=0.99999999999", {"[momentum]", "m=0.99999999999"}},
                  {"momentum:clip=1e-50", {"[momentum]", "clip=1e-50"}},
                  {"momentum:clip=1e300", {"[momentum]", "clip=1e300"}},
                  {"momentum:m=nan", {"[momentum]", "m=nan"}},
                  {"momentum:clip=-1", {"[momentum]", "clip=-1"}},
                  {"momentum:clip=nan", {"[momentum]", "clip=nan"}},
                  {"momentum:decay=0.5", {"[momentum]", "decay"}}},
                 [](const std::string& spec) { Sifter("topk:ratio=0.1", spec, {.layout = 100}); });
}

TEST(BadSpec, OfASifterIsThatOfItsSparsifier) {
  EXPECT_EQ(complaint([] { Sifter("topk:ratio=7", "ef", {.layout = 100}); }), "[topk] ratio=7 is not in (0, 1]");
}

TEST(Feedback, IsReadFromItsSpec) {
  const Feedback plain = parse_feedback("ef");
  EXPECT_EQ(plain.kind, Feedback::Kind::ef);
  EXPECT_EQ(plain.decay, 1.0F);
  EXPECT_FALSE(plain.scale_by_lr);
  const Feedback fading = parse_feedback("ef:decay=0.95,scale=lr");
  EXPECT_EQ(fading.decay, 0.95F);
  EXPECT_TRUE(fading.scale_by_lr);
  EXPECT_FALSE(parse_feedback("ef:scale=1").scale_by_lr);
  EXPECT_EQ(parse_feedback("none").kind, Feedback::Kind::none);
  const Feedback momentum = parse_feedback("momentum:m=0.8,clip=2");
  EXPECT_EQ(momentum.kind, Feedback::Kind::momentum);
  EXPECT_EQ(momentum.momentum, 0.8F);
  EXPECT_EQ(momentum.clip, 2.0F);
  EXPECT_EQ(parse_feedback("momentum").momentum, 0.9F);
  EXPECT_EQ(parse_feedback("momentum").clip, 0.0F);
}

}  // namespace
}  // namespace sparsewire::spec_errors_test
