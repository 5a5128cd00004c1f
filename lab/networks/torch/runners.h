// The threads on which libtorch computes: as many as there are processors, or one that drives a GPU. Workers hand their
// passes to them and wait.
//
// So there are as many sets of activations as processors, however many workers there are. libtorch's settings of a
// thread and its floating-point mode never reach the workers' threads.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace sparsewire::train::torch {

class Runners {
 public:
  // `begin` runs first on each thread. `most`: threads; 0: as many as there are processors.
  explicit Runners(std::function<void()> begin, std::size_t most = 0);
  ~Runners();
  Runners(const Runners&) = delete;
  Runners& operator=(const Runners&) = delete;

  // Runs `work` on one of the threads, and returns or throws as it does. THREADS: any number of callers.
  void run(const std::function<void()>& work);

 private:
  struct Job;

  void serve();

  std::function<void()> begin_;
  std::size_t most_;
  std::mutex mutex_;
  std::condition_variable has_job_;
  std::deque<Job*> jobs_;
  std::size_t idle_ = 0;
  bool is_ending_ = false;
  std::vector<std::thread> threads_;  // started when there is work for them
};

}  // namespace sparsewire::train::torch
