#include "networks/torch/runners.h"

#include <algorithm>
#include <cfenv>
#include <exception>
#include <utility>

namespace sparsewire::train::torch {

struct Runners::Job {
  const std::function<void()>& work;
  std::exception_ptr error = nullptr;
  bool is_done = false;
  std::condition_variable done = {};
};

Runners::Runners(std::function<void()> begin, std::size_t most)
    : begin_(std::move(begin)), most_(most != 0 ? most : std::max(1U, std::thread::hardware_concurrency())) {}

Runners::~Runners() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  has_job_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Runners::run(const std::function<void()>& work) {
  Job job{work};
  std::unique_lock lock(mutex_);
  // First, because it can throw. A thread that is idle takes the job; one that is busy looks for it when it is done.
  if (idle_ <= jobs_.size() && threads_.size() < most_) threads_.emplace_back([this] { serve(); });
  jobs_.push_back(&job);
  has_job_.notify_one();
  job.done.wait(lock, [&] { return job.is_done; });
  lock.unlock();
  if (job.error) std::rethrow_exception(job.error);
}

void Runners::serve() {
  std::fesetenv(FE_DFL_ENV);
  begin_();
  std::unique_lock lock(mutex_);
  while (true) {
    ++idle_;
    has_job_.wait(lock, [&] { return is_ending_ || !jobs_.empty(); });
    --idle_;
    if (jobs_.empty()) return;
    Job& job = *jobs_.front();
    jobs_.pop_front();
    lock.unlock();
    try {
      job.work();
    } catch (...) {
      job.error = std::current_exception();
    }
    lock.lock();
    job.is_done = true;
    job.done.notify_one();
  }
}

}  // namespace sparsewire::train::torch
