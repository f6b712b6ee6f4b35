#include "kernels/thread_pool.h"

#include <map>
#include <mutex>

namespace muster::kernels {
namespace {

// About ten microseconds: usually the next layer's call comes before a sleeping thread would wake.
constexpr int kSpins = 2000;

// Blocks until `value` differs from `old`.
void WaitWhile(const std::atomic<uint32_t>& value, uint32_t old) {
  for (int i = 0; i < kSpins; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
  value.wait(old, std::memory_order_acquire);
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
  for (int part = 1; part < threads; ++part) workers_.emplace_back([this, part] { Work(part); });
}

ThreadPool::~ThreadPool() {
  stopping_ = true;
  ++round_;
  round_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

std::shared_ptr<ThreadPool> ThreadPool::Shared(int threads) {
  static std::mutex& mutex = *new std::mutex;
  static auto& pools = *new std::map<int, std::weak_ptr<ThreadPool>>;
  const std::lock_guard<std::mutex> lock(mutex);
  std::weak_ptr<ThreadPool>& known = pools[threads];
  std::shared_ptr<ThreadPool> pool = known.lock();
  if (pool == nullptr) known = pool = std::make_shared<ThreadPool>(threads);
  return pool;
}

void ThreadPool::Run(absl::FunctionRef<void(int part)> run) {
  if (workers_.empty() || running_.exchange(true, std::memory_order_acquire)) {
    for (int part = 0; part < threads(); ++part) run(part);
    return;
  }
  run_ = &run;
  working_.store(static_cast<uint32_t>(workers_.size()), std::memory_order_relaxed);
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  run(0);
  for (uint32_t left = working_.load(std::memory_order_acquire); left != 0;
       left = working_.load(std::memory_order_acquire)) {
    WaitWhile(working_, left);
  }
  running_.store(false, std::memory_order_release);
}

void ThreadPool::Work(int part) {
  for (uint32_t seen = 0;;) {
    WaitWhile(round_, seen);
    ++seen;  // the caller waits for every worker before the next round
    if (stopping_.load(std::memory_order_acquire)) return;
    (*run_)(part);
    if (working_.fetch_sub(1, std::memory_order_acq_rel) == 1) working_.notify_one();
  }
}

}  // namespace muster::kernels
