// Discovers the GPUs of this machine and selects those that a worker offers.
#ifndef MUSTER_WORKER_GPU_DISCOVERY_H_
#define MUSTER_WORKER_GPU_DISCOVERY_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/gpu/nvml.h"

namespace muster::gpu {

struct Gpu {
  // Index among the machine's GPUs in the order of their PCI bus ids, as shown by nvidia-smi, and
  // by CUDA with CUDA_DEVICE_ORDER=PCI_BUS_ID.
  uint32_t index = 0;
  NvmlDevice handle = nullptr;
  std::string uuid;
  std::string name;
  std::string pci_bus_id;  // 0000:1b:00.0
  uint64_t memory_bytes = 0;
  int numa_node = -1;     // -1: unknown
  std::vector<int> cpus;  // CPUs near the GPU; empty: unknown
  std::string cpu_list;   // the same in the format of /sys: 0-31,64-95
  std::map<uint32_t, std::string>
      paths;  // topology by other GPU's index: board, switch, switches, …
  std::map<uint32_t, uint32_t> nvlinks;  // number of active links by other GPU's index
  uint32_t nvswitch_links = 0;           // active links to other devices
};

// All GPUs, ordered by index; empty on a machine whose GPUs are all lost. A GPU without a readable
// UUID is skipped with a log line. `sys` is the mount point of sysfs.
absl::StatusOr<std::vector<Gpu>> Discover(const Nvml& nvml, const std::string& sys = "/sys");

// Selects GPUs in the order of `choice`, a comma-separated list of indices and UUIDs (or
// unambiguous prefixes of UUIDs). INVALID_ARGUMENT names the existing GPUs.
absl::StatusOr<std::vector<Gpu>> Select(absl::string_view choice, const std::vector<Gpu>& gpus);

// Selects the GPUs that `variable`, a value of CUDA_VISIBLE_DEVICES, makes visible, in its order: a
// comma-separated list of indices and UUIDs, which ends before the first entry that is not a GPU of
// `gpus` or is repeated, as it does in CUDA. Empty if no GPU is visible. INVALID_ARGUMENT if it
// names a MIG instance, because only whole GPUs can be offered.
absl::StatusOr<std::vector<Gpu>> Visible(absl::string_view variable, const std::vector<Gpu>& gpus);

// Parses CPU lists such as 0-3,8 as in /sys; ignores invalid parts.
std::vector<int> ParseCpuList(absl::string_view text);

// Versions are those of the CUDA runtime: 13000 is 13.0. 0: none.

// Parses --required-cuda: auto (the version that libmuster-cuda.so of this build is linked with),
// none, or a version such as 12.8. INVALID_ARGUMENT.
absl::StatusOr<int> ParseRequiredCuda(absl::string_view text);

// Why the driver cannot run programs that need CUDA version `required`; empty if it can, or if
// `supported`, the latest version that the driver supports, is not known. A driver also supports
// later versions of the same major version.
std::string DriverProblem(int required, std::optional<int> supported,
                          absl::string_view driver_version);

}  // namespace muster::gpu

#endif  // MUSTER_WORKER_GPU_DISCOVERY_H_
