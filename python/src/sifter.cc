// Sifter: a sparsifier with its error memory, over numpy arrays and tensors.
#include "sparsewire/sifter.h"

#include <fmt/core.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <string>

#include "bind.h"
#include "context.h"
#include "numbers.h"
#include "one_caller.h"
#include "sparsewire/device.h"
#include "sparsewire/errors.h"

namespace sparsewire::python {
namespace {

using Vector = std::shared_ptr<SparseVector>;

struct HeldSifter {
  HeldSifter(const std::string& spec, const std::string& feedback, SifterContext context, int threads)
      : pool(threads == 1 ? nullptr : std::make_unique<Pool>(threads)),
        sifter(spec, feedback, with_pool(std::move(context), pool.get())),
        door("Sifter", pool != nullptr) {}

  static SifterContext with_pool(SifterContext context, Pool* pool) {
    context.pool = pool;
    return context;
  }

  // flush() and undo() trust what they are given, so it must be the vector of the last sift().
  void check_last(const Vector& sent, const char* call) const {
    if (sent != last) throw UsageError(fmt::format("[Sifter] {} needs the vector that the last sift() returned", call));
  }
  void check_dim(const SparseVector& vector, const char* call) const {
    if (vector.dim == sifter.layout().dim()) return;
    throw UsageError(
        fmt::format("[Sifter] {}: a vector of {} entries for a model of {}", call, vector.dim, sifter.layout().dim()));
  }

