// A simulation of all workers and servers in one thread, from Sifters and Codecs alone: it shows what a Worker must do
// in each step. No transport, no merger, no messages.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "exchange/bodies.h"
#include "exchange/regions.h"
#include "sparsewire/codec.h"
#include "sparsewire/sifter.h"

namespace sparsewire {

class Simulation {
 public:
  Simulation(const bodies::Plan& plan, int ranks)
      : plan_(plan), shares_(plan.shares(ranks)), dim_(plan.layout.dim()), regions_(dim_, ranks) {
    const WorkerConfig& config = plan.config;
    is_sharded_ = config.exchange == "sharded";
    for (int r = 0; r < ranks; ++r) {
      SifterContext context{.layout = plan.layout, .scope = config.scope};
      context.rank = r;
      context.ranks = ranks;
      context.weight = static_cast<double>(shares_[static_cast<std::size_t>(r)]);
      context.seed = config.seed;
      workers_.emplace_back(config.sparsifier, config.feedback, context);
    }
    parts_ = is_sharded_ ? ranks : 1;
    if (config.downlink.empty()) return;
    for (int r = 0; r < parts_; ++r) {
      SifterContext context{.layout = is_sharded_ ? regions_.size(r) : dim_};
      context.rank = r;
      context.ranks = parts_;
      context.seed = config.seed;
      context.role = Role::server;
      context.model_dim = dim_;
      servers_.emplace_back(config.downlink, "ef", context);
    }
  }

  // The update of all workers, given the gradient of each.
  std::vector<float> step(const std::vector<std::vector<float>>& gradients) {
    const std::size_t ranks = workers_.size();
    std::vector<SparseVector> sent(ranks);
    std::vector<float> sums(dim_);
    std::vector<float> senders(dim_);  // the sum of their weights
    for (std::size_t r = 0; r < ranks; ++r) {
      workers_[r].sift(gradients[r], sent[r]);
      const std::vector<float> received = as_received(sent[r], plan_.config.codec);
      workers_[r].keep_rounding_loss(sent[r], received);
      sent[r].values = received;
      for (std::size_t i = 0; i < received.size(); ++i) {
        const float weighted = shares_[r] * received[i];
        sums[sent[r].index(i)] += weighted;
        senders[sent[r].index(i)] += shares_[r];
      }
    }
    const std::vector<float> undivided = sums;
    if (plan_.config.average == Average::senders) {
      for (std::size_t i = 0; i < dim_; ++i) sums[i] = senders[i] == 0 ? 0 : sums[i] / senders[i];
    }
    if (!servers_.empty()) sums = answered(sums);
    const std::vector<float>& observed = servers_.empty() ? undivided : sums;
    for (std::size_t r = 0; r < ranks; ++r) {
      std::vector<float> at_sent;
      std::vector<std::uint8_t> came_back;
      for (std::size_t i = 0; i < sent[r].size(); ++i) {
        at_sent.push_back(observed[sent[r].index(i)]);
        if (!servers_.empty()) came_back.push_back(answered_[sent[r].index(i)]);
      }
      workers_[r].observe(sent[r], at_sent, came_back);
    }
    vote(workers_);
    vote(servers_);
    return sums;
  }

  Sifter& worker(int rank) { return workers_[static_cast<std::size_t>(rank)]; }
  int votes() const { return votes_; }

 private:
  static std::vector<float> through(const SparseVector& vector, const std::string& codec) {
    Codec made(codec);
    std::vector<std::byte> frame;
    made.encode(vector, frame);
    SparseVector back;
    if (decode(frame, back) != DecodeStatus::ok)
      throw std::logic_error("a frame that was just encoded cannot be decoded");
    return back.values;
  }

  // The values as the other side decodes them: of the whole vector, or of each region by itself.
  std::vector<float> as_received(const SparseVector& sent, const std::string& codec) {
    if (!is_sharded_) return through(sent, codec);
    std::map<std::uint32_t, float> by_index;
    for (int region = 0; region < parts_; ++region) {
      SparseVector part;
      part.dim = regions_.size(region);
      std::vector<std::uint32_t> indices;
      for (std::uint32_t local = 0; local < part.dim; ++local) {
        const std::uint32_t index = regions_.global(region, local);
        std::size_t at = index;
        if (!sent.is_full()) {
          const auto found = std::lower_bound(sent.indices.begin(), sent.indices.end(), index);
          if (found == sent.indices.end() || *found != index) continue;
          at = static_cast<std::size_t>(found - sent.indices.begin());
        }
        part.indices.push_back(local);
        part.values.push_back(sent.values[at]);
        indices.push_back(index);
      }
      const std::vector<float> values = through(part, codec);
      for (std::size_t i = 0; i < indices.size(); ++i) by_index[indices[i]] = values[i];
    }
    std::vector<float> received;
    for (const auto& [index, value] : by_index) received.push_back(value);
    return received;
  }

  // The update after the servers' downlinks.
  std::vector<float> answered(const std::vector<float>& sums) {
    const std::string& codec = plan_.config.downlink_codec.empty() ? plan_.config.codec : plan_.config.downlink_codec;
    std::vector<float> update(dim_);
    answered_.assign(dim_, 0);
    for (int region = 0; region < parts_; ++region) {
      Sifter& server = servers_[static_cast<std::size_t>(region)];
      const auto global = [&](std::uint32_t local) { return is_sharded_ ? regions_.global(region, local) : local; };
      std::vector<float> part;
      for (std::uint32_t local = 0; local < server.layout().dim(); ++local) part.push_back(sums[global(local)]);
      SparseVector answer;
      server.sift(part, answer);
      const std::vector<float> received = through(answer, codec);
      server.keep_rounding_loss(answer, received);
      for (std::size_t i = 0; i < received.size(); ++i) {
        update[global(answer.index(i))] = received[i];
        answered_[global(answer.index(i))] = 1;
      }
    }
    return update;
  }

  void vote(std::vector<Sifter>& sifters) {
    if (sifters.empty() || !sifters[0].is_voting()) return;
    ++votes_;
    std::vector<float> votes;  // each as often as it has entries
    for (const Sifter& sifter : sifters) {
      if (const auto mine = sifter.vote()) votes.insert(votes.end(), sifter.layout().dim(), *mine);
    }
    if (votes.empty()) return;
    std::sort(votes.begin(), votes.end());
    for (Sifter& sifter : sifters) sifter.set_vote(votes[(votes.size() - 1) / 2]);
  }

  const bodies::Plan& plan_;
  const std::vector<float> shares_;
  const std::uint64_t dim_;
  const Regions regions_;
  bool is_sharded_ = false;
  int parts_ = 1;
  int votes_ = 0;
  std::vector<std::uint8_t> answered_;  // whether an entry is in the answers of this step
  std::vector<Sifter> workers_;
  std::vector<Sifter> servers_;
};

}  // namespace sparsewire
