// A pool of persistent threads for kernels that split their work.
#ifndef MUSTER_KERNELS_THREAD_POOL_H_
#define MUSTER_KERNELS_THREAD_POOL_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"

namespace muster::kernels {

// Thread-safe: if Run is already active, other callers run all their parts themselves, in order.
class ThreadPool {
 public:
  // threads >= 1, including the caller's.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Returns the process-wide pool of this size, so that all convolutions share their threads.
  static std::shared_ptr<ThreadPool> Shared(int threads);

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls run(part) for each 0 <= part < threads(), part 0 in the calling thread, and returns when
  // all have finished. Earlier writes of the caller are visible to every part, and writes of the
  // parts to the caller. Allocates nothing.
  void Run(absl::FunctionRef<void(int part)> run);

 private:
  void Work(int part);

  std::atomic<bool> running_ = false;
  const absl::FunctionRef<void(int)>* run_ = nullptr;
  std::atomic<uint32_t> round_ = 0;    // a change starts the workers
  std::atomic<uint32_t> working_ = 0;  // workers that have not finished the round
  std::atomic<bool> stopping_ = false;
  std::vector<std::thread> workers_;
};

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_THREAD_POOL_H_
