// Options: read from text and from JSON, and written again.
#include "loop/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <type_traits>
#include <variant>

#include "sparsewire/errors.h"
#include "unit/folder.h"
#include "unit/usage_error.h"

namespace sparsewire::train::config_test {
namespace {

using ::testing::HasSubstr;

const Setting& setting(std::string_view name) {
  for (const Setting& one : settings()) {
    if (one.option.name == name) return one;
  }
  ADD_FAILURE() << name;
  return settings()[0];
}

std::string text_error(std::string_view name, const std::string& given) {
  TrainConfig config;
  return usage_error_of([&] { set_from_text(config, setting(name), given); });
}

std::string json_error(const std::string& json) {
  TrainConfig config;
  return usage_error_of([&] { set_from_object(config, Json::parse(json)); });
}

// A configuration in which every option differs from its default.
TrainConfig all_changed() {
  TrainConfig config;
  for (const Setting& one : settings()) {
    std::visit(
        [&](auto member) {
          auto& value = config.*member;
          using T = std::decay_t<decltype(value)>;
          if constexpr (std::is_same_v<T, std::string>) {
            value = one.option.name == "change" ? "steps"
                    : one.option.words.empty()  ? "other"
                                                : one.option.words.back();
          } else if constexpr (std::is_same_v<T, bool>) {
            value = true;
          } else {
            value += std::is_integral_v<T> ? T(7) : T(0.1);
          }
        },
        one.member);
  }
  return config;
}

TEST(Config, SurvivesJson) {
  TrainConfig plain;
  plain.workers = 4;  // 0 stands for "not given" and cannot be set
  for (const TrainConfig& config : {plain, all_changed()}) {
    TrainConfig back;
    set_from_object(back, Json::parse(to_json(config).dump()));
    EXPECT_EQ(to_json(back), to_json(config));
  }
  EXPECT_NE(to_json(all_changed()), to_json(TrainConfig{}));
}

TEST(Config, SurvivesText) {
  const TrainConfig config = all_changed();
  TrainConfig back;
  for (const Setting& one : settings()) {
    const Json value = value_of(config, one);
    set_from_text(back, one, value.is_string() ? value.get<std::string>() : value.dump());
  }
  EXPECT_EQ(to_json(back), to_json(config));
}

TEST(Config, ReadsFilesWithDashesUnderscoresAndComments) {
  const Folder folder;
  folder.write("c.json", "{\"local-steps\": 3, // of each worker\n \"eval_every\": 4, \"lr\": 1, \"resume\": true}");
  TrainConfig config;
  set_from_file(config, folder / "c.json");
  EXPECT_EQ(config.local_steps, 3U);
  EXPECT_EQ(config.eval_every, 4U);
  EXPECT_EQ(config.lr, 1.0);
  EXPECT_TRUE(config.resume);
  folder.write("bad.json", "{\"lr\": }");
  EXPECT_THAT(usage_error_of([&] { set_from_file(config, folder / "bad.json"); }), HasSubstr("bad.json': "));
  folder.write("other.json", "{\"ratio\": 1}");
  EXPECT_THAT(usage_error_of([&] { set_from_file(config, folder / "other.json"); }),
              HasSubstr("other.json': 'ratio' is not"));
  EXPECT_THAT(usage_error_of([&] { set_from_file(config, folder / "none.json"); }), HasSubstr("No such file"));
}

TEST(Config, TakesAReportWholeButNotWhereItWasWritten) {
  const Folder folder;
  folder.write(
      "r.json",
      "{\"config\": {\"lr\": 0.5, \"data\": \"d\", \"json\": \"r.json\", \"metrics\": \"m\", \"save_weights\": \"w\", "
      "\"checkpoint_dir\": \"c\", \"resume\": true, \"change\": \"lr\"}, \"step\": 10, \"test_loss\": 1}");
  TrainConfig config;
  set_from_file(config, folder / "r.json");
  EXPECT_EQ(config.lr, 0.5);
  EXPECT_EQ(config.data, "d");
  EXPECT_EQ(config.json + config.metrics + config.save_weights + config.checkpoint_dir + config.change, "");
  EXPECT_FALSE(config.resume);
  folder.write("pilot.json", "{\"config\": {\"lr\": 0.2}, \"sparsifier\": \"threshold:lambda=3\", \"lambda\": 3}");
  set_from_file(config, folder / "pilot.json");
  EXPECT_EQ(config.lr, 0.2);
  EXPECT_EQ(config.sparsifier, "threshold:lambda=3");
  folder.write("r.json", "{\"config\": {\"ratio\": 1}}");
  EXPECT_THAT(usage_error_of([&] { set_from_file(config, folder / "r.json"); }), HasSubstr("r.json': 'ratio' is not"));
  folder.write("r.json", "{\"config\": 1}");
  EXPECT_THAT(usage_error_of([&] { set_from_file(config, folder / "r.json"); }), HasSubstr("r.json': 'config' is not"));
}

TEST(Config, RefusesFilesThatAreNestedTooDeepOrTooLong) {
  const Folder folder;
  TrainConfig config;
  const auto nested = [](std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  folder.write("c.json", "{\"lr\": " + nested(100'000) + "}");
  EXPECT_THAT(usage_error_of([&] { set_from_file(config, folder / "c.json"); }),
              HasSubstr("c.json': nested more than 64 levels deep"));
  folder.write("c.json", "{\"lr\": " + nested(63) + "}");
  EXPECT_THAT(usage_error_of([&] { set_from_file(config, folder / "c.json"); }), HasSubstr("--lr [[[["));
  folder.write("c.json", "{" + std::string(1 << 20, ' ') + "}");
  EXPECT_THAT(usage_error_of([&] { set_from_file(config, folder / "c.json"); }),
              HasSubstr("c.json' is longer than 1 MiB"));
}

TEST(Config, NamesWhatIsWrong) {
  EXPECT_EQ(text_error("lr", "fast"), "--lr fast is not a number in (0, 3e+38]");
  EXPECT_EQ(text_error("lr", "0"), "--lr 0 is not a number in (0, 3e+38]");
  for (const char* given : {"nan", "inf", "-1", "", "1x", " 1", "1e39"}) {
    EXPECT_THAT(text_error("lr", given), HasSubstr("--lr")) << given;
  }
  for (const char* given : {"-1", "1.5", "", "0x10", "1e3", "99999999999999999999"}) {
    EXPECT_THAT(text_error("local_steps", given), HasSubstr("--local-steps")) << given;
  }
  EXPECT_EQ(text_error("keep", "0"), "--keep 0 is not a whole number in [1, 1000000]");
  EXPECT_EQ(text_error("transport", "pigeons"), "--transport 'pigeons' is not threads or mpi");
  EXPECT_EQ(text_error("scope", "tensor"), "--scope 'tensor' is not model or layer");
  EXPECT_EQ(text_error("steps", "0010"), "");
  EXPECT_THAT(json_error("[1]"), HasSubstr("not a JSON object"));
  EXPECT_THAT(json_error("{\"steps\": \"10\"}"), HasSubstr("--steps \"10\" is not a whole number"));
  EXPECT_THAT(json_error("{\"steps\": 1.5}"), HasSubstr("--steps 1.5"));
  EXPECT_THAT(json_error("{\"steps\": -1}"), HasSubstr("--steps -1"));
  EXPECT_THAT(json_error("{\"lr\": \"0.1\"}"), HasSubstr("--lr \"0.1\" is not a number"));
  EXPECT_THAT(json_error("{\"quiet\": 1}"), HasSubstr("--quiet 1 is not true or false"));
  EXPECT_THAT(json_error("{\"problem\": null}"), HasSubstr("--problem null is not a string"));
  EXPECT_THAT(json_error("{\"eval-every\": 1, \"eval_every\": 2}"), HasSubstr("'eval_every' is given twice"));
}

// Options that change the result of a training are listed, others are not.
TEST(Config, SaysWhatDiffers) {
  const TrainConfig config;
  EXPECT_EQ(difference(config, config), "");
  for (const Setting& one : settings()) {
    TrainConfig other = config;
    const TrainConfig changed = all_changed();
    std::visit([&](auto member) { other.*member = changed.*member; }, one.member);
    EXPECT_EQ(difference(config, other).empty(), one.option.may_change == MayChange::freely) << one.option.name;
  }
  TrainConfig other = config;
  other.sparsifier = "dense";
  other.lr = 0.2;
  other.steps = 9;
  EXPECT_EQ(difference(config, other),
            "--sparsifier was \"topk:ratio=0.01\" and is \"dense\", --lr was 0.1 and is 0.2; to change this in "
            "mid-training, add --change sparsifier,lr");
  other.change = "lr";
  EXPECT_THAT(difference(config, other), HasSubstr("and is \"dense\"; to change this in mid-training, add --change "
                                                   "sparsifier,lr"));
  EXPECT_EQ(changes(config, other).dump(), "{\"lr\":{\"from\":0.1,\"to\":0.2}}");
  other.change = "sparsifier,lr,steps";
  EXPECT_EQ(difference(config, other), "");
  EXPECT_EQ(changes(config, other).size(), 3U);
  for (const char* name : {"problem", "exchange", "scope", "optimiser", "local_steps", "seed", "validation"}) {
    EXPECT_EQ(setting(name).option.may_change, MayChange::no) << name;
  }
  for (const char* name : {"sparsifier", "feedback", "downlink", "codec", "downlink_codec", "lr", "schedule", "clip"}) {
    EXPECT_EQ(setting(name).option.may_change, MayChange::on_request) << name;
  }
  // What names every worker has to change with their number.
  other = config;
  other.split = "iid:sizes=1/2";
  other.worker_weights = "1,2";
  EXPECT_EQ(difference(config, other),
            "--split was \"\" and is \"iid:sizes=1/2\", --worker-weights was \"\" and is \"1,2\"");
  other.workers = 2;
  EXPECT_EQ(difference(config, other), "");
}

}  // namespace
}  // namespace sparsewire::train::config_test
