// CPUs and memory of the machine, and the self-test: whether ranks can be expected to start on this
// node.
#ifndef MUSTER_WORKER_AGENT_SELF_TEST_H_
#define MUSTER_WORKER_AGENT_SELF_TEST_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/time/time.h"
#include "proto/muster/v1/node.pb.h"
#include "proto/muster/v1/worker.pb.h"
#include "worker/agent/event_loop.h"

namespace muster::agent {

// Number of CPUs that this process may use.
uint32_t CpuCount();

// Size of the physical memory.
uint64_t MemoryBytes();

// Memory that new processes can use without swapping, as in `meminfo`. Errors: NOT_FOUND.
absl::StatusOr<uint64_t> AvailableMemoryBytes(const std::string& meminfo = "/proc/meminfo");

// Writes a file of 1 MiB in the folder, reads it back and removes it. The file system must then
// have 64 MiB free, or an eighth of its size if that is less. Errors: of the system, DATA_LOSS for
// other contents, RESOURCE_EXHAUSTED.
absl::Status CheckDisk(const std::string& folder);

// Checks that at least 64 MiB of memory are available. Errors: RESOURCE_EXHAUSTED.
absl::Status CheckMemory(const std::string& meminfo = "/proc/meminfo");

// The checks `disk` and `memory`. Blocks while the disk does.
std::vector<v1::SelfTest::Check> CheckHost(const std::string& data_dir);

// Runs the checks on a thread of its own, because a broken disk can block for ever. Must be used
// and destroyed on the loop's thread.
class SelfTester {
 public:
  using Checks = std::function<std::vector<v1::SelfTest::Check>()>;
  using Done = std::function<void(v1::SelfTestReport)>;

  // `checks` may still run after this object is destroyed. If they take longer than `limit`, the
  // check `name` is reported as failed.
  SelfTester(EventLoop& loop, Checks checks, std::string name = "disk",
             absl::Duration limit = absl::Seconds(50));
  ~SelfTester();
  SelfTester(const SelfTester&) = delete;
  SelfTester& operator=(const SelfTester&) = delete;

  // Calls `done` on the loop with the results of the checks, followed by `others`. Only the newest
  // request is answered. Checks that are running already also answer a later request.
  void Run(uint64_t id, std::vector<v1::SelfTest::Check> others, Done done);

 private:
  struct Request {
    uint64_t id = 0;
    std::vector<v1::SelfTest::Check> others;
    Done done;
    SteadyTime start;
    EventLoop::TimerId timeout = 0;
  };
  // Shared with the thread, which may outlive this object.
  struct Shared {
    absl::Mutex mutex;
    SelfTester* tester ABSL_GUARDED_BY(mutex);  // null once it is destroyed
  };

  void Answer(std::vector<v1::SelfTest::Check> checks);
  void OnTimeout();

  EventLoop& loop_;
  const Checks checks_;
  const std::string name_;
  const absl::Duration limit_;
  const std::shared_ptr<Shared> shared_;
  bool running_ = false;
  std::optional<Request> request_;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_SELF_TEST_H_
