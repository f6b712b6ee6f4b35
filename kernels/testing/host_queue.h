// For tests: a stream as a queue of tasks without a thread. They go on when somebody asks how far
// it is.
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
  using Task = std::function<bool()>;  // goes on -> whether it has come to its end

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

  // What stand-ins take for a cudaStream_t.
  HostStreamAbi* native() { return &abi_.abi; }

  // From now on tasks go to `instead`; null: again into the queue.
  void Divert(std::function<void(Task)> instead) {
    const std::lock_guard<std::mutex> lock(mutex_);
    instead_ = std::move(instead);
  }

  // Where it would go if it were not diverted.
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

  // How many tasks there were so far.
  uint64_t given() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return given_;
  }
  // Whether that many have come to their end.
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
    HostStreamAbi abi;  // first: its address is this one's
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
