// For tests: a stream implemented as a queue of tasks without a thread. Tasks run when the stream's
// progress is queried.
#ifndef MUSTER_KERNELS_TESTING_HOST_QUEUE_H_
#define MUSTER_KERNELS_TESTING_HOST_QUEUE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "kernels/testing/host_stream_abi.h"

namespace muster::kernels {

// Thread-safe.
class HostQueue {
 public:
  using Task = std::function<bool()>;  // makes progress; returns whether it has finished

  HostQueue() {
    abi_.queue = this;
    abi_.abi.enqueue = [](HostStreamAbi* stream, HostStreamTask task) {
      const std::shared_ptr<void> data(task.data, task.release);
      reinterpret_cast<Abi*>(stream)->queue->Enqueue(
          [step = task.step, data] { return step(data.get()) != 0; });
    };
  }
  HostQueue(const HostQueue&) = delete;
  HostQueue& operator=(const HostQueue&) = delete;

  // The handle that fakes use as cudaStream_t.
  HostStreamAbi* native() { return &abi_.abi; }

  // Passes subsequent tasks to `instead`; null: to the queue again.
  void Divert(std::function<void(Task)> instead) {
    const std::lock_guard<std::mutex> lock(mutex_);
    instead_ = std::move(instead);
  }

  // Appends a task to the queue, even if tasks are diverted.
  void Push(Task task) {
    const std::lock_guard<std::mutex> lock(mutex_);
    tasks_.push_back(std::move(task));
    ++given_;
  }
  void Enqueue(Task task) {
    std::function<void(Task)> instead;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      instead = instead_;
    }
    instead != nullptr ? instead(std::move(task)) : Push(std::move(task));
  }

  // Number of tasks queued so far.
  uint64_t given() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return given_;
  }
  // Runs tasks; returns whether that many have finished.
  bool Reached(uint64_t tasks) {
    const std::lock_guard<std::mutex> lock(mutex_);
    while (!tasks_.empty() && tasks_.front()()) {
      tasks_.pop_front();
      ++done_;
    }
    return done_ >= tasks;
  }
  void Await(uint64_t tasks) {
    while (!Reached(tasks)) std::this_thread::yield();
  }

 private:
  struct Abi {
    HostStreamAbi abi;  // first, so that it has the same address
    HostQueue* queue;
  } abi_;
  mutable std::mutex mutex_;
  std::function<void(Task)> instead_;
  std::deque<Task> tasks_;
  uint64_t given_ = 0;
  uint64_t done_ = 0;
};

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_TESTING_HOST_QUEUE_H_
