// Ranks as threads that pass messages through queues: the least that a transport has to do.
#pragma once

#include <sparsewire/transport.h>

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

// What all ranks share: a queue of messages from each rank to each.
struct Queues {
  using Queue = std::deque<std::vector<std::byte>>;

  explicit Queues(int ranks) : size(ranks), queues(static_cast<std::size_t>(ranks * ranks)) {}

  Queue& queue(int from, int to) { return queues[static_cast<std::size_t>(from * size + to)]; }

  const int size;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Queue> queues;
};

class QueueTransport final : public sparsewire::Transport {
 public:
  QueueTransport(Queues& queues, int rank) : queues_(queues), rank_(rank) {}

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return queues_.size; }

 protected:
  // The arguments were checked. First all messages are sent, so that no two ranks wait for each other.
  void do_send_receive(std::span<const Outgoing> out, std::span<const Incoming> in) override {
    std::unique_lock lock(queues_.mutex);
    for (const Outgoing& message : out) {
      queues_.queue(rank_, message.rank).emplace_back(message.bytes.begin(), message.bytes.end());
    }
    queues_.changed.notify_all();
    for (const Incoming& message : in) {
      Queues::Queue& queue = queues_.queue(message.rank, rank_);
      queues_.changed.wait(lock, [&] { return !queue.empty(); });
      *message.bytes = std::move(queue.front());
      queue.pop_front();
    }
  }

 private:
  Queues& queues_;
  const int rank_;
};
