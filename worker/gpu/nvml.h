// Binding of NVML, NVIDIA's management library. It is loaded at run time, so that the worker also
// runs without it.
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
  std::string name;  // empty: unknown, e.g. in another container
};

struct XidEvent {
  NvmlDevice device = nullptr;
  uint64_t xid = 0;
};

// Thread-safe, like NVML; any call may block indefinitely in the driver.
//
// Errors: UNIMPLEMENTED if
// the driver or device lacks the feature, DATA_LOSS for a lost GPU (fell off the bus),
// FAILED_PRECONDITION for one that requires a reset, PERMISSION_DENIED, and INTERNAL with NVML's
// message for all others.
class Nvml {
 public:
  // `library` is a name for the dynamic linker or a path. NOT_FOUND, with the name, if it does not
  // exist; UNAVAILABLE if the library exists but the driver does not run.
  static absl::StatusOr<std::unique_ptr<Nvml>> Open(const std::string& library);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  // Symbols that this library lacks; their values are not available.
  const std::vector<std::string>& missing() const { return missing_; }
  std::string DriverVersion() const;  // empty: unknown
  // Latest CUDA version that the driver supports; 13000 is 13.0.
  absl::StatusOr<int> CudaVersion() const;

  absl::StatusOr<uint32_t> DeviceCount() const;
  absl::StatusOr<NvmlDevice> DeviceAt(uint32_t index) const;
  absl::StatusOr<std::string> Uuid(NvmlDevice device) const;
  absl::StatusOr<std::string> Name(NvmlDevice device) const;
  // In the format of /sys/bus/pci/devices: 0000:1b:00.0.
  absl::StatusOr<std::string> PciBusId(NvmlDevice device) const;
  absl::StatusOr<NvmlMemory> Memory(NvmlDevice device) const;

  // PCI bus ids of the remote ends of the device's active NVLinks, once per link.
  std::vector<std::string> LinkPeers(NvmlDevice device) const;
  // kNvmlTopology…
  absl::StatusOr<int> CommonAncestor(NvmlDevice a, NvmlDevice b) const;

  absl::StatusOr<double> UtilizationRatio(NvmlDevice device) const;
  absl::StatusOr<double> TemperatureCelsius(NvmlDevice device) const;
  absl::StatusOr<double> PowerWatts(NvmlDevice device) const;
  // Uncorrected errors since the driver was loaded.
  absl::StatusOr<uint64_t> EccErrors(NvmlDevice device) const;
  // NVML_CLOCKS_…
  absl::StatusOr<uint64_t> ClockReasons(NvmlDevice device) const;
  // kNvmlRecovery…
  absl::StatusOr<uint32_t> RecoveryAction(NvmlDevice device) const;
  absl::StatusOr<std::vector<GpuProcess>> Processes(NvmlDevice device) const;

  // Starts to listen for Xid events of the devices; skips devices without them. UNIMPLEMENTED if no
  // device has them.
  absl::Status ListenForXids(const std::vector<NvmlDevice>& devices);
  // Returns one event, or nothing after `timeout`. Must be called by one thread only.
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