  std::unique_ptr<Pool> pool;
  Sifter sifter;
  OneCaller door;
  Vector last;
};

std::unique_ptr<HeldSifter> make(const std::string& spec, const py::object& layout, const std::string& feedback,
                                 std::uint64_t seed, const std::string& scope, int rank, int ranks, double weight,
                                 std::uint64_t first_step, const std::string& role, std::uint64_t model_dim,
                                 int threads, const std::string& device) {
  SifterContext context{.layout = to_layout(layout),
                        .scope = to_scope(scope),
                        .rank = rank,
                        .ranks = ranks,
                        .weight = weight,
                        .seed = seed,
                        .first_step = first_step,
                        .role = to_role(role),
                        .model_dim = model_dim,
                        .device = to_device(device)};
  const py::gil_scoped_release unlocked;
  return std::make_unique<HeldSifter>(spec, feedback, std::move(context), threads);
}

Vector sift(HeldSifter& self, const py::object& gradient, float lr, float unscale) {
  const Numbers numbers(gradient, Numbers::Access::read, "sift");
  const py::gil_scoped_release unlocked;
  const OneCaller::Entry entry(self.door);
  auto sent = std::make_shared<SparseVector>();
  self.last = nullptr;
  self.sifter.sift(numbers.gradient(), *sent, lr, unscale);
  self.last = sent;
  return sent;
}

Vector sift_sum(HeldSifter& self, const SparseVector& sum) {
  const py::gil_scoped_release unlocked;
  const OneCaller::Entry entry(self.door);
  self.check_dim(sum, "sift");
  auto sent = std::make_shared<SparseVector>();
  self.last = nullptr;
  self.sifter.sift(sum, *sent);
  self.last = sent;
  return sent;
}

void undo(HeldSifter& self, const py::object& gradient, const Vector& sent, float lr, float unscale) {
  const Numbers numbers(gradient, Numbers::Access::read, "undo");
  const py::gil_scoped_release unlocked;
  const OneCaller::Entry entry(self.door);
  self.check_last(sent, "undo");
  if (numbers.gradient().size != self.sifter.layout().dim()) throw UsageError("[Sifter] undo: another gradient");
  if (!self.sifter.can_undo()) throw UsageError("[Sifter] undo: there is no step to take back");
  self.sifter.undo(numbers.gradient(), *sent, lr, unscale);
  self.last = nullptr;
}

void undo_sum(HeldSifter& self, const SparseVector& sum, const Vector& sent) {
  const py::gil_scoped_release unlocked;
  const OneCaller::Entry entry(self.door);
  self.check_dim(sum, "undo");
  self.check_last(sent, "undo");
  if (!self.sifter.can_undo()) throw UsageError("[Sifter] undo: there is no step to take back");
  self.sifter.undo(sum, *sent);
  self.last = nullptr;
}

Vector flush(HeldSifter& self, const Vector& sent) {
  const py::gil_scoped_release unlocked;
  const OneCaller::Entry entry(self.door);
  self.check_last(sent, "flush");
  auto all = std::make_shared<SparseVector>(*sent);
  self.sifter.flush(*all);
  self.last = all;
  return all;
}

// Calls use(sent, numbers) with as many numbers as entries.
template <class Use>
void with_values(HeldSifter& self, const SparseVector& sent, const py::object& values, const char* call, Use use) {
  const std::vector<float> numbers = to_floats(values, call);
  const py::gil_scoped_release unlocked;
  const OneCaller::Entry entry(self.door);
  self.check_dim(sent, call);
  if (numbers.size() != sent.size()) {
    throw UsageError(fmt::format("[Sifter] {}: {} values for {} entries", call, numbers.size(), sent.size()));
  }
  use(self.sifter, numbers);
}

// Runs a short call with the door closed.
template <class Use>
auto inside(HeldSifter& self, Use use) {
  const py::gil_scoped_release unlocked;
  const OneCaller::Entry entry(self.door);
  return use(self.sifter);
}

py::dict stats(HeldSifter& self) {
  const SiftStats stats = inside(self, [](Sifter& sifter) { return sifter.stats(); });
  py::dict fields;
  fields["step"] = stats.step;
  fields["entries"] = stats.entries;
  fields["sent_norm2"] = stats.sent_norm2;
  fields["memory_norm2"] = stats.memory_norm2;
  fields["total_error"] = stats.total_error;
  return fields;
}

py::dict traits(HeldSifter& self) {
  const SparsifierTraits traits = inside(self, [](Sifter& sifter) { return sifter.traits(); });
  py::dict fields;
  fields["observes"] = traits.observes;
  fields["entries_vary"] = traits.entries_vary;
  fields["remembers"] = traits.remembers;
  return fields;
}

void read_memory(HeldSifter& self, const std::string& tensor, const py::object& out) {
  const Numbers numbers(out, Numbers::Access::write, "read_memory");
  inside(self, [&](Sifter& sifter) { sifter.read_memory(tensor, numbers.writable()); });
}

void write_memory(HeldSifter& self, const py::object& tensor, const py::object& from) {
  const Numbers numbers(from, Numbers::Access::read, "write_memory");
  const auto name = tensor.is_none() ? std::nullopt : std::optional(tensor.cast<std::string>());
  inside(self, [&](Sifter& sifter) {
    if (name) {
      sifter.write_memory(*name, numbers.gradient());
    } else {
      sifter.write_memory(numbers.gradient());
    }
  });
}

void move_to(HeldSifter& self, const std::string& device) {
  inside(self, [&](Sifter& sifter) { sifter.move_to(to_device(device)); });
}

void continue_from(HeldSifter& self, HeldSifter& other) {
  const py::gil_scoped_release unlocked;
  const OneCaller::Entry entry(self.door);
  const OneCaller::Entry other_entry(other.door);
  self.sifter.continue_from(other.sifter);
  self.last = nullptr;
}

void load(HeldSifter& self, const py::object& state) {
  const Bytes bytes(state);
  inside(self, [&](Sifter& sifter) { sifter.load(bytes.span()); });
  self.last = nullptr;
}

}  // namespace
}  // namespace sparsewire::python

namespace pybind11::detail {

template <>
class type_caster<sparsewire::python::HeldSifter>
    : public sparsewire::python::MadeCaster<sparsewire::python::HeldSifter> {};

}  // namespace pybind11::detail

