// Streams as queues of work, and the order in which their work runs.
//
// Work runs only when a caller waits for it or queries it, in one of the orders that CUDA permits,
// chosen to expose missing dependencies.
#ifndef MUSTER_TESTS_GPU_PTX_RUNTIME_SCHEDULER_H_
#define MUSTER_TESTS_GPU_PTX_RUNTIME_SCHEDULER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "absl/status/status.h"
#include "kernels/testing/host_stream_abi.h"
#include "tests/gpu/ptx/runtime/work.h"

namespace muster::ptx {

class Capture;
struct Stream;

// Whether a piece of work has run. One that has not belongs to a stream that exists.
struct Completion {
  Stream* stream = nullptr;
  bool done = false;
  double milliseconds = 0;  // when it was done
};
using CompletionPtr = std::shared_ptr<Completion>;

struct QueuedWork {
  std::shared_ptr<Work> work;        // null: only the order matters
  std::vector<CompletionPtr> after;  // completions of other streams
  CompletionPtr done;
};

// A cudaStream_t. Fake libraries use it as a HostStreamAbi.
struct Stream {
  HostStreamAbi abi;  // first, so that it has the same address
  int device = 0;
  int priority = 0;
  bool is_default = false;   // the legacy default stream
  bool non_blocking = true;  // does not synchronise with the default stream
  bool destroyed = false;    // its remaining work still runs
  std::deque<QueuedWork> queue;
  CompletionPtr last;

  // While the stream is captured: the nodes that its next node depends on.
  std::shared_ptr<Capture> capture;
  std::vector<size_t> frontier;
};

// Which of the permitted orders is taken: 0 runs only what is waited for, as late as possible; 1
// runs all other streams as far as possible first; other values choose at random.
using OrderSeed = uint64_t;

// Guarded by the runtime's mutex.
class Scheduler {
 public:
  // `before_work` is called before each piece of work with its device, and returns an error to
  // inject; `clock` returns the current time; `on_fault` receives errors of work.
  struct Hooks {
    std::function<absl::Status(int device)> before_work;
    std::function<double()> clock;
    std::function<void(int device, const absl::Status&)> on_fault;
  };
  explicit Scheduler(Hooks hooks) : hooks_(std::move(hooks)) {}

  void SetOrder(OrderSeed seed) {
    seed_ = seed;
    random_.seed(seed);
  }
  // Which of `count` pieces of work that may run now comes next, in the order in which they were
  // submitted.
  size_t Choose(size_t count);

  Stream* Make(int device);
  // Null if `stream` is not a stream, or was destroyed.
  Stream* Find(const void* stream) const;
  void Destroy(Stream* stream);
  // The streams that take part in the capture.
  std::vector<Stream*> StreamsOf(const Capture& capture) const;

  // Queues work, after `after` and the work that the stream's kind makes it wait for.
  CompletionPtr Push(Stream& stream, std::shared_ptr<Work> work,
                     std::vector<CompletionPtr> after = {});
  // Runs one piece of work, toward `target` or, depending on the order, another. Returns whether
  // any work advanced.
  bool Advance(const Completion& target);
  // The last work of each stream of the device.
  std::vector<CompletionPtr> LastOf(int device) const;
  // Drops the work of a device that has failed.
  void Discard(int device);

 private:
  // The stream whose first work must run next for `target`.
  Stream& NextFor(const Completion& target) const;
  bool IsRunnable(const Stream& stream) const;
  Progress RunFirst(Stream& stream);
  void RemoveIfOver(Stream& stream);

  const Hooks hooks_;
  OrderSeed seed_ = 0;
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<Stream>> streams_;
};

}  // namespace muster::ptx

#endif  // MUSTER_TESTS_GPU_PTX_RUNTIME_SCHEDULER_H_
