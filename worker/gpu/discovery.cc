#include "worker/gpu/discovery.h"

#include <algorithm>
#include <fstream>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/status.h"
#include "glog/logging.h"
#include "worker/gpu/build_cuda_version.h"

namespace muster::gpu {
namespace {

constexpr int kMaxCpu = 1 << 16;

// The first line of a file; empty if it does not exist.
std::string ReadLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return std::string(absl::StripAsciiWhitespace(line));
}

absl::StatusOr<Gpu> Describe(const Nvml& nvml, uint32_t nvml_index, const std::string& sys) {
  Gpu gpu;
  ASSIGN_OR_RETURN(gpu.handle, nvml.DeviceAt(nvml_index));
  ASSIGN_OR_RETURN(gpu.uuid, nvml.Uuid(gpu.handle));
  ASSIGN_OR_RETURN(gpu.pci_bus_id, nvml.PciBusId(gpu.handle));
  ASSIGN_OR_RETURN(const NvmlMemory memory, nvml.Memory(gpu.handle));
  gpu.memory_bytes = memory.total;
  gpu.name = nvml.Name(gpu.handle).value_or("GPU");
  const std::string place = absl::StrCat(sys, "/bus/pci/devices/", gpu.pci_bus_id);
  if (!absl::SimpleAtoi(ReadLine(place + "/numa_node"), &gpu.numa_node)) gpu.numa_node = -1;
  gpu.cpu_list = ReadLine(place + "/local_cpulist");
  gpu.cpus = ParseCpuList(gpu.cpu_list);
  return gpu;
}

// The topology level between two GPUs.
std::string PathName(int level) {
  if (level <= kNvmlTopologyInternal) return "board";
  if (level <= kNvmlTopologySingleSwitch) return "switch";
  if (level <= kNvmlTopologyMultipleSwitches) return "switches";
  if (level <= kNvmlTopologyHostBridge) return "host bridge";
  if (level <= kNvmlTopologyNumaNode) return "NUMA node";
  return "system";
}

void Connect(const Nvml& nvml, std::vector<Gpu>& gpus) {
  std::map<std::string, uint32_t> by_bus_id;
  for (const Gpu& gpu : gpus) by_bus_id[gpu.pci_bus_id] = gpu.index;
  for (Gpu& gpu : gpus) {
    for (const std::string& peer : nvml.LinkPeers(gpu.handle)) {
      const auto other = by_bus_id.find(peer);
      ++(other == by_bus_id.end() ? gpu.nvswitch_links : gpu.nvlinks[other->second]);
    }
    for (const Gpu& other : gpus) {
      if (other.index == gpu.index) continue;
      const absl::StatusOr<int> level = nvml.CommonAncestor(gpu.handle, other.handle);
      if (level.ok()) gpu.paths[other.index] = PathName(*level);
    }
  }
}

std::string Known(const std::vector<Gpu>& gpus) {
  if (gpus.empty()) return "this machine has no GPU";
  return absl::StrCat("this machine has ",
                      absl::StrJoin(gpus, ", ", [](std::string* out, const Gpu& gpu) {
                        absl::StrAppend(out, gpu.index, " (", gpu.uuid, ")");
                      }));
}

absl::StatusOr<const Gpu*> Find(absl::string_view word, const std::vector<Gpu>& gpus) {
  uint32_t index = 0;
  const bool number = absl::SimpleAtoi(word, &index);
  const bool uuid = absl::StartsWith(word, "GPU-") && word.size() > 4;
  if (!number && !uuid) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", word, "' is neither an index nor a UUID of a GPU; ", Known(gpus)));
  }
  const Gpu* found = nullptr;
  for (const Gpu& gpu : gpus) {
    if (number ? gpu.index != index : !absl::StartsWith(gpu.uuid, word)) continue;
    if (found != nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", word, "' matches several GPUs; ", Known(gpus)));
    }
    found = &gpu;
  }
  if (found != nullptr) return found;
  return absl::InvalidArgumentError(absl::StrCat("there is no GPU ", word, "; ", Known(gpus)));
}

// As in CUDART_VERSION.
constexpr int kMajor = 1000, kMinor = 10;

std::string Text(int version) {
  return absl::StrCat(version / kMajor, ".", version % kMajor / kMinor);
}

