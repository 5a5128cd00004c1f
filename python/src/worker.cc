// Worker: one step of all workers, over numpy arrays and tensors.
#include "sparsewire/worker.h"

#include <fmt/core.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bind.h"
#include "context.h"
#include "numbers.h"
#include "one_caller.h"
#include "sparsewire/errors.h"
#include "transport.h"

namespace sparsewire::python {
namespace {

// A worker with what it borrows: the transport, the pool, and the gradient of the step that may be taken back.
struct HeldWorker {
  std::shared_ptr<HeldTransport> transport;
  std::unique_ptr<Pool> pool;
  WorkerConfig config;
  std::optional<Worker> worker;
  Numbers gradient;
  std::exception_ptr refused;  // why the array of the step that has begun cannot be used
  OneCaller door{"Worker"};
};

std::unique_ptr<Pool> make_pool(int threads) { return threads == 1 ? nullptr : std::make_unique<Pool>(threads); }

// Sets the options that `given` names; the same names as in WorkerConfig. `threads` is left to the caller.
void set_options(WorkerConfig& config, const py::dict& given) {
  for (const auto& [key, value] : given) {
    const auto name = key.cast<std::string>();
    const auto text = [&, held = value] { return held.is_none() ? std::string() : held.cast<std::string>(); };
    if (name == "sparsifier") {
      config.sparsifier = text();
    } else if (name == "feedback") {
      config.feedback = text();
    } else if (name == "exchange") {
      config.exchange = text();
    } else if (name == "codec") {
      config.codec = text();
    } else if (name == "downlink") {
      config.downlink = text();
    } else if (name == "downlink_codec") {
      config.downlink_codec = text();
    } else if (name == "downlink_feedback") {
      config.downlink_feedback = text();
    } else if (name == "scope") {
      config.scope = to_scope(text());
    } else if (name == "average") {
      config.average = to_average(text());
    } else if (name == "weight") {
      config.weight = value.cast<double>();
    } else if (name == "seed") {
      config.seed = value.cast<std::uint64_t>();
    } else if (name == "check_every") {
      config.check_every = value.cast<std::uint64_t>();
    } else if (name != "threads") {
      throw py::type_error(
          fmt::format("[Worker] '{}' is no option: sparsifier, feedback, exchange, codec, downlink, "
                      "downlink_codec, downlink_feedback, scope, average, weight, seed, check_every, threads",
                      name));
    }
  }
}

std::unique_ptr<HeldWorker> make(const py::object& layout, const std::shared_ptr<HeldTransport>& transport,
                                 const py::kwargs& options) {
  auto held = std::make_unique<HeldWorker>();
  held->transport = transport ? transport : make_alone();
  set_options(held->config, options);
  held->pool = make_pool(options.contains("threads") ? options["threads"].cast<int>() : 1);
  held->config.pool = held->pool.get();
  held->door.set_has_threads(held->pool != nullptr);
  Layout tensors = to_layout(layout);
  const OneCaller::Entry entry(held->transport->door());
  wait_for_ranks(held->transport->get(),
                 [&] { held->worker.emplace(held->config, std::move(tensors), held->transport->get()); });
  return held;
}

// Makes a call without messages, with the GIL released.
template <class Use>
auto inside(HeldWorker& self, Use use) {
  const py::gil_scoped_release unlocked;
  const OneCaller::Entry entry(self.door);
  return use(*self.worker);
}

StepOptions step_options(float lr, float unscale, int flags, double loss, std::optional<double> weight) {
  if (flags < 0 || flags > 255) throw UsageError(fmt::format("[Worker] flags={} is not in [0, 255]", flags));
  return {.lr = lr, .unscale = unscale, .flags = static_cast<std::uint8_t>(flags), .loss = loss, .weight = weight};
}

// An array that cannot be used is an error of this rank like a gradient of the wrong size: the others must be told. So
// the step begins with a gradient that it will refuse, and finish() throws the error that says why.
void begin(HeldWorker& self, const py::object& array, float lr, float unscale, int flags, double loss,
           std::optional<double> weight) {
  Numbers gradient;
  StepOptions options;
  std::exception_ptr refused;
  try {
    options = step_options(lr, unscale, flags, loss, weight);
    gradient = Numbers(array, Numbers::Access::read, "step");
  } catch (const std::exception&) {
    refused = std::current_exception();
  }
  const std::size_t wrong_size = self.worker->layout().dim() == 0 ? 1 : 0;
  {
    const py::gil_scoped_release unlocked;
    self.worker->begin_step(refused ? Gradient(nullptr, NumberType::f32, wrong_size) : gradient.gradient(), options);
  }
  self.gradient = std::move(gradient);
  self.refused = refused;
}

void finish(HeldWorker& self) {
  const std::exception_ptr refused = std::exchange(self.refused, nullptr);
  try {
    const OneCaller::Entry entry(self.transport->door());
    wait_for_ranks(self.transport->get(), [&] { self.worker->finish_step(); });
  } catch (const UsageError&) {
    if (refused) std::rethrow_exception(refused);
    throw;
  }
}

void begin_step(HeldWorker& self, const py::object& array, float lr, float unscale, int flags, double loss,
                std::optional<double> weight) {
  const OneCaller::Entry entry(self.door);
  begin(self, array, lr, unscale, flags, loss, weight);
}

void finish_step(HeldWorker& self) {
  const OneCaller::Entry entry(self.door);
  finish(self);
}

void step(HeldWorker& self, const py::object& array, float lr, float unscale, int flags, double loss,
          std::optional<double> weight) {
  const OneCaller::Entry entry(self.door);
  begin(self, array, lr, unscale, flags, loss, weight);
  finish(self);
}

// For the hook: in one go without the GIL, for which other threads may make it wait.
void step_in_place(HeldWorker& self, const py::object& array, float unscale) {
  const OneCaller::Entry entry(self.door);
  const Numbers numbers(array, Numbers::Access::write, "step_in_place");
  self.gradient = Numbers();
  const OneCaller::Entry transport_entry(self.transport->door());
  wait_for_ranks(self.transport->get(), [&] {
    self.worker->begin_step(numbers.gradient(), {.unscale = unscale});
    self.worker->finish_step();
    self.worker->write_update(numbers.writable());
    numbers.wait_until_written();
  });
}

void retune(HeldWorker& self, const py::kwargs& options) {
  const OneCaller::Entry entry(self.door);
  WorkerConfig config = self.config;
  set_options(config, options);
  std::unique_ptr<Pool> pool;
  const bool has_pool = options.contains("threads");
  if (has_pool) {
    pool = make_pool(options["threads"].cast<int>());
    config.pool = pool.get();
  }
  {
    const OneCaller::Entry transport_entry(self.transport->door());
    wait_for_ranks(self.transport->get(), [&] { self.worker->retune(config); });
  }
  self.config = config;
  if (has_pool) self.pool = std::move(pool);
  self.door.set_has_threads(self.pool != nullptr);
}

void adopt(HeldWorker& self, const std::vector<HeldWorker*>& others) {
  const py::gil_scoped_release unlocked;
  const OneCaller::Entry entry(self.door);
  std::vector<std::unique_ptr<OneCaller::Entry>> entries;
  std::vector<Worker*> workers;
  for (HeldWorker* const other : others) {
    if (other == nullptr) throw UsageError("[Worker] adopt: a list of workers");
    entries.push_back(std::make_unique<OneCaller::Entry>(other->door));
    workers.push_back(&*other->worker);
  }
  self.worker->adopt(workers);
}

void load(HeldWorker& self, const py::object& states) {
  std::vector<std::vector<std::byte>> all;
  const auto add = [&](py::handle state) {
    const Bytes bytes(state);
    all.emplace_back(bytes.span().begin(), bytes.span().end());
  };
  if (PyObject_CheckBuffer(states.ptr()) != 0) {
    add(states);
  } else {
    for (const py::handle state : states) add(state);
  }
  inside(self, [&](Worker& worker) { worker.load(all); });
}

std::shared_ptr<SparseVector> update(HeldWorker& self) {
  return inside(self, [](Worker& worker) { return std::make_shared<SparseVector>(worker.update()); });
}

void write_update(HeldWorker& self, const py::object& out, float factor) {
  const Numbers numbers(out, Numbers::Access::write, "write_update");
  inside(self, [&](Worker& worker) {
    worker.write_update(numbers.writable(), factor);
    numbers.wait_until_written();
  });
}

void apply_update(HeldWorker& self, const py::object& weights, float lr) {
  const Numbers numbers(weights, Numbers::Access::write, "apply_update");
  inside(self, [&](Worker& worker) {
    worker.apply_update(numbers.writable(), lr);
    numbers.wait_until_written();
  });
}

void read_memory(HeldWorker& self, const std::string& tensor, const py::object& out) {
  const Numbers numbers(out, Numbers::Access::write, "read_memory");
  inside(self, [&](Worker& worker) { worker.read_memory(tensor, numbers.writable()); });
}

void write_memory(HeldWorker& self, const std::string& tensor, const py::object& from) {
  const Numbers numbers(from, Numbers::Access::read, "write_memory");
  inside(self, [&](Worker& worker) { worker.write_memory(tensor, numbers.gradient()); });
}

void add_server_memory(HeldWorker& self, const py::object& owed) {
  const Doubles doubles(owed, "add_server_memory");
  inside(self, [&](Worker& worker) { worker.add_server_memory(doubles.span()); });
}

StepStats last_stats(HeldWorker& self) {
  return inside(self, [](Worker& worker) { return worker.stats(); });
}

py::dict to_dict(const StepStats& stats) {
  py::dict fields;
  fields["step"] = stats.step;
  fields["entries_sent"] = stats.entries_sent;
  fields["entries_total"] = stats.entries_total;
  fields["density"] = stats.density;
  fields["dense_bytes"] = stats.dense_bytes;
  fields["bytes_up"] = stats.bytes_up;
  fields["bytes_down"] = stats.bytes_down;
  fields["bytes_served"] = stats.bytes_served;
  fields["trailer_bytes_up"] = stats.trailer_bytes_up;
  fields["trailer_bytes_down"] = stats.trailer_bytes_down;
  fields["trailer_bytes_served"] = stats.trailer_bytes_served;
  fields["sent_norm2"] = stats.sent_norm2;
  fields["memory_norm2"] = stats.memory_norm2;
  fields["server_memory_norm2"] = stats.server_memory_norm2;
  fields["total_error"] = stats.total_error;
  fields["server_error"] = stats.server_error;
  fields["flags"] = stats.flags;
  fields["loss"] = stats.loss;
  fields["went_dense"] = stats.went_dense;
  fields["ns_sift"] = stats.ns_sift;
  fields["ns_encode"] = stats.ns_encode;
  fields["ns_exchange"] = stats.ns_exchange;
  fields["ns_decode"] = stats.ns_decode;
  fields["ns_merge"] = stats.ns_merge;
  fields["ns_apply"] = stats.ns_apply;
  return fields;
}

py::dict config(const HeldWorker& self) {
  const WorkerConfig& config = self.config;
  py::dict fields;
  fields["sparsifier"] = config.sparsifier;
  fields["feedback"] = config.feedback;
  fields["exchange"] = config.exchange;
  fields["codec"] = config.codec;
  fields["downlink"] = config.downlink;
  fields["downlink_codec"] = config.downlink_codec;
  fields["downlink_feedback"] = config.downlink_feedback;
  fields["scope"] = to_word(config.scope);
  fields["average"] = to_word(config.average);
  fields["weight"] = config.weight;
  fields["seed"] = config.seed;
  fields["check_every"] = config.check_every;
  fields["threads"] = self.pool == nullptr ? 1 : self.pool->size();
  return fields;
}

}  // namespace
}  // namespace sparsewire::python

