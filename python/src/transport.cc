// Transport, ThreadGroup, and the transports between processes.
#include "transport.h"

#include <fmt/core.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <chrono>
#include <cmath>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bind.h"
#include "numbers.h"
#include "sparsewire/errors.h"
#include "sparsewire/tcp_transport.h"

namespace pybind11::detail {

template <>
class type_caster<sparsewire::ThreadGroup> : public sparsewire::python::MadeCaster<sparsewire::ThreadGroup> {};
template <>
class type_caster<sparsewire::TcpListener> : public sparsewire::python::MadeCaster<sparsewire::TcpListener> {};

}  // namespace pybind11::detail

namespace sparsewire::python {
namespace {

constexpr double kDefaultSeconds = 300;

std::chrono::milliseconds to_deadline(double seconds) {
  if (!(seconds >= 0.001 && seconds <= 3.6e7)) {
    throw UsageError(fmt::format("[transport] a deadline of {} s is not in [0.001, 36,000,000]", seconds));
  }
  return std::chrono::milliseconds(std::llround(seconds * 1000));
}

bool is_main_thread() {
  const py::object main = py::module_::import("threading").attr("main_thread")();
  return main.attr("ident").cast<unsigned long>() == PyThread_get_thread_ident();
}

// Runs the call on a thread of its own, so that this one can look for signals.
void wait_and_look_for_signals(Transport& transport, const std::function<void()>& call) {
  constexpr std::chrono::milliseconds kBetweenLooks(50);
  std::mutex mutex;
  std::condition_variable ended;
  bool has_ended = false;
  std::exception_ptr thrown;
  std::optional<py::error_already_set> interrupted;
  {
    std::jthread thread([&] {
      try {
        call();
      } catch (...) {
        thrown = std::current_exception();
      }
      const std::lock_guard lock(mutex);
      has_ended = true;
      ended.notify_one();
    });
    const auto wait = [&](auto how) {
      const py::gil_scoped_release unlocked;
      std::unique_lock lock(mutex);
      return how(lock);
    };
    while (!wait([&](auto& lock) { return ended.wait_for(lock, kBetweenLooks, [&] { return has_ended; }); })) {
      if (PyErr_CheckSignals() == 0) continue;
      interrupted.emplace();
      transport.fail("interrupted by a signal");
      wait([&](auto& lock) {
        ended.wait(lock, [&] { return has_ended; });
        return true;
      });
      break;
    }
  }
  if (interrupted) throw *interrupted;
  if (thrown) std::rethrow_exception(thrown);
}

// Makes a collective call of the transport.
template <class Call>
void collective(HeldTransport& self, Call call) {
  const OneCaller::Entry entry(self.door());
  wait_for_ranks(self.get(), [&] { call(self.get()); });
}

py::list list_of(const std::vector<std::vector<std::byte>>& messages) {
  py::list all;
  for (const auto& message : messages) all.append(to_bytes(message));
  return all;
}

py::list all_gather(HeldTransport& self, const py::object& mine) {
  const Bytes bytes(mine);
  std::vector<std::vector<std::byte>> all;
  collective(self, [&](Transport& transport) { transport.all_gather(bytes.span(), all); });
  return list_of(all);
}

py::list gather(HeldTransport& self, const py::object& mine, int root) {
  const Bytes bytes(mine);
  std::vector<std::vector<std::byte>> all;
  collective(self, [&](Transport& transport) { transport.gather(root, bytes.span(), all); });
  return list_of(all);
}

py::list all_to_all(HeldTransport& self, const std::vector<py::object>& to) {
  std::vector<std::vector<std::byte>> out;
  for (const py::object& message : to) {
    const Bytes bytes(message);
    out.emplace_back(bytes.span().begin(), bytes.span().end());
  }
  std::vector<std::vector<std::byte>> from;
  collective(self, [&](Transport& transport) { transport.all_to_all(out, from); });
  return list_of(from);
}

py::bytes broadcast(HeldTransport& self, const py::object& mine, int root) {
  std::vector<std::byte> message;
  if (!mine.is_none()) {
    const Bytes bytes(mine);
    message.assign(bytes.span().begin(), bytes.span().end());
  }
  collective(self, [&](Transport& transport) { transport.broadcast(root, message); });
  return to_bytes(message);
}

py::dict send_receive(HeldTransport& self, const std::vector<std::pair<int, py::object>>& to,
                      const std::vector<int>& from) {
  std::vector<Bytes> held;
  std::vector<Transport::Outgoing> out;
  for (const auto& [rank, message] : to) {
    held.emplace_back(message);
    out.push_back({rank, held.back().span()});
  }
  std::vector<std::vector<std::byte>> received(from.size());
  std::vector<Transport::Incoming> in;
  for (std::size_t i = 0; i < from.size(); ++i) in.push_back({from[i], &received[i]});
  collective(self, [&](Transport& transport) { transport.send_receive(out, in); });
  py::dict messages;
  for (std::size_t i = 0; i < from.size(); ++i) messages[py::int_(from[i])] = to_bytes(received[i]);
  return messages;
}

void all_reduce_sum(HeldTransport& self, const py::object& array) {
  const Numbers numbers(array, Numbers::Access::write, "all_reduce_sum");
  if (!numbers.is_on_host()) throw UsageError("[all_reduce_sum] the array is on a GPU: it must be on the CPU");
  collective(self, [&](Transport& transport) { transport.all_reduce_sum(numbers.writable()); });
}

}  // namespace

std::shared_ptr<HeldTransport> make_alone() {
  const auto group = std::make_shared<ThreadGroup>(1);
  return std::make_shared<HeldTransport>(group->at(0), group);
}

void wait_for_ranks(Transport& transport, const std::function<void()>& call) {
  if (transport.size() > 1 && is_main_thread()) return wait_and_look_for_signals(transport, call);
  const py::gil_scoped_release unlocked;
  call();
}

void bind_transport(py::module_& module) {
  py::class_<HeldTransport, std::shared_ptr<HeldTransport>>(module, "Transport", R"doc(
Moves bytes between ranks. All calls but fail() are collective: every rank makes the same calls in the same order.

Get one from run_on_threads() or a ThreadGroup. After a TransportError it must not be used again.
)doc")
      .def_property_readonly("rank", [](const HeldTransport& self) { return self.get().rank(); })
      .def_property_readonly("size", [](const HeldTransport& self) { return self.get().size(); })
      .def(
          "fail", [](const HeldTransport& self, const std::string& why) { self.get().fail(why); }, py::arg("why"),
          py::call_guard<py::gil_scoped_release>(),
          "This rank cannot go on: the other ranks raise TransportError with this cause. From any thread.")
      .def(
          "barrier", [](HeldTransport& self) { collective(self, [](Transport& transport) { transport.barrier(); }); },
          "Returns when all ranks have called it.")
      .def("all_gather", &all_gather, py::arg("mine"), "The bytes of all ranks, in rank order.")
      .def("gather", &gather, py::arg("mine"), py::arg("root") = 0,
           "The bytes of all ranks on rank ``root``; an empty list on the others.")
      .def("all_to_all", &all_to_all, py::arg("to"), "Sends to[r] to rank r; returns what each rank sent to this one.")
      .def("broadcast", &broadcast, py::arg("mine") = py::none(), py::arg("root") = 0,
           "The bytes of rank ``root``; those of the others do not matter.")
      .def("send_receive", &send_receive, py::arg("to"), py::arg("from_ranks"),
           "Sends the (rank, bytes) in ``to``; returns a dict of what came from each rank of ``from_ranks``.")
      .def("all_reduce_sum", &all_reduce_sum, py::arg("array"),
           "The sum over all ranks, in place; float32 or bfloat16. The same bits on every rank.");

  py::class_<ThreadGroup, std::shared_ptr<ThreadGroup>>(module, "ThreadGroup", R"doc(
The transports of ranks that are threads of this process, each on a thread that the caller provides.

``deadline``: seconds of silence after which a rank counts as lost. run_on_threads() is simpler.

>>> ThreadGroup(2).at(1).rank
1
)doc")
      .def(py::init(
               [](int size, double deadline) { return std::make_shared<ThreadGroup>(size, to_deadline(deadline)); }),
           py::arg("size"), py::arg("deadline") = kDefaultSeconds)
      .def(
          "at",
          [](const std::shared_ptr<ThreadGroup>& self, int rank) {
            return std::make_shared<HeldTransport>(self->at(rank), self);
          },
          py::arg("rank"), "The transport of one rank.")
      .def(
          "mark_lost",
          [](ThreadGroup& self, int rank, const std::string& reason) { self.mark_lost(rank, reason.c_str()); },
          py::arg("rank"), py::arg("reason"), "The same as at(rank).fail(reason).")
      .def("mark_done", &ThreadGroup::mark_done, py::arg("rank"),
           "The rank makes no more calls: only who waits for it fails.");

  py::class_<TcpListener>(module, "TcpListener", R"doc(
Where a rank waits for the connections of others: on ``address`` of this machine, at a port that the system chooses.

>>> TcpListener("127.0.0.1").address.startswith("127.0.0.1:")
True
)doc")
      .def(py::init<const std::string&>(), py::arg("address"))
      .def_property_readonly("address", &TcpListener::address, "With the port: what other ranks connect to.");
  module.def(
      "tcp_transport",
      [](TcpListener& listener, int rank, const std::vector<std::string>& addresses, const py::bytes& token,
         double deadline) {
        const auto limit = to_deadline(deadline);
        const std::string secret = token;
        const py::gil_scoped_release unlocked;
        return hold(make_tcp_transport(std::move(listener), rank, addresses, secret, limit));
      },
      py::arg("listener"), py::arg("rank"), py::arg("addresses"), py::arg("token"),
      py::arg("deadline") = kDefaultSeconds,
      "Processes that find each other by themselves; collective. ``addresses[r]`` is where rank r listens, ``token`` a "
      "secret of all ranks that keeps strangers out; nothing is encrypted. The listener is used up.");
  module.def("local_address_towards", &local_address_towards, py::arg("host"), py::arg("port"),
             py::call_guard<py::gil_scoped_release>(),
             "The address of this machine from which packets to ``host`` leave. Sends nothing.");

  module.def("has_mpi", &has_mpi, "Whether this build has MPI.");
  module.def(
      "mpi_transport",
      [](double deadline) {
        const auto limit = to_deadline(deadline);
        const py::gil_scoped_release unlocked;
        return hold(make_mpi_transport(limit));
      },
      py::arg("deadline") = kDefaultSeconds,
      "The processes that mpirun started; collective. Raises UsageError if this build has no MPI.");
}

}  // namespace sparsewire::python
