// The slots of a worker: its GPUs, its CPU slots, or both.
#ifndef MUSTER_WORKER_AGENT_GENERATION_DEVICES_H_
#define MUSTER_WORKER_AGENT_GENERATION_DEVICES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "prometheus/collectable.h"
#include "proto/muster/v1/node.pb.h"
#include "proto/muster/v1/worker.pb.h"
#include "worker/agent/event_loop.h"
#include "worker/gpu/monitor.h"

namespace muster::agent {

inline constexpr char kNvmlLibrary[] = "libnvidia-ml.so.1";

struct DeviceOptions {
  // auto: all GPUs that `visible` admits, if any; cpu: none; otherwise a list of GPU indices or
  // UUIDs, for which `visible` does not matter.
  std::string devices = "auto";
  // The worker's CUDA_VISIBLE_DEVICES; not set: all GPUs are visible.
  std::optional<std::string> visible;
  // Number of CPU slots; if not set, one per CPU, or none on a node with GPUs.
  std::optional<uint32_t> slots;
  std::string nvml_library = kNvmlLibrary;
  // CUDA version that the driver must support for its GPUs to be used: see gpu::ParseRequiredCuda.
  std::string required_cuda = "auto";
};

// Divides `cpus` evenly, in their order. Empty if there are fewer than `shares`.
std::vector<std::vector<int>> Divide(const std::vector<int>& cpus, size_t shares);

// Must be used on the loop's thread, except Open and slots().
class Devices {
 public:
  // INVALID_ARGUMENT if the options do not match the machine's devices.
  static absl::StatusOr<std::unique_ptr<Devices>> Open(const DeviceOptions& options);
  ~Devices();
  Devices(const Devices&) = delete;
  Devices& operator=(const Devices&) = delete;

  // GPUs first, numbered from 0 in the order in which they were selected; conditions as of Open.
  const std::vector<v1::Slot>& slots() const { return slots_; }
  // The slots with their current condition, which then counts as reported.
  std::vector<v1::Slot> ReportSlots();
  // Whether each GPU can be used, as checks `gpu INDEX`. Memory that is about to be released is no
  // failure.
  std::vector<v1::SelfTest::Check> CheckGpus() const;
  // The CPUs for each slot's rank: of the CPUs that this process may use, those near its GPU, or an
  // even share of all. Empty if there are too few.
  std::vector<std::vector<int>> CpusOfSlots() const;

  // Starts to monitor the GPUs; `report` is called when the condition of a slot has changed.
  void Start(EventLoop& loop, std::function<void(v1::SlotReport)> report);
  // Metrics of the GPUs; null if there are none. Must be released before this object is destroyed.
  std::shared_ptr<prometheus::Collectable> Metrics() const;
  // Reports a driver that no longer responds, which causes no other event.
  void Tick() { ReportIfChanged(); }

  // A rank starts on these slots or, if `adopted`, already runs there.
  void Occupy(const std::vector<uint32_t>& slots, bool adopted);
  // The rank on these slots has ended. `done` is called when their GPUs have been polled, or after
  // a short time; until then, slots that cannot be used again have been reported. Called at once if
  // none of the slots is a GPU.
  void Release(const std::vector<uint32_t>& slots, std::function<void()> done);
  // Evidence from the GPUs about a rank that died on them: "GPU 1 (GPU-…): Xid 79, …".
  std::string Evidence(const std::vector<uint32_t>& slots) const;

 private:
  Devices() = default;

  void AddGpu(const gpu::Gpu& gpu, const std::string& driver_version);
  void AddCpuSlots(uint32_t count);
  // Positions in gpus_ of the slots that are GPUs.
  std::vector<size_t> GpusOf(const std::vector<uint32_t>& slots) const;
  v1::SlotReport Conditions() const;
  void ReportIfChanged();

  std::vector<v1::Slot> slots_;
  std::unique_ptr<gpu::Nvml> nvml_;  // until it is moved to the monitor
  std::vector<gpu::Gpu> gpus_;       // slot i is gpus_[i] for i < gpus_.size()
  std::string driver_problem_;       // why no GPU can be used; empty: they can
  std::unique_ptr<gpu::Monitor> monitor_;
  EventLoop* loop_ = nullptr;
  std::function<void(v1::SlotReport)> report_;
  std::string reported_;  // last report, serialised
  // For closures that outlive this object; used on the loop only.
  std::shared_ptr<Devices*> self_;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_GENERATION_DEVICES_H_