// The first driver of each major version, from NVIDIA's CUDA compatibility guide.
std::string FirstDriver(int major) {
  switch (major) {
    case 12:
      return "525.60.13";
    case 13:
      return "580.65.06";
    default:
      return "";
  }
}

}  // namespace

std::vector<int> ParseCpuList(absl::string_view text) {
  std::vector<int> cpus;
  for (const absl::string_view range : absl::StrSplit(text, ',', absl::SkipWhitespace())) {
    const std::vector<absl::string_view> ends = absl::StrSplit(range, '-');
    int first = 0;
    int last = 0;
    if (ends.size() > 2 || !absl::SimpleAtoi(ends.front(), &first) ||
        !absl::SimpleAtoi(ends.back(), &last)) {
      continue;
    }
    for (int cpu = std::max(first, 0); cpu <= std::min(last, kMaxCpu); ++cpu) cpus.push_back(cpu);
  }
  return cpus;
}

absl::StatusOr<std::vector<Gpu>> Discover(const Nvml& nvml, const std::string& sys) {
  ASSIGN_OR_RETURN(const uint32_t count, nvml.DeviceCount());
  std::vector<Gpu> gpus;
  for (uint32_t i = 0; i < count; ++i) {
    absl::StatusOr<Gpu> gpu = Describe(nvml, i, sys);
    if (gpu.ok()) {
      gpus.push_back(*std::move(gpu));
    } else {
      LOG(WARNING) << "GPU " << i << " is not used: " << gpu.status().message();
    }
  }
  std::sort(gpus.begin(), gpus.end(),
            [](const Gpu& a, const Gpu& b) { return a.pci_bus_id < b.pci_bus_id; });
  for (uint32_t i = 0; i < gpus.size(); ++i) gpus[i].index = i;
  Connect(nvml, gpus);
  return gpus;
}

absl::StatusOr<std::vector<Gpu>> Select(absl::string_view choice, const std::vector<Gpu>& gpus) {
  std::vector<Gpu> chosen;
  std::set<uint32_t> taken;
  for (const absl::string_view part : absl::StrSplit(choice, ',')) {
    const absl::string_view word = absl::StripAsciiWhitespace(part);
    ASSIGN_OR_RETURN(const Gpu* const gpu, Find(word, gpus));
    if (!taken.insert(gpu->index).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("GPU ", gpu->index, " is listed twice; ", Known(gpus)));
    }
    chosen.push_back(*gpu);
  }
  return chosen;
}

absl::StatusOr<std::vector<Gpu>> Visible(absl::string_view variable, const std::vector<Gpu>& gpus) {
  std::vector<Gpu> visible;
  std::set<uint32_t> taken;
  for (const absl::string_view part : absl::StrSplit(variable, ',')) {
    const absl::string_view word = absl::StripAsciiWhitespace(part);
    if (absl::StartsWith(word, "MIG-")) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", word, "' is a MIG instance, and only whole GPUs can be offered; ",
                       "select GPUs with --devices, or CPUs with --devices=cpu"));
    }
    const absl::StatusOr<const Gpu*> gpu = Find(word, gpus);
    if (!gpu.ok() || !taken.insert((*gpu)->index).second) break;
    visible.push_back(**gpu);
  }
  return visible;
}

absl::StatusOr<int> ParseRequiredCuda(absl::string_view text) {
  if (text == "auto") return kBuildCudaVersion;
  if (text == "none") return 0;
  const std::vector<absl::string_view> parts = absl::StrSplit(text, '.');
  int major = 0, minor = 0;
  if (parts.size() == 2 && absl::SimpleAtoi(parts[0], &major) &&
      absl::SimpleAtoi(parts[1], &minor) && major > 0 && major < 100 && minor >= 0 && minor < 100) {
    return major * kMajor + minor * kMinor;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--required-cuda=", text, ": neither auto, none nor a version such as 12.8"));
}

std::string DriverProblem(int required, std::optional<int> supported,
                          absl::string_view driver_version) {
  if (!supported.has_value() || *supported / kMajor >= required / kMajor) return "";
  const std::string first = FirstDriver(required / kMajor);
  return absl::StrCat("driver ", driver_version, " supports CUDA ", Text(*supported),
                      ", train jobs need CUDA ", Text(required), ": install driver ",
                      first.empty() ? "of that version" : absl::StrCat(first, " or newer"),
                      ", or set --required-cuda=none if this node runs command jobs only");
}

}  // namespace muster::gpu
