#include "worker/gpu/nvml.h"

#include <dlfcn.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status.h"

namespace muster::gpu {

struct Nvml::Functions {
#define DECLARE(name, symbol, parameters) NvmlReturn(*name) parameters = nullptr;
  NVML_REQUIRED_FUNCTIONS(DECLARE)
  NVML_OPTIONAL_FUNCTIONS(DECLARE)
#undef DECLARE
  const char* (*error_string)(NvmlReturn) = nullptr;

  absl::Status StatusOf(NvmlReturn code, const char* what) const {
    if (code == kNvmlSuccess) return absl::OkStatus();
    const char* const words = error_string == nullptr ? nullptr : error_string(code);
    const std::string message =
        absl::StrCat(what, ": ", words == nullptr ? absl::StrCat("NVML error ", code) : words);
    switch (code) {
      case kNvmlNotSupported:
      case kNvmlFunctionNotFound:
        return absl::UnimplementedError(message);
      case kNvmlGpuIsLost:
        return absl::DataLossError(message);
      case kNvmlResetRequired:
        return absl::FailedPreconditionError(message);
      case kNvmlNoPermission:
        return absl::PermissionDeniedError(message);
      case kNvmlDriverNotLoaded:
        return absl::UnavailableError(message);
      case kNvmlTimeout:
        return absl::DeadlineExceededError(message);
      default:
        return absl::InternalError(message);
    }
  }
};

namespace {

// Calls an optional function of the library.
#define CALL(name, ...)                                                             \
  (functions_->name == nullptr                                                      \
       ? absl::UnimplementedError("the NVML library lacks the function for " #name) \
       : functions_->StatusOf(functions_->name(__VA_ARGS__), #name))

// NVML pads the domain to eight digits and uses upper case.
std::string BusIdOf(const NvmlPciInfo& info) {
  return absl::StrFormat("%04x:%02x:%02x.0", info.domain, info.bus, info.device);
}

}  // namespace

Nvml::Nvml() : functions_(std::make_unique<Functions>()) {}

absl::StatusOr<std::unique_ptr<Nvml>> Nvml::Open(const std::string& library) {
  std::unique_ptr<Nvml> nvml(new Nvml);
  nvml->library_ = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (nvml->library_ == nullptr) {
    const char* const error = dlerror();  // begins with the file's name
    return absl::NotFoundError(error == nullptr ? absl::StrCat("cannot open ", library) : error);
  }
  Functions& functions = *nvml->functions_;
  std::vector<std::string> absent;
  const auto find = [&nvml](const char* symbol, auto& function, std::vector<std::string>& missing) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(nvml->library_, symbol));
    if (function == nullptr) missing.push_back(symbol);
  };
#define FIND(name, symbol, parameters) find(#symbol, functions.name, absent);
  NVML_REQUIRED_FUNCTIONS(FIND)
#undef FIND
#define FIND(name, symbol, parameters) find(#symbol, functions.name, nvml->missing_);
  NVML_OPTIONAL_FUNCTIONS(FIND)
#undef FIND
  std::vector<std::string> ignored;
  find("nvmlErrorString", functions.error_string, ignored);
  // Report one name for both: only the absence of both matters.
  const auto either = [&](const char* name, bool other_is_there) {
    const auto at = std::find(nvml->missing_.begin(), nvml->missing_.end(), name);
    if (other_is_there && at != nvml->missing_.end()) nvml->missing_.erase(at);
  };
  either("nvmlDeviceGetCurrentClocksEventReasons", functions.old_clock_reasons != nullptr);
  either("nvmlDeviceGetCurrentClocksThrottleReasons", functions.clock_reasons != nullptr);
  if (!absent.empty()) {
    functions.shutdown = nullptr;
    return absl::UnavailableError(
        absl::StrCat(library, " lacks ", absent.front(), ": its driver is too old"));
  }
  const absl::Status started = functions.StatusOf(functions.init(), "nvmlInit");
  if (!started.ok()) {
    functions.shutdown = nullptr;
    return absl::UnavailableError(absl::StrCat(library, ": ", started.message()));
  }
  return nvml;
}

Nvml::~Nvml() {
  if (events_ != nullptr && functions_->free_events != nullptr) functions_->free_events(events_);
  // Never closed: NVIDIA's library may still have running threads.
  if (functions_->shutdown != nullptr) functions_->shutdown();
}

std::string Nvml::DriverVersion() const {
  char text[kNvmlTextSize] = {};
  return CALL(driver_version, text, sizeof(text) - 1).ok() ? text : "";
}

absl::StatusOr<int> Nvml::CudaVersion() const {
  int version = 0;
  RETURN_IF_ERROR(CALL(cuda_driver_version, &version));
  return version;
}

absl::StatusOr<uint32_t> Nvml::DeviceCount() const {
  unsigned int count = 0;
  RETURN_IF_ERROR(CALL(device_count, &count));
  return count;
}

absl::StatusOr<NvmlDevice> Nvml::DeviceAt(uint32_t index) const {
  NvmlDevice device = nullptr;
  RETURN_IF_ERROR(CALL(device_at, index, &device));
  return device;
}

absl::StatusOr<std::string> Nvml::Uuid(NvmlDevice device) const {
  char text[kNvmlTextSize] = {};
  RETURN_IF_ERROR(CALL(uuid, device, text, sizeof(text) - 1));
  return std::string(text);
}

absl::StatusOr<std::string> Nvml::Name(NvmlDevice device) const {
  char text[kNvmlTextSize] = {};
  RETURN_IF_ERROR(CALL(name, device, text, sizeof(text) - 1));
  return std::string(text);
}

absl::StatusOr<std::string> Nvml::PciBusId(NvmlDevice device) const {
  NvmlPciInfo info = {};
  RETURN_IF_ERROR(CALL(pci_info, device, &info));
  return BusIdOf(info);
}

absl::StatusOr<NvmlMemory> Nvml::Memory(NvmlDevice device) const {
  NvmlMemory memory = {};
  RETURN_IF_ERROR(CALL(memory_info, device, &memory));
  return memory;
}

std::vector<std::string> Nvml::LinkPeers(NvmlDevice device) const {
  std::vector<std::string> peers;
  for (unsigned int link = 0; link < kNvmlMaxLinks; ++link) {
    int up = 0;
    // The first link that the GPU lacks ends the loop.
    if (!CALL(link_state, device, link, &up).ok()) break;
    NvmlPciInfo info = {};
    if (up != 0 && CALL(link_peer, device, link, &info).ok()) peers.push_back(BusIdOf(info));
  }
  return peers;
}

absl::StatusOr<int> Nvml::CommonAncestor(NvmlDevice a, NvmlDevice b) const {
  int level = kNvmlTopologySystem;
  RETURN_IF_ERROR(CALL(common_ancestor, a, b, &level));
  return level;
}

absl::StatusOr<double> Nvml::UtilizationRatio(NvmlDevice device) const {
  NvmlUtilization utilization = {};
  RETURN_IF_ERROR(CALL(utilization, device, &utilization));
  return utilization.gpu / 100.0;
}

absl::StatusOr<double> Nvml::TemperatureCelsius(NvmlDevice device) const {
  unsigned int celsius = 0;
  RETURN_IF_ERROR(CALL(temperature, device, kNvmlTemperatureGpu, &celsius));
  return celsius;
}

absl::StatusOr<double> Nvml::PowerWatts(NvmlDevice device) const {
  unsigned int milliwatts = 0;
  RETURN_IF_ERROR(CALL(power, device, &milliwatts));
  return milliwatts / 1000.0;
}

absl::StatusOr<uint64_t> Nvml::EccErrors(NvmlDevice device) const {
  unsigned long long count = 0;
  RETURN_IF_ERROR(CALL(ecc_errors, device, kNvmlMemoryErrorUncorrected, kNvmlEccVolatile, &count));
  return count;
}

absl::StatusOr<uint64_t> Nvml::ClockReasons(NvmlDevice device) const {
  unsigned long long reasons = 0;
  if (functions_->clock_reasons != nullptr) {
    RETURN_IF_ERROR(CALL(clock_reasons, device, &reasons));
  } else {
    RETURN_IF_ERROR(CALL(old_clock_reasons, device, &reasons));
  }
  return reasons;
}

absl::StatusOr<uint32_t> Nvml::RecoveryAction(NvmlDevice device) const {
  NvmlFieldValue value = {};
  value.field = kNvmlFieldRecoveryAction;
  RETURN_IF_ERROR(CALL(field_values, device, 1, &value));
  RETURN_IF_ERROR(functions_->StatusOf(value.code, "recovery action"));
  return value.value.number;
}

absl::StatusOr<std::vector<GpuProcess>> Nvml::Processes(NvmlDevice device) const {
  std::vector<NvmlProcess> found(64);
  unsigned int count = 0;
  while (true) {
    count = static_cast<unsigned int>(found.size());
    if (functions_->processes == nullptr) return CALL(processes, device, &count, found.data());
    const NvmlReturn code = functions_->processes(device, &count, found.data());
    if (code != kNvmlInsufficientSize || found.size() > (1u << 16)) {
      RETURN_IF_ERROR(functions_->StatusOf(code, "processes"));
      break;
    }
    found.resize(std::max<size_t>(count + 16, 2 * found.size()));
  }
  std::vector<GpuProcess> processes;
  for (unsigned int i = 0; i < count; ++i) {
    processes.emplace_back().pid = found[i].pid;
  }
  return processes;
}

absl::Status Nvml::ListenForXids(const std::vector<NvmlDevice>& devices) {
  if (functions_->wait_event == nullptr || functions_->register_events == nullptr) {
    return absl::UnimplementedError("the NVML library has no events");
  }
  RETURN_IF_ERROR(CALL(create_events, &events_));
  absl::Status refused = absl::UnimplementedError("no device");
  bool any = false;
  for (const NvmlDevice device : devices) {
    const absl::Status status = CALL(register_events, device, NVML_EVENT_XID, events_);
    status.ok() ? (void)(any = true) : (void)(refused = status);
  }
  return any ? absl::OkStatus() : refused;
}

absl::StatusOr<std::optional<XidEvent>> Nvml::WaitForXid(absl::Duration timeout) {
  NvmlEvent event = {};
  const absl::Status status = CALL(wait_event, events_, &event,
                                   static_cast<unsigned int>(absl::ToInt64Milliseconds(timeout)));
  if (absl::IsDeadlineExceeded(status)) return std::nullopt;
  RETURN_IF_ERROR(status);
  if ((event.type & NVML_EVENT_XID) == 0) return std::nullopt;
  return XidEvent{event.device, event.data};
}

}  // namespace muster::gpu
