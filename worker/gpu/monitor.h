// Monitors a worker's GPUs on its own threads, because NVML calls can block, and exports their
// readings.
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
#include "common/time/steady_cond_var.h"
#include "common/time/time.h"
#include "prometheus/collectable.h"
#include "worker/gpu/discovery.h"
#include "worker/gpu/health.h"
#include "worker/gpu/nvml.h"

namespace muster::gpu {

// State of a device.
struct DeviceState {
  Reading reading;      // the last reading
  std::string problem;  // empty: healthy
  MemoryWatch::State memory = MemoryWatch::State::kFree;
  std::string memory_text;
  std::map<uint64_t, uint64_t> xids;  // number of occurrences by Xid
  std::vector<uint64_t> rank_xids;    // the first few since the device was last occupied
};

// Thread-safe. Its methods do not wait for NVML, except the constructor, which reads each device
// once, and the destructor, which waits for a running poll.
class Monitor {
 public:
  // `driver_problem`: why the driver, and so each device, cannot be used; empty if it can.
  // `on_change` is called on a thread of this class when a device's problem or the state of its
  // memory has changed.
  Monitor(std::unique_ptr<Nvml> nvml, std::vector<Gpu> gpus, std::string driver_problem,
          std::function<void()> on_change);
  ~Monitor();
  Monitor(const Monitor&) = delete;
  Monitor& operator=(const Monitor&) = delete;

  const std::vector<Gpu>& gpus() const { return gpus_; }
  const std::string& driver_version() const { return driver_version_; }
  // One state per element of gpus(), in the same order.
  std::vector<DeviceState> States() const;

  // A rank now runs on gpus()[position]; `fresh` as for MemoryWatch.
  void Occupy(size_t position, bool fresh);
  // The rank on these devices has ended. `done` is called on a thread of this class once the
  // devices have been polled after that.
  void Release(const std::vector<size_t>& positions, std::function<void()> done);

 private:
  struct Watched {
    Health health;
    MemoryWatch memory;
    Reading reading;
    std::vector<uint64_t> rank_xids;
  };

  void PollDevices();
  void PollLoop();
  void ListenForXids();
  void OnXid(const XidEvent& event);

  const std::unique_ptr<Nvml> nvml_;
  const std::vector<Gpu> gpus_;
  const std::string driver_version_;
  const std::string driver_problem_;
  const std::function<void()> on_change_;
  mutable absl::Mutex mutex_;
  SteadyCondVar changed_;  // ending_ or release_callbacks_
  std::vector<Watched> watched_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::function<void()>> release_callbacks_ ABSL_GUARDED_BY(mutex_);
  std::optional<SteadyTime> polling_since_ ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread poll_thread_;
  std::thread listener_;
};

// Exports the monitor's last readings; a scrape does not call NVML. Thread-safe.
class GpuMetrics : public prometheus::Collectable {
 public:
  // `monitor` must outlive this object.
  explicit GpuMetrics(const Monitor& monitor) : monitor_(monitor) {}
  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const Monitor& monitor_;
};

}  // namespace muster::gpu

#endif  // MUSTER_WORKER_GPU_MONITOR_H_
