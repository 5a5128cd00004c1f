#include "study/method.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include "sparsewire/errors.h"
#include "sparsewire/sifter.h"
#include "sparsewire/spec.h"
#include "text/json.h"
#include "text/list.h"
#include "text/number.h"

namespace sparsewire::study {
namespace {

// What may stand behind the bar, besides lr and name: options of a training that change neither data nor batches.
constexpr std::string_view kMaySet[] = {"downlink", "codec",    "downlink_codec", "feedback",   "downlink_feedback",
                                        "exchange", "schedule", "optimiser",      "clip",       "scope",
                                        "average",  "outer_lr", "outer_momentum", "local_steps"};

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  for (const std::string& word : split_list(text, ' ')) {
    if (!word.empty()) words.push_back(word);
  }
  return words;
}

std::string joined(const std::vector<std::string>& parts, std::string_view between) {
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i) text += fmt::format("{}{}", i == 0 ? "" : between, parts[i]);
  return text;
}

std::string with_ratio(const std::string& spec, const std::string& ratio) {
  return fmt::format("{}{}ratio={}", spec, spec.find(':') == std::string::npos ? ":" : ",", ratio);
}

// The sparsifier is asked: one that takes no ratio, or has an own one, or its k, complains.
bool takes_ratio_in(const std::string& spec) {
  constexpr std::size_t kAnySize = 1000;
  try {
    Sifter(with_ratio(spec, "0.5"), "ef", {.layout = kAnySize});
    return true;
  } catch (const UsageError&) {
    return false;
  }
}

// A threshold that is to be measured: it has a ratio, and no rule.
bool is_to_be_measured(const std::string& spec_text) {
  if (spec_text.empty()) return false;
  const Spec spec(spec_text);
  return spec.name() == "threshold" && spec.has("ratio") && !spec.has("rule");
}

// Nine digits are a float exactly. What else the spec has stays.
std::string with_lambda(const std::string& spec, double lambda) {
  std::string text = fmt::format("threshold:lambda={:.9g}", lambda);
  for (const std::string& pair : split_list(spec.substr(spec.find(':') + 1), ',')) {
    if (!pair.starts_with("ratio=") && !pair.starts_with("calibrate=")) text += "," + pair;
  }
  return text;
}

}  // namespace

void set_thresholds(train::TrainConfig& config, std::optional<double> lambda, std::optional<double> downlink_lambda) {
  if (lambda && is_to_be_measured(config.sparsifier)) config.sparsifier = with_lambda(config.sparsifier, *lambda);
  if (downlink_lambda && is_to_be_measured(config.downlink)) {
    config.downlink = with_lambda(config.downlink, *downlink_lambda);
  }
}

Method::Method(std::string_view text) {
  const train::Json quoted = std::string(text);
  const auto is_control = [](unsigned char c) { return c < 0x20 || c == 0x7F; };
  try {
    quoted.dump();  // throws if it is not UTF-8
    if (std::any_of(text.begin(), text.end(), is_control)) throw UsageError("control characters");
  } catch (const std::exception&) {
    throw UsageError(fmt::format("--methods: {} has characters that cannot be printed", train::shown(quoted)));
  }
  const std::size_t bar = std::min(text.find('|'), text.size());
  const std::vector<std::string> before = words_of(text.substr(0, bar));
  const std::vector<std::string> behind = words_of(bar == text.size() ? "" : text.substr(bar + 1));
  if (before.size() != 1) {
    throw UsageError(
        fmt::format("--methods: '{}' must begin with one sparsifier; what else differs stands behind a bar, "
                    "as in 'topk | downlink=topk'",
                    text));
  }
  if (before[0].find(',') < before[0].find(':')) {  // no sparsifier has one in its name
    throw UsageError(
        fmt::format("--methods: '{}': only plain names may have commas between them; put spaces between "
                    "methods",
                    text));
  }
  spec_ = before[0] + (behind.empty() ? "" : " | " + joined(behind, " "));
  name_ = spec_;
  try {
    read_setting("sparsifier", before[0]);
    for (const std::string& word : behind) {
      const std::size_t equals = word.find('=');
      if (equals == std::string::npos || equals == 0 || equals + 1 == word.size()) {
        throw UsageError(fmt::format("'{}' is not of the form option=value", word));
      }
      std::string option = word.substr(0, equals);
      std::replace(option.begin(), option.end(), '-', '_');
      read_setting(option == "optimizer" ? "optimiser" : option, word.substr(equals + 1));
    }
    find_ratios();
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("--methods: '{}': {}", spec_, error.what()));
  }
}