namespace sparsewire::python {

void bind_sifter(py::module_& module) {
  module.def("has_cuda", &has_cuda, "Whether this build has code for GPUs.");
  module.def(
      "_is_usable",
      [](int index) {
        return is_usable({Device::cuda, index});
      },
      py::arg("index"), py::call_guard<py::gil_scoped_release>(), "Whether arrays on that GPU can be used.");
  py::class_<HeldSifter>(module, "Sifter", R"doc(
A sparsifier together with its error memory.

``spec`` names the sparsifier; ``layout`` is the number of entries, or a dict or list of (name, size), in the order in
which the tensors lie in the flat gradient. ``feedback``: ``ef`` (what is not sent stays), ``ef:decay=0.95,scale=lr``,
``none``, ``momentum:m=0.9,clip=1``. ``threads`` share the work; results do not depend on them.

>>> import numpy
>>> sifter = Sifter("topk:k=1", 4)
>>> sent = sifter.sift(numpy.array([1, -3, 2, 0], numpy.float32))
>>> sent.indices.tolist(), sent.values.tolist()
([1], [-3.0])
>>> sifter.memory().tolist()
[1.0, 0.0, 2.0, 0.0]

Arrays are read in place, without a copy: numpy float32 and float16, tensors of torch (float32, float16, bfloat16), and
arrays of CuPy, in C order. After a gradient on a GPU (has_cuda()) the memory is on that GPU; ``device`` says where it
begins. One caller at a time; the GIL is released.
)doc")
      .def(py::init(&make), py::arg("spec"), py::arg("layout"), py::kw_only(), py::arg("feedback") = "ef",
           py::arg("seed") = 0, py::arg("scope") = "model", py::arg("rank") = 0, py::arg("ranks") = 1,
           py::arg("weight") = 0.0, py::arg("first_step") = 0, py::arg("role") = "worker", py::arg("model_dim") = 0,
           py::arg("threads") = 1, py::arg("device") = "cpu")
      .def("sift", &sift_sum, py::arg("sum"))
      .def("sift", &sift, py::arg("gradient"), py::arg("lr") = 1.0F, py::arg("unscale") = 1.0F, R"doc(
One step: adds the gradient, times ``unscale``, to the memory and moves the chosen entries out of it.

Given a SparseVector, it adds that (feedback ``ef`` with decay 1 only). Raises BadGradient after a NaN or an infinity; then
the step does not count.

>>> import numpy
>>> Sifter("topk:k=1", 2).sift(numpy.array([1, numpy.nan], numpy.float32))
Traceback (most recent call last):
    ...
sparsewire.BadGradient: [topk] rank 0, step 0: at index 1 the gradient is nan; the step was taken back
)doc")
      .def("undo", &undo_sum, py::arg("sum"), py::arg("sent"))
      .def("undo", &undo, py::arg("gradient"), py::arg("sent"), py::arg("lr") = 1.0F, py::arg("unscale") = 1.0F,
           "Takes the last sift() back. ``sent`` is what it, or flush(), returned; the other arguments are the same.")
      .def("flush", &flush, py::arg("sent"),
           "Sends all entries instead of those of the last sift(): returns the full vector; the memory becomes zero.")
      .def(
          "keep_rounding_loss",
          [](HeldSifter& self, const SparseVector& sent, const py::object& received) {
            with_values(self, sent, received, "keep_rounding_loss", [&](Sifter& sifter, std::span<const float> values) {
              sifter.keep_rounding_loss(sent, values);
            });
          },
          py::arg("sent"), py::arg("received"),
          "memory += sent - received, where ``received`` are the values as the other side decodes them.")
      .def(
          "observe",
          [](HeldSifter& self, const SparseVector& sent, const py::object& update) {
            with_values(self, sent, update, "observe",
                        [&](Sifter& sifter, std::span<const float> values) { sifter.observe(sent, values); });
          },
          py::arg("sent"), py::arg("update_at_sent"),
          "The update of all workers at the entries of ``sent``: RegTop-k learns from it.")
      .def_property_readonly(
          "can_undo", [](HeldSifter& self) { return inside(self, [](Sifter& sifter) { return sifter.can_undo(); }); })
      .def_property_readonly(
          "is_all_in_memory",
          [](HeldSifter& self) { return inside(self, [](Sifter& sifter) { return sifter.is_all_in_memory(); }); },
          "Whether later steps depend on the memory and the number of the step only.")
      .def_property(
          "step", [](HeldSifter& self) { return inside(self, [](Sifter& sifter) { return sifter.step(); }); },
          [](HeldSifter& self, std::uint64_t step) { inside(self, [&](Sifter& sifter) { sifter.set_step(step); }); },
          "The number of the next step.")
      .def_property_readonly(
          "expected_entries",
          [](HeldSifter& self) { return inside(self, [](Sifter& sifter) { return sifter.expected_entries(); }); })
      .def_property_readonly("layout", [](HeldSifter& self) { return from_layout(self.sifter.layout()); })
      .def_property_readonly("dim", [](HeldSifter& self) { return self.sifter.layout().dim(); })
      .def_property_readonly(
          "device",
          [](HeldSifter& self) { return inside(self, [](Sifter& sifter) { return to_word(sifter.device()); }); },
          "Where the memory is: ``cpu``, ``cuda:0``, ... After sift() it is where the gradient was.")
      .def("move_to", &move_to, py::arg("device"),
           "Moves the memory. The last step can no longer be taken back. A SparseVector is sifted wherever it is.")
      .def(
          "is_voting", [](HeldSifter& self) { return inside(self, [](Sifter& sifter) { return sifter.is_voting(); }); },
          "Whether all ranks have to agree on a number, such as a measured threshold, before the next step.")
      .def("vote", [](HeldSifter& self) { return inside(self, [](Sifter& sifter) { return sifter.vote(); }); })
      .def(
          "set_vote",
          [](HeldSifter& self, float agreed) { inside(self, [&](Sifter& sifter) { sifter.set_vote(agreed); }); },
          py::arg("agreed"))
      .def("traits", &traits)
      .def("stats", &stats, "Of the last step: step, entries, sent_norm2, memory_norm2, total_error.")
      .def(
          "memory",
          [](HeldSifter& self) { return to_array(inside(self, [](Sifter& sifter) { return sifter.memory(); })); },
          "The error memory: what was not sent yet. A copy.")
      .def(
          "velocity",
          [](HeldSifter& self) { return to_array(inside(self, [](Sifter& sifter) { return sifter.velocity(); })); },
          "DGC's velocity; empty unless the feedback is ``momentum``. A copy.")
      .def("read_memory", &read_memory, py::arg("tensor"), py::arg("out"),
           "Copies the memory of one tensor to an array of its size.")
      .def("write_memory", &write_memory, py::arg("tensor"), py::arg("numbers"),
           "Replaces the memory of one tensor; of all of them if ``tensor`` is None.")
      .def(
          "write_velocity",
          [](HeldSifter& self, const py::object& from) {
            const Numbers numbers(from, Numbers::Access::read, "write_velocity");
            inside(self, [&](Sifter& sifter) { sifter.write_velocity(numbers.gradient()); });
          },
          py::arg("numbers"))
      .def("continue_from", &continue_from, py::arg("other"),
           "Takes memory, velocity, step number and statistics of another Sifter over, under this one's specs.")
      .def(
          "save", [](HeldSifter& self) { return to_bytes(inside(self, [](Sifter& sifter) { return sifter.save(); })); },
          "Everything that later steps depend on, as bytes (docs/reference/state_format.md).")
      .def("load", &load, py::arg("state"),
           "Continues where save() left off, with the same bits. Tensors are found by name.")
      .def(
          "inherit",
          [](HeldSifter& self, const py::object& state) {
            const Bytes bytes(state);
            inside(self, [&](Sifter& sifter) { sifter.inherit(bytes.span()); });
          },
          py::arg("state"), "Reads only what does not belong to single entries: step number, threshold, statistics.");
}

}  // namespace sparsewire::python
