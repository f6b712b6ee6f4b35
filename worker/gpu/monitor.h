// Watches the GPUs that a worker offers, on threads of its own: NVML answers when it likes.
#ifndef MUSTER_WORKER_GPU_MONITOR_H_
#define MUSTER_WORKER_GPU_MONITOR_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/time.h"
#include "worker/gpu/discovery.h"
#include "worker/gpu/health.h"
#include "worker/gpu/nvml.h"

namespace muster::gpu {

// What is known of a device.
struct DeviceState {
  Reading reading;      // the last one
  std::string problem;  // empty: healthy
  MemoryWatch::State memory = MemoryWatch::State::kFree;
  std::string memory_text;
  std::map<uint64_t, uint64_t> xids;  // how often each came
  std::vector<uint64_t> rank_xids;    // the first few that came since it was last occupied
};

// Thread-safe. None of its methods waits for NVML, but for the constructor, which looks at each
// device once, and the destructor, which lets a look that is under way come to its end.
class Monitor {
 public:
  // `on_change` is called, from a thread of this class's, when a device's problem or the state of
  // its memory has changed.
  Monitor(std::unique_ptr<Nvml> nvml, std::vector<Gpu> gpus, std::function<void()> on_change);
  ~Monitor();
  Monitor(const Monitor&) = delete;
  Monitor& operator=(const Monitor&) = delete;

  const std::vector<Gpu>& gpus() const { return gpus_; }
  const std::string& driver_version() const { return driver_version_; }
  // One for each of gpus(), in their order.
  std::vector<DeviceState> States() const;

  // A rank runs on gpus()[position] from now on; `fresh` as for MemoryWatch.
  void Occupy(size_t position, bool fresh);
  // Nothing is left of the rank that ran on these. `done` is called, from a thread of this class's,
  // when they have been looked at since.
  void Release(const std::vector<size_t>& positions, std::function<void()> done);

 private:
  struct Watched {
    Health health;
    MemoryWatch memory;
    Reading reading;
    std::vector<uint64_t> rank_xids;
  };

  void Look();
  void PollLoop();
  void ListenForXids();
  void OnXid(const XidEvent& event);

  const std::unique_ptr<Nvml> nvml_;
  const std::vector<Gpu> gpus_;
  const std::string driver_version_;
  const std::function<void()> on_change_;
  mutable absl::Mutex mutex_;
  std::vector<Watched> watched_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::function<void()>> awaited_ ABSL_GUARDED_BY(mutex_);
  std::optional<SteadyTime> looking_since_ ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread poll_thread_;
  std::thread listener_;
};

}  // namespace muster::gpu

#endif  // MUSTER_WORKER_GPU_MONITOR_H_
