// TCP between processes: what happens when one of them is killed, stopped, or ends.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "effort.h"
#include "patience.h"
#include "sparsewire/errors.h"
#include "sparsewire/testing/transport_conformance.h"
#include "transport/tcp_ranks.h"

namespace sparsewire::tcp_process_test {
namespace {

using conformance::Bytes;
using conformance::receive;
using conformance::send;
using std::chrono::milliseconds;

const milliseconds kLong = patient(std::chrono::seconds(60));
const milliseconds kDeadline = deadline_that_passes();

const std::string kDidNotRespond = " did not respond within " + std::to_string(kDeadline.count()) + " ms";

// What a rank does; it returns what the test is told.
using Body = std::function<std::string(Transport&)>;

// "RANK: what the error said", or "no error".
std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const TransportError& error) {
    return std::to_string(error.rank()) + ": " + error.what();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

class Processes {
 public:
  // `before_it_connects`: what a rank does before it makes its transport.
  Processes(
      int ranks, milliseconds deadline, const Body& body,
      const std::function<void(int rank)>& before_it_connects = [](int) {}) {
    std::vector<TcpListener> all = listeners(ranks);
    const std::vector<std::string> addresses = addresses_of(all);
    for (int rank = 0; rank < ranks; ++rank) {
      int ends[2];
      if (::pipe(ends) != 0) throw std::runtime_error("no pipe");
      const pid_t process = ::fork();
      if (process == 0) {
        TcpListener own = std::move(all[static_cast<std::size_t>(rank)]);
        all.clear();
        before_it_connects(rank);
        run(std::move(own), rank, addresses, deadline, body, ends[1]);
      }
      ::close(ends[1]);
      processes_.push_back({process, ends[0]});
    }
  }
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  ~Processes() {
    for (const Process& process : processes_) {
      ::kill(process.id, SIGKILL);
      ::waitpid(process.id, nullptr, 0);
      ::close(process.output);
    }
  }

  void signal(int rank, int number) { ::kill(processes_[static_cast<std::size_t>(rank)].id, number); }

  void wait_until_stopped(int rank) { ::waitpid(processes_[static_cast<std::size_t>(rank)].id, nullptr, WUNTRACED); }

  // What the rank's body returned; "" if it was killed, or did not end in time: then it is killed, and the test fails.
  std::string result(int rank) {
    const int output = processes_[static_cast<std::size_t>(rank)].output;
    std::string result;
    char part[256];
    pollfd polled{output, POLLIN, 0};
    while (::poll(&polled, 1, static_cast<int>(2 * kLong.count())) > 0) {
      const ssize_t count = ::read(output, part, sizeof part);
      if (count <= 0) return result;
      result.append(part, static_cast<std::size_t>(count));
    }
    ADD_FAILURE() << "rank " << rank << " did not end";
    return "";
  }

 private:
  struct Process {
    pid_t id;
    int output;
  };

  [[noreturn]] static void run(TcpListener listener, int rank, const std::vector<std::string>& addresses,
                               milliseconds deadline, const Body& body, int output) {
    std::string result;
    const std::string error = error_of([&] {
      const auto transport = make_tcp_transport(std::move(listener), rank, addresses, kTcpToken, deadline);
      result = body(*transport);
    });
    if (error != "no error") result = error;
    [[maybe_unused]] const ssize_t written = ::write(output, result.data(), result.size());
    ::_exit(0);
  }

  std::vector<Process> processes_;
};

void expect_begins(const std::string& text, const std::string& beginning) {
  EXPECT_EQ(text.substr(0, beginning.size()), beginning) << text;
}

// 3 waits for 0, which waits for 1, which waits for 2.
void wait_in_a_chain(Transport& transport) { receive(transport, (transport.rank() + 1) % 4); }

TEST(TcpProcesses, AllNameARankThatWasKilledAtOnce) {
  for (int round = 0; round < 5; ++round) {
    Processes ranks(4, kLong, [](Transport& transport) {
      transport.barrier();
      if (transport.rank() == 2) ::raise(SIGKILL);
      return error_of([&] { wait_in_a_chain(transport); });
    });
    for (const int rank : {0, 1, 3})
      expect_begins(ranks.result(rank), "2: rank 2 has ended; rank 1 was waiting for it");
    EXPECT_EQ(ranks.result(2), "");
  }
}

// In the middle of a long message.
TEST(TcpProcesses, AllNameARankThatWasKilledWhileItSent) {
  Processes ranks(3, kLong, [](Transport& transport) {
    transport.barrier();
    std::vector<Bytes> all;
    std::jthread killer;
    if (transport.rank() == 1) {
      killer = std::jthread([] {
        std::this_thread::sleep_for(milliseconds(30));
        ::raise(SIGKILL);
      });
    }
    return error_of([&] {
      while (true) transport.all_gather(Bytes(20'000'000), all);
    });
  });
  for (const int rank : {0, 2}) expect_begins(ranks.result(rank), "1: rank 1 has ended");
}

TEST(TcpProcesses, AllNameARankThatWasStopped) {
  Processes ranks(4, kDeadline, [](Transport& transport) {
    transport.barrier();
    if (transport.rank() == 2) ::raise(SIGSTOP);
    return error_of([&] { wait_in_a_chain(transport); });
  });
  for (const int rank : {0, 1, 3}) expect_begins(ranks.result(rank), "2: rank 2" + kDidNotRespond);
  ranks.signal(2, SIGCONT);
  expect_begins(ranks.result(2), "2: rank 2" + kDidNotRespond);
}

// It is stopped inside of a call.
TEST(TcpProcesses, AllNameARankThatWasStoppedWhileItWaited) {
  Processes ranks(3, kDeadline, [](Transport& transport) {
    transport.barrier();
    std::jthread stopper;
    if (transport.rank() == 1) {
      stopper = std::jthread([] {
        std::this_thread::sleep_for(milliseconds(30));
        ::raise(SIGSTOP);
      });
    }
    return error_of([&] {
      while (true) transport.barrier();
    });
  });
  for (const int rank : {0, 2}) expect_begins(ranks.result(rank), "1: rank 1" + kDidNotRespond);
  ranks.signal(1, SIGCONT);
  expect_begins(ranks.result(1), "1: rank 1" + kDidNotRespond);
}

// As all processes of a job are that a scheduler preempts.
TEST(TcpProcesses, ConnectAlsoIfTheyWereStoppedForLongerThanTheDeadline) {
  Processes ranks(
      2, kDeadline, [](Transport& transport) { return error_of([&] { transport.barrier(); }); },
      [](int rank) {
        if (rank == 1) ::raise(SIGSTOP);
      });
  ranks.wait_until_stopped(1);
  std::this_thread::sleep_for(milliseconds(30));  // rank 0 waits for it
  ranks.signal(0, SIGSTOP);
  std::this_thread::sleep_for(kDeadline + milliseconds(500));
  for (const int rank : {0, 1}) ranks.signal(rank, SIGCONT);
  for (const int rank : {0, 1}) EXPECT_EQ(ranks.result(rank), "no error");
}

TEST(TcpProcesses, AFailureReachesAllWithItsCause) {
  Processes ranks(4, kLong, [](Transport& transport) {
    transport.barrier();
    if (transport.rank() == 2) {
      transport.fail("the disk is full");
      return std::string("failed");
    }
    return error_of([&] { wait_in_a_chain(transport); });
  });
  for (const int rank : {0, 1, 3}) EXPECT_EQ(ranks.result(rank), "2: rank 2 failed: the disk is full");
}

// Rank 0 sends to the others and ends at once; the others only look later.
TEST(TcpProcesses, TheLastMessageOfARankThatEndedArrives) {
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{100'000}, std::size_t{3'000'000}}) {
    Processes ranks(3, kLong, [bytes](Transport& transport) {
      Bytes sent = conformance::message(0, 0, 0, bytes);
      transport.barrier();
      if (transport.rank() > 0) std::this_thread::sleep_for(milliseconds(50));
      Bytes got = sent;
      transport.broadcast(0, got);
      if (transport.rank() == 0) return std::string("done");
      // These two go on without it.
      const int other = 3 - transport.rank();
      send(transport, other);
      receive(transport, other);
      return std::string(got == sent ? "same" : "not the same");
    });
    EXPECT_EQ(ranks.result(0), "done");
    for (const int rank : {1, 2}) EXPECT_EQ(ranks.result(rank), "same");
  }
}

// As data loaders do: a process made by fork() has a copy of the transport, and destroys it.
TEST(TcpProcesses, ACopyInAForkedProcessEndsNothing) {
  Processes ranks(2, kLong, [](Transport& transport) {
    transport.barrier();
    const pid_t copy = ::fork();
    if (copy == 0) {
      transport.fail("not the rank itself");
      transport.~Transport();  // this process ends without destroying anything else
      ::_exit(0);
    }
    ::waitpid(copy, nullptr, 0);
    return error_of([&] { transport.barrier(); });
  });
  for (const int rank : {0, 1}) EXPECT_EQ(ranks.result(rank), "no error");
}

// Every call of the system may be interrupted.
TEST(TcpProcesses, SignalsDoNotDisturbThem) {
  Processes ranks(2, kLong, [](Transport& transport) {
    struct sigaction action {};
    action.sa_handler = [](int) {};
    ::sigaction(SIGALRM, &action, nullptr);
    // Under the thread sanitizer and with 300, a rank did not end in time on a busy machine.
    const suseconds_t period = kThreadsOnly ? 5000 : 300;
    const itimerval every{{0, period}, {0, period}};
    ::setitimer(ITIMER_REAL, &every, nullptr);
    std::vector<Bytes> all;
    for (int round = 0; round < 100; ++round) {
      const Bytes mine = conformance::message(transport.rank(), 0, round, round % 10 == 0 ? 1'000'000 : 1000);
      transport.all_gather(mine, all);
      if (all[1] != conformance::message(1, 0, round, mine.size())) return std::string("not the same");
    }
    return std::string("same");
  });
  for (const int rank : {0, 1}) EXPECT_EQ(ranks.result(rank), "same");
}

}  // namespace
}  // namespace sparsewire::tcp_process_test