namespace pybind11::detail {

template <>
class type_caster<sparsewire::python::HeldWorker>
    : public sparsewire::python::MadeCaster<sparsewire::python::HeldWorker> {};

}  // namespace pybind11::detail

namespace sparsewire::python {

void bind_worker(py::module_& module) {
  // A copy that costs little; the hook keeps one for each step.
  py::class_<StepStats>(module, "_LastStats")
      .def_readonly("dense_bytes", &StepStats::dense_bytes)
      .def_readonly("bytes_up", &StepStats::bytes_up)
      .def_readonly("bytes_down", &StepStats::bytes_down)
      .def_readonly("bytes_served", &StepStats::bytes_served)
      .def("to_dict", &to_dict);
  py::class_<HeldWorker>(module, "Worker", R"doc(
One of many workers: a gradient goes in, the update of all workers comes out, the same bits on every rank.

Collective: all ranks make theirs together, with the same options except ``weight`` and ``threads``. Without a
``transport`` this process is alone. The other options, by keyword, with their defaults:

    sparsifier="topk:ratio=0.01", feedback="ef", exchange="sharded", codec="auto", downlink="", downlink_codec="",
    downlink_feedback="ef", scope="model", average="all", weight=1.0, seed=0, check_every=100, threads=1

>>> import numpy
>>> def body(transport):
...     worker = Worker(4, transport=transport, sparsifier="topk:k=1")
...     gradient = numpy.array([1, 0, 0, 3 - transport.rank], numpy.float32)
...     worker.step(gradient)
...     weights = numpy.zeros(4, numpy.float32)
...     worker.apply_update(weights, lr=0.5)
...     return weights.tolist()
>>> run_on_threads(2, body)
[[0.0, 0.0, 0.0, -1.25], [0.0, 0.0, 0.0, -1.25]]

Arrays are read and written in place, without a copy, as in Sifter. One caller at a time; the GIL is released.
)doc")
      .def(py::init(&make), py::arg("layout"), py::kw_only(), py::arg("transport") = std::shared_ptr<HeldTransport>())
      .def("step", &step, py::arg("gradient"), py::arg("lr") = 1.0F, py::arg("unscale") = 1.0F, py::arg("flags") = 0,
           py::arg("loss") = 0.0, py::arg("weight") = std::optional<double>(), R"doc(
One step of all workers: begin_step() and finish_step(). Then update(), write_update() or apply_update().

``lr`` is for the feedback ``ef:scale=lr``; the gradient is multiplied by ``unscale``. ``stats()`` has the ``flags`` of
all ranks, or-ed, and the mean of their ``loss``. ``weight`` is that of this rank in this step, with ``average="senders"``. The worker keeps the array until the next step.

Raises BadGradient on every rank if one gradient is not finite, RankFailed if another rank failed; then the step does not
count and the next one can follow. Raises TransportError if a rank is lost; then this worker must not be used again.
)doc")
      .def("begin_step", &begin_step, py::arg("gradient"), py::arg("lr") = 1.0F, py::arg("unscale") = 1.0F,
           py::arg("flags") = 0, py::arg("loss") = 0.0, py::arg("weight") = std::optional<double>(),
           "The first half, without messages. The gradient must not change until the step is finished or taken back.")
      .def("finish_step", &finish_step, "The second half: all messages. From any thread.")
      .def(
          "take_back_step", [](HeldWorker& self) { inside(self, [](Worker& worker) { worker.take_back_step(); }); },
          "The last finished step did not count; on all ranks, or none. The gradient must not have changed.")
      .def("update", &update, "The update of the last step, as a SparseVector of its own.")
      .def("write_update", &write_update, py::arg("out"), py::arg("factor") = 1.0F,
           "Writes factor * update as a dense array; it may be the gradient's own.")
      .def("apply_update", &apply_update, py::arg("weights"), py::arg("lr"), "weights -= lr * update, in place.")
      .def(
          "stats", [](HeldWorker& self) { return to_dict(last_stats(self)); },
          "What the last step did and cost on this rank: a dict.")
      .def("_last_stats", &last_stats)
      .def("_step_in_place", &step_in_place, py::arg("array"), py::arg("unscale"),
           "step(), and write_update() over the gradient: the step cannot be taken back.")
      .def_property_readonly("config", &config, "The options, as given.")
      .def_property_readonly("layout", [](HeldWorker& self) { return from_layout(self.worker->layout()); })
      .def_property_readonly("dim", [](HeldWorker& self) { return self.worker->layout().dim(); })
      .def_property_readonly("transport", [](HeldWorker& self) { return self.transport; })
      .def(
          "memory",
          [](HeldWorker& self) { return to_array(inside(self, [](Worker& worker) { return worker.memory(); })); },
          "The error memory: what this worker has not sent yet. A copy.")
      .def("read_memory", &read_memory, py::arg("tensor"), py::arg("out"),
           "Copies the memory of one tensor to an array of its size.")
      .def("write_memory", &write_memory, py::arg("tensor"), py::arg("numbers"), "Replaces the memory of one tensor.")
      .def("add_server_memory", &add_server_memory, py::arg("owed"),
           "Adds what this rank has not sent yet as a server to a float64 array of all entries.")
      .def("retune", &retune, R"doc(
Changes options between two steps, by keyword; memories are kept. Collective.

>>> worker = Worker(100, sparsifier="topk:ratio=0.1")
>>> worker.retune(sparsifier="topk:ratio=0.01")
>>> worker.config["sparsifier"]
'topk:ratio=0.01'
)doc")
      .def("adopt", &adopt, py::arg("others"),
           "Takes over what other workers of this rank have not sent yet, tensor by tensor. On all ranks.")
      .def(
          "save", [](HeldWorker& self) { return to_bytes(inside(self, [](Worker& worker) { return worker.save(); })); },
          "Everything that decides later steps, as bytes.")
      .def("load", &load, py::arg("states"),
           "Continues from the states of all ranks, in rank order; or from this rank's own where nothing has changed.");

  module.def("_exchanges", [] {
    py::list all;
    for (const ExchangeChoice& choice : exchange_choices()) {
      all.append(py::make_tuple(std::string(choice.name), std::string(choice.summary), std::string(choice.example),
                                choice.takes_downlink));
    }
    return all;
  });
}

}  // namespace sparsewire::python
