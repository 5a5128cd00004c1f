// A worker takes over what workers with other groups of tensors, or other weights, have not sent yet.
#include <fmt/core.h>

#include <cmath>
#include <utility>

#include "core/crc32c_extend.h"
#include "sparsewire/errors.h"
#include "sparsewire/support/float_mode.h"
#include "worker/parts.h"

namespace sparsewire {
namespace {

// A tensor of the new worker, and where it was.
struct Source {
  Worker* worker;
  const TensorRange* from;
  const TensorRange* to;
};

// Throws UsageError unless each tensor is in one of the others, in the same size.
std::vector<Source> find_sources(const Layout& layout, std::span<Worker* const> others) {
  std::vector<Source> sources;
  for (const TensorRange& tensor : layout.tensors()) {
    Source source{nullptr, nullptr, &tensor};
    for (Worker* const other : others) {
      const TensorRange* const found = other->layout().find(tensor.name);
      if (found == nullptr) continue;
      if (source.worker != nullptr) {
        throw UsageError(fmt::format("[worker] adopt: tensor '{}' is in two of the other workers", tensor.name));
      }
      source.worker = other;
      source.from = found;
    }
    if (source.worker == nullptr) {
      throw UsageError(fmt::format("[worker] adopt: tensor '{}' is in none of the other workers", tensor.name));
    }
    if (source.from->size != tensor.size) {
      throw UsageError(fmt::format("[worker] adopt: tensor '{}' has {} entries here, and {} in the other worker",
                                   tensor.name, tensor.size, source.from->size));
    }
    sources.push_back(source);
  }
  return sources;
}

// What a sifter of the new worker takes over from the other one: the worker's sifter, or that of its server.
Predecessor<Sifter> predecessor(const Sifter& sifter, const Worker& worker, std::span<const Source> sources) {
  Predecessor<Sifter> from{.learner = &sifter};
  for (const Source& source : sources) {
    if (source.worker != &worker) continue;
    from.entries += source.to->size;
    from.moved.push_back({.from = source.from->begin, .to = source.to->begin, .size = source.to->size});
  }
  return from;
}

// Throws UsageError if a number is too large for a float.
std::vector<float> as_floats(const std::vector<double>& numbers, const char* what) {
  std::vector<float> floats;
  floats.reserve(numbers.size());
  for (const double number : numbers) {
    floats.push_back(static_cast<float>(number));
    if (std::isfinite(floats.back())) continue;
    throw UsageError(fmt::format("[worker] adopt: {} would become {} at index {}, which is too large for a float", what,
                                 number, floats.size() - 1));
  }
  return floats;
}

}  // namespace

// e' = (w_old*e + E) / w_new, where E is what this rank's old server owed and its new one does not serve. All new
// numbers are found before anything changes.
void Worker::adopt(std::span<Worker* const> others) {
  const StandardFloatMode mode;
  Parts& p = *parts_;
  p.check_between_steps("adopt");
  for (Worker* const other : others) {
    if (other == nullptr || other == this) throw UsageError("[worker] adopt: a worker is null, or this one itself");
    const Parts& o = *other->parts_;
    o.check_between_steps("adopt");
    const Feedback& mine = p.sifter.feedback();
    const Feedback& theirs = o.sifter.feedback();
    if (mine.kind != theirs.kind || mine.scale_by_lr != theirs.scale_by_lr) {
      throw UsageError(
          fmt::format("[worker] adopt: the feedback is '{}' here and '{}' there: kind and scale must agree",
                      p.config.feedback, o.config.feedback));
    }
    if (o.config.average != p.config.average) {
      throw UsageError("[worker] adopt: the average is over the senders here or there, and over all in the other");
    }
    if (o.sifter.step() != others[0]->parts_->sifter.step()) {
      throw UsageError(fmt::format("[worker] adopt: one worker is at step {}, another at step {}",
                                   others[0]->parts_->sifter.step(), o.sifter.step()));
    }
  }
  const std::vector<Source> sources = find_sources(p.layout, others);
  if (p.sifter.step() != 0 && !others.empty() && p.sifter.step() != others[0]->parts_->sifter.step()) {
    throw UsageError(fmt::format("[worker] adopt: this worker is at step {}, the others at step {}", p.sifter.step(),
                                 others[0]->parts_->sifter.step()));
  }
  const auto rank = static_cast<std::size_t>(p.transport.rank());
  // In a mean over senders the weight is divided out again.
  const auto weight_in = [&](const Parts& parts) {
    return parts.config.average == Average::senders ? 1.0 : static_cast<double>(parts.weights[rank]);
  };
  const double weight = weight_in(p);

  // What the workers owe (times their weights), and what the servers of this rank owe, in the order of this layout.
  std::vector<double> owed(p.layout.dim());
  std::vector<double> served(p.layout.dim());
  std::vector<double> moving(p.sifter.velocity().size());
  for (Worker* const other : others) {
    const Parts& o = *other->parts_;
    const double old_weight = weight_in(o);
    const std::vector<float> memory = o.sifter.memory();
    const std::vector<float> velocity = o.sifter.velocity();
    std::vector<double> server(o.layout.dim());
    other->add_server_memory(server);
    for (const Source& source : sources) {
      if (source.worker != other) continue;
      for (std::size_t i = 0; i < source.to->size; ++i) {
        const std::size_t from = source.from->begin + i;
        const std::size_t to = source.to->begin + i;
        owed[to] = old_weight * static_cast<double>(memory[from]);
        served[to] = server[from];
        if (!moving.empty()) moving[to] = old_weight * static_cast<double>(velocity[from]);
      }
    }
  }
  Sifter* const server = p.exchange->server();
  std::vector<double> server_memory;
  const bool server_keeps = server != nullptr && server->feedback().kind != Feedback::Kind::none;
  if (server_keeps) {
    const std::vector<float> before = server->memory();
    for (std::uint32_t i = 0; i < before.size(); ++i) {
      double& theirs = served[p.exchange->served_index(i)];
      server_memory.push_back(static_cast<double>(before[i]) + std::exchange(theirs, 0.0));
    }
  }
  const std::vector<float> memory = p.sifter.memory();
  const std::vector<float> velocity = p.sifter.velocity();
  std::vector<double> new_memory(memory.begin(), memory.end());
  std::vector<double> new_velocity(velocity.begin(), velocity.end());
  for (std::size_t i = 0; i < owed.size(); ++i) {
    const double sum = owed[i] + served[i];
    if (sum == 0) continue;
    if (weight == 0 || p.sifter.feedback().kind == Feedback::Kind::none) {
      throw UsageError(fmt::format("[worker] adopt: {} is owed at index {}, but this worker {}", sum, i,
                                   weight == 0 ? "has weight 0" : "has feedback none"));
    }
    new_memory[i] += sum / weight;
  }
  for (std::size_t i = 0; i < moving.size(); ++i) {
    if (moving[i] != 0 && weight == 0) throw UsageError("[worker] adopt: there is a velocity, but the weight is 0");
    if (moving[i] != 0) new_velocity[i] += moving[i] / weight;
  }
  const std::vector<float> memory_floats = as_floats(new_memory, "the memory");
  const std::vector<float> velocity_floats = as_floats(new_velocity, "the velocity");
  const std::vector<float> server_floats = as_floats(server_memory, "the server's memory");

  std::vector<Predecessor<Sifter>> teachers;
  std::vector<Predecessor<Sifter>> server_teachers;
  for (Worker* const other : others) {
    Parts& o = *other->parts_;
    Predecessor<Sifter> teacher = predecessor(o.sifter, *other, sources);
    if (teacher.entries == 0) continue;
    teacher.same_weights = o.weights == p.weights;
    teachers.push_back(teacher);
    // All servers have to learn alike, so only where each has an old one on the same rank.
    if (server == nullptr || o.config.downlink.empty() || o.config.exchange != p.config.exchange) continue;
    teacher.learner = o.exchange->server();
    teacher.moved.clear();
    server_teachers.push_back(teacher);
  }
  p.sifter.learn_from(teachers);
  if (server_teachers.size() != teachers.size()) server_teachers.clear();
  if (server != nullptr) server->learn_from(server_teachers);

  p.sifter.write_memory(memory_floats);
  if (!velocity_floats.empty()) p.sifter.write_velocity(velocity_floats);
  if (server_keeps) server->write_memory(server_floats);
  if (!others.empty() && p.sifter.step() == 0) p.set_step(others[0]->parts_->sifter.step());
  p.can_take_back = false;
  p.identity = crc32c_extend(p.identity, std::as_bytes(std::span("adopted")));
  for (const Source& source : sources) source.worker->parts_->give_away(*source.from);
}

// Clears what another worker has taken over of one tensor.
void Worker::Parts::give_away(const TensorRange& tensor) {
  sifter.write_memory(tensor.name, std::vector<float>(tensor.size));
  std::vector<float> velocity = sifter.velocity();
  if (!velocity.empty()) {
    std::fill_n(velocity.begin() + static_cast<std::ptrdiff_t>(tensor.begin), tensor.size, 0.0F);
    sifter.write_velocity(velocity);
  }
  if (Sifter* const server = exchange->server()) {
    std::vector<float> memory = server->memory();
    for (std::uint32_t i = 0; i < memory.size(); ++i) {
      const std::uint32_t at = exchange->served_index(i);
      if (at >= tensor.begin && at < tensor.begin + tensor.size) memory[i] = 0;
    }
    server->write_memory(memory);
  }
  can_take_back = false;
}

void Worker::Parts::set_step(std::uint64_t step) {
  sifter.set_step(step);
  if (Sifter* const server = exchange->server()) server->set_step(step);
}

}  // namespace sparsewire
