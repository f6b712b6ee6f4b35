// The GPUs of this machine, and which of them a worker is to offer.
#ifndef MUSTER_WORKER_GPU_DISCOVERY_H_
#define MUSTER_WORKER_GPU_DISCOVERY_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/gpu/nvml.h"

namespace muster::gpu {

struct Gpu {
  // Among the machine's GPUs in the order of their PCI bus ids: as nvidia-smi counts, and CUDA with
  // CUDA_DEVICE_ORDER=PCI_BUS_ID.
  uint32_t index = 0;
  NvmlDevice handle = nullptr;
  std::string uuid;
  std::string name;
  std::string pci_bus_id;  // 0000:1b:00.0
  uint64_t memory_bytes = 0;
  int numa_node = -1;                     // -1: unknown
  std::vector<int> cpus;                  // near it; empty: unknown
  std::string cpu_list;                   // the same as /sys writes it: 0-31,64-95
  std::map<uint32_t, std::string> paths;  // to each other GPU: board, switch, switches, …
  std::map<uint32_t, uint32_t> nvlinks;   // links that are up, by the GPU at their end
  uint32_t nvswitch_links = 0;            // and to what is no GPU
};

// In the order of their indices; empty on a machine whose GPUs have all gone. A GPU that does not
// even tell its UUID is left out with a line in the log. `sys` is where sysfs is mounted.
absl::StatusOr<std::vector<Gpu>> Discover(const Nvml& nvml, const std::string& sys = "/sys");

// `choice`: indices and UUIDs (or as much of one as tells it from the others), separated by commas.
// The GPUs in that order. INVALID_ARGUMENT names what there is.
absl::StatusOr<std::vector<Gpu>> Select(absl::string_view choice, const std::vector<Gpu>& gpus);

// 0-3,8 as in /sys; what is no number is left out.
std::vector<int> ParseCpuList(absl::string_view text);

}  // namespace muster::gpu

#endif  // MUSTER_WORKER_GPU_DISCOVERY_H_
