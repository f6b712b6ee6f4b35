// What a worker offers for ranks: its GPUs, its CPU slots, or both.
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
  // auto: all GPUs, where there are any; cpu: none; else these, by index or UUID. Nothing else
  // chooses: the worker's own CUDA_VISIBLE_DEVICES is not looked at.
  std::string devices = "auto";
  // CPU slots; none given: one for each CPU, and none beside GPUs.
  std::optional<uint32_t> slots;
  std::string nvml_library = kNvmlLibrary;
};

// The CPUs in `cpus`, divided evenly in their order. Nothing when there are fewer than `shares`.
std::vector<std::vector<int>> Divide(const std::vector<int>& cpus, size_t shares);

// On the loop's thread only, but for Open and slots().
class Devices {
 public:
  // Errors: INVALID_ARGUMENT says what is wrong with the options, given what the machine has.
  static absl::StatusOr<std::unique_ptr<Devices>> Open(const DeviceOptions& options);
  ~Devices();
  Devices(const Devices&) = delete;
  Devices& operator=(const Devices&) = delete;

  // GPUs first, numbered from 0 in the order in which they were chosen; as they were found.
  const std::vector<v1::Slot>& slots() const { return slots_; }
  // The same with their present condition; what was told by it need not be told again.
  std::vector<v1::Slot> ReportSlots();
  // For each slot the CPUs that its rank is to run on: of the CPUs that this process may use those
  // near its GPU, or an even share of all. Empty when there are too few.
  std::vector<std::vector<int>> CpusOfSlots() const;

  // Watches the GPUs from now on; `tell` is called when the condition of a slot has changed.
  void Start(EventLoop& loop, std::function<void(v1::SlotReport)> tell);
  // Of the GPUs; null where there are none. To be let go before this object is.
  std::shared_ptr<prometheus::Collectable> Metrics() const;
  // Tells of a driver that does not answer any more, which nobody else would notice.
  void Tick() { TellIfChanged(); }

  // A rank starts on these slots, or, `adopted`, is found running there.
  void Occupy(const std::vector<uint32_t>& slots, bool adopted);
  // Nothing is left of the rank that had them. `done` is called when their GPUs have been looked at
  // since, or after a moment; by then it has been told if they cannot be used again yet. At once
  // when none of them is a GPU.
  void Release(const std::vector<uint32_t>& slots, std::function<void()> done);
  // What the GPUs have to say of a rank that died on them: "GPU 1 (GPU-…): Xid 79, …".
  std::string Evidence(const std::vector<uint32_t>& slots) const;

 private:
  Devices() = default;

  void AddGpu(const gpu::Gpu& gpu, const std::string& driver_version);
  void AddCpuSlots(uint32_t count);
  // Positions in gpus_, of those slots that are GPUs.
  std::vector<size_t> GpusOf(const std::vector<uint32_t>& slots) const;
  v1::SlotReport Conditions() const;
  void TellIfChanged();

  std::vector<v1::Slot> slots_;
  std::unique_ptr<gpu::Nvml> nvml_;  // until the monitor has it
  std::vector<gpu::Gpu> gpus_;       // slot i is gpus_[i], as far as they go
  std::unique_ptr<gpu::Monitor> monitor_;
  EventLoop* loop_ = nullptr;
  std::function<void(v1::SlotReport)> tell_;
  std::string told_;  // serialised
  // For closures that outlive this object; the loop's.
  std::shared_ptr<Devices*> self_;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_GENERATION_DEVICES_H_