// A value is a spec, or a word or number without a colon. Where it has a slash, it is a list.
void Method::read_setting(const std::string& option, const std::string& value) {
  if ((option == "name" && name_ != spec_) || (option == "lr" && !lrs_.empty())) {
    throw UsageError(fmt::format("'{}' is given twice", option));
  }
  if (option == "name") {
    name_ = value;
    return;
  }
  if (option == "lr") {
    for (const std::string& one : split_list(value, '/')) {
      const auto lr = parse_number<double>(one);
      if (!lr || !(*lr > 0) || *lr > 3e38) throw UsageError(fmt::format("lr={} is not a number above 0", one));
      lrs_.push_back(*lr);
    }
    std::sort(lrs_.begin(), lrs_.end());
    lrs_.erase(std::unique(lrs_.begin(), lrs_.end()), lrs_.end());
    return;
  }
  const bool is_sparsifier = option == "sparsifier" && settings_.empty();
  if (!is_sparsifier && std::find(std::begin(kMaySet), std::end(kMaySet), option) == std::end(kMaySet)) {
    throw UsageError(fmt::format("'{}' cannot stand behind the bar; there are {}, lr, name", option,
                                 joined({std::begin(kMaySet), std::end(kMaySet)}, ", ")));
  }
  for (const MethodSetting& one : settings_) {
    if (one.option == option) throw UsageError(fmt::format("'{}' is given twice", option));
  }
  MethodSetting setting{.option = option, .head = value, .parts = {}};
  const std::size_t colon = value.find(':');
  if (colon == std::string::npos && !is_sparsifier && value.find('/') != std::string::npos) {
    setting.head.clear();
    setting.parts.push_back({.key = "", .values = split_list(value, '/')});
  } else if (colon != std::string::npos) {
    setting.head = value.substr(0, colon);
    for (const std::string& pair : split_list(value.substr(colon + 1), ',')) {
      const std::size_t equals = std::min(pair.find('='), pair.size());
      const bool has_value = equals < pair.size();
      setting.parts.push_back(
          {.key = pair.substr(0, equals),
           .values = has_value ? split_list(pair.substr(equals + 1), '/') : std::vector<std::string>{}});
    }
  }
  for (const SettingPart& part : setting.parts) {
    if (part.values.size() > 1 && (part.key == "ratio" || part.key == "k")) {
      throw UsageError(
          fmt::format("a list of {}= would be chosen from by the validation loss; to compare ratios, use "
                      "--ratio or give several methods",
                      part.key));
    }
    if (option == "downlink" && part.key.empty() && part.values.size() > 1) {
      throw UsageError("a list of downlinks: give a method for each");
    }
    for (auto one = part.values.begin(); one != part.values.end(); ++one) {
      const auto is_same = [&](const std::string& other) {
        const auto number = parse_number<double>(*one);
        return other == *one || (number && parse_number<double>(other) == number);
      };
      if (std::any_of(part.values.begin(), one, is_same)) {
        throw UsageError(fmt::format("'{}' is twice in a list of values", *one));
      }
    }
    if (part.values.size() > 1) own_.push_back({.name = own_name(setting, part), .values = part.values});
  }
  settings_.push_back(std::move(setting));
}

std::string Method::own_name(const MethodSetting& setting, const SettingPart& part) {
  if (part.key.empty()) return setting.option;
  return setting.option == "sparsifier" ? part.key : fmt::format("{}.{}", setting.option, part.key);
}

// With the values of this cell; of the first combination if `own` has none.
std::string Method::text_of(const MethodSetting& setting, const std::map<std::string, std::string>& own) {
  std::string text = setting.head;
  for (const SettingPart& part : setting.parts) {
    const bool is_first = &part == &setting.parts.front();
    const auto found = own.find(own_name(setting, part));
    std::string value = part.values.empty() ? "" : part.values.front();
    if (part.values.size() > 1 && found != own.end()) value = found->second;
    if (part.key.empty() && setting.head.empty()) {
      text = value;
    } else {
      text += fmt::format("{}{}{}{}", is_first ? ":" : ",", part.key, part.values.empty() ? "" : "=", value);
    }
  }
  return text;
}

void Method::find_ratios() {
  bool has_ratio = false;  // the sparsifier
  for (MethodSetting& setting : settings_) {
    const bool is_downlink = setting.option == "downlink";
    if (setting.option != "sparsifier" && !is_downlink) continue;
    const std::string text = text_of(setting, {});
    setting.takes_ratio = takes_ratio_in(text);
    takes_ratio_ = takes_ratio_ || setting.takes_ratio;
    const bool is_measured = is_to_be_measured(setting.takes_ratio ? with_ratio(text, "0.5") : text);
    if (!is_downlink) has_ratio = setting.takes_ratio || Spec(text).has("ratio");
    if (is_downlink && is_measured && !has_ratio) {
      throw UsageError("a threshold as downlink is measured in a Top-k pilot, so the sparsifier needs a ratio");
    }
    needs_pilot_ = needs_pilot_ || is_measured;
  }
}

std::vector<std::map<std::string, std::string>> Method::combinations() const {
  std::vector<std::map<std::string, std::string>> all(1);
  for (const OwnParameter& one : own_) {
    std::vector<std::map<std::string, std::string>> longer;
    for (const auto& before : all) {
      for (const std::string& value : one.values) {
        longer.push_back(before);
        longer.back()[one.name] = value;
      }
    }
    all = std::move(longer);
  }
  return all;
}

train::TrainConfig Method::config(const train::TrainConfig& common, const Cell& cell) const {
  train::TrainConfig config = common;
  config.downlink.clear();
  config.lr = cell.lr;
  bool has_exchange = false;
  for (const MethodSetting& one : settings_) {
    std::string text = text_of(one, cell.own);
    if (one.takes_ratio) text = with_ratio(text, cell.ratio);
    const auto setting = std::find_if(train::settings().begin(), train::settings().end(),
                                      [&](const train::Setting& known) { return known.option.name == one.option; });
    train::set_from_text(config, *setting, text);
    has_exchange = has_exchange || one.option == "exchange";
  }
  if (!has_exchange && Spec(config.sparsifier).name() == "dense") config.exchange = "dense";
  if (config.local_steps != common.local_steps) {  // at most as many steps of the optimiser as the others
    const double all = static_cast<double>(common.steps) * static_cast<double>(common.local_steps);
    if (all < static_cast<double>(config.local_steps))
      config.local_steps = static_cast<std::uint64_t>(std::max(1.0, all));
    for (std::uint64_t* const count : {&config.steps, &config.eval_every}) {
      if (*count == 0) continue;
      const double exact = static_cast<double>(*count) * static_cast<double>(common.local_steps);
      *count = std::max<std::uint64_t>(1, static_cast<std::uint64_t>(exact / static_cast<double>(config.local_steps)));
    }
  }
  return config;
}

}  // namespace sparsewire::study
