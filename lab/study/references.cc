// Which paper belongs to which method, and references.bib.
#include "study/references.h"

#include <fmt/core.h>

#include <algorithm>

#include "sparsewire/sifter.h"
#include "sparsewire/spec.h"
#include "study/cell_config.h"
#include "study/tables.h"

namespace sparsewire::study {
namespace {

using train::TrainConfig;

constexpr const char* kYear = "2026";  // of this version; a test compares it with CITATION.cff

struct Paper {
  const char* key;
  const char* authors;
  const char* title;  // braces keep capitals
  int year;
  const char* proceedings;  // empty: it is an article on arXiv
  const char* arxiv;
  bool (*is_of)(const TrainConfig& config);
};

bool is_sparse(const TrainConfig& config) { return Spec(config.sparsifier).name() != "dense"; }

bool has(const TrainConfig& config, std::string_view sparsifier) {
  const bool is_downlink = !config.downlink.empty() && Spec(config.downlink).name() == sparsifier;
  return is_downlink || Spec(config.sparsifier).name() == sparsifier;
}

bool has_feedback(const TrainConfig& config, Feedback::Kind kind) {
  return is_sparse(config) && parse_feedback(config.feedback).kind == kind;
}

constexpr const char* kNeurIps = "Advances in Neural Information Processing Systems";

constexpr Paper kPapers[] = {
    {"stich2018sparsified", "Stich, Sebastian U. and Cordonnier, Jean-Baptiste and Jaggi, Martin",
     "Sparsified {SGD} with memory", 2018, kNeurIps, "1809.07599",
     [](const TrainConfig& config) { return has_feedback(config, Feedback::Kind::ef); }},
    {"lin2018deep", "Lin, Yujun and Han, Song and Mao, Huizi and Wang, Yu and Dally, William J.",
     "Deep gradient compression: Reducing the communication bandwidth for distributed training", 2018, "", "1712.01887",
     [](const TrainConfig& config) { return has_feedback(config, Feedback::Kind::momentum); }},
    {"sahu2021rethinking",
     "Sahu, Atal Narayan and Dutta, Aritra and Abdelmoniem, Ahmed M. and Banerjee, Trambak and Canini, Marco and "
     "Kalnis, Panos",
     "Rethinking gradient sparsification as total error minimization", 2021, kNeurIps, "2108.00951",
     [](const TrainConfig& config) { return has(config, "threshold"); }},
    {"bereyhi2025regularized", "Bereyhi, Ali and Liang, Ben and Boudreau, Gary and Afana, Ali",
     "Regularized {Top-k}: a {Bayesian} framework for gradient sparsification", 2025, "", "2501.05633",
     [](const TrainConfig& config) { return has(config, "regtopk"); }},
    {"barnes2020rtopk", "Barnes, Leighton Pate and Inan, Huseyin A. and Isik, Berivan and Ozgur, Ayfer",
     "{rTop-k}: a statistical estimation approach to distributed {SGD}", 2020, "", "2005.10761",
     [](const TrainConfig& config) { return has(config, "rtopk"); }},
    {"zou2022downlink", "Zou, William and De Sterck, Hans and Liu, Jun",
     "Downlink compression improves {TopK} sparsification", 2022, "", "2209.15203",
     [](const TrainConfig& config) { return !config.downlink.empty(); }},
    {"sarfi2025communication", "Sarfi, Amir and Th{\\'e}rien, Benjamin and Lidin, Joel and Belilovsky, Eugene",
     "Communication efficient {LLM} pre-training with {SparseLoCo}", 2025, "", "2508.15706",
     [](const TrainConfig& config) { return config.local_steps > 1 && is_sparse(config); }},
    {"douillard2023diloco",
     "Douillard, Arthur and Feng, Qixuan and Rusu, Andrei A. and Chhaparia, Rachita and Donchev, Yani and Kuncoro, "
     "Adhiguna and Ranzato, Marc'Aurelio and Szlam, Arthur and Shen, Jiajun",
     "{DiLoCo}: Distributed low-communication training of language models", 2023, "", "2311.08105",
     [](const TrainConfig& config) { return config.local_steps > 1 && config.outer_momentum > 0; }},
};

std::string entry_of(const Paper& paper) {
  const bool is_article = *paper.proceedings == '\0';
  const std::string arxiv = fmt::format("arXiv:{}", paper.arxiv);
  return fmt::format("@{}{{{},\n  author = {{{}}},\n  title = {{{}}},\n  year = {{{}}},\n  {}\n}}\n",
                     is_article ? "article" : "inproceedings", paper.key, paper.authors, paper.title, paper.year,
                     is_article ? fmt::format("journal = {{arXiv preprint {}}}", arxiv)
                                : fmt::format("booktitle = {{{}}},\n  note = {{{}}}", paper.proceedings, arxiv));
}

}  // namespace

std::vector<Reference> references(const Plan& plan) {
  std::vector<Reference> all{
      {.key = "sparsewire",
       .entry =
           fmt::format("@misc{{sparsewire,\n  author = {{{{The sparsewire authors}}}},\n  title = {{sparsewire}},\n"
                       "  year = {{{}}},\n  note = {{Software, version {}}}\n}}\n",
                       kYear, SPARSEWIRE_VERSION)}};
  std::vector<TrainConfig> configs;
  for (const Cell& cell : plan.cells) configs.push_back(config_of(plan, cell, plan.config.seed));
  for (const Paper& paper : kPapers) {
    if (std::any_of(configs.begin(), configs.end(), paper.is_of)) {
      all.push_back({.key = paper.key, .entry = entry_of(paper)});
    }
  }
  return all;
}

std::string references_bib(const Results& results) {
  std::string text;
  for (const Reference& one : references(results.plan)) text += (text.empty() ? "" : "\n") + one.entry;
  return text;
}

}  // namespace sparsewire::study
