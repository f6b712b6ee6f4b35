// NVML, NVIDIA's management library, opened at run time: the same worker runs where there is none.
#ifndef MUSTER_WORKER_GPU_NVML_H_
#define MUSTER_WORKER_GPU_NVML_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/gpu/nvml_abi.h"

namespace muster::gpu {

// A process that holds memory of a device.
struct GpuProcess {
  int64_t pid = 0;
  std::string name;  // empty: unknown, as where it runs in another container
};

struct XidEvent {
  NvmlDevice device = nullptr;
  uint64_t xid = 0;
};

// Thread-safe, as NVML is; any call may block for as long as the driver likes.
//
// Errors: UNIMPLEMENTED where driver or device has no such thing, DATA_LOSS for a GPU that is lost
// (fell off the bus), FAILED_PRECONDITION for one that has to be reset, PERMISSION_DENIED, and
// INTERNAL with NVML's own words for all else.
class Nvml {
 public:
  // `library`: a name as the dynamic linker takes it, or a path. NOT_FOUND names it, where there is
  // no such file; UNAVAILABLE where it is there and the driver is not.
  static absl::StatusOr<std::unique_ptr<Nvml>> Open(const std::string& library);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  // Symbols that this library lacks: what they would tell stays unknown.
  const std::vector<std::string>& missing() const { return missing_; }
  std::string DriverVersion() const;  // empty: unknown

  absl::StatusOr<uint32_t> DeviceCount() const;
  absl::StatusOr<NvmlDevice> DeviceAt(uint32_t index) const;
  absl::StatusOr<std::string> Uuid(NvmlDevice device) const;
  absl::StatusOr<std::string> Name(NvmlDevice device) const;
  // As /sys/bus/pci/devices has it: 0000:1b:00.0.
  absl::StatusOr<std::string> PciBusId(NvmlDevice device) const;
  absl::StatusOr<NvmlMemory> Memory(NvmlDevice device) const;

  // PCI bus ids of what the device's NVLinks that are up lead to, once per link.
  std::vector<std::string> LinkPeers(NvmlDevice device) const;
  // kNvmlTopology…
  absl::StatusOr<int> CommonAncestor(NvmlDevice a, NvmlDevice b) const;

  absl::StatusOr<double> UtilizationRatio(NvmlDevice device) const;
  absl::StatusOr<double> TemperatureCelsius(NvmlDevice device) const;
  absl::StatusOr<double> PowerWatts(NvmlDevice device) const;
  // Uncorrected ones since the driver was loaded.
  absl::StatusOr<uint64_t> EccErrors(NvmlDevice device) const;
  // NVML_CLOCKS_…
  absl::StatusOr<uint64_t> ClockReasons(NvmlDevice device) const;
  // kNvmlRecovery…
  absl::StatusOr<uint32_t> RecoveryAction(NvmlDevice device) const;
  absl::StatusOr<std::vector<GpuProcess>> Processes(NvmlDevice device) const;

  // Begins to listen for Xid events of the devices; those that have none are left out.
  // UNIMPLEMENTED when none has.
  absl::Status ListenForXids(const std::vector<NvmlDevice>& devices);
  // One event, or nothing within `timeout`. To be called by one thread.
  absl::StatusOr<std::optional<XidEvent>> WaitForXid(absl::Duration timeout);

 private:
  struct Functions;

  Nvml();

  void* library_ = nullptr;
  std::unique_ptr<Functions> functions_;
  std::vector<std::string> missing_;
  NvmlEventSet events_ = nullptr;
};

}  // namespace muster::gpu

#endif  // MUSTER_WORKER_GPU_NVML_H_
