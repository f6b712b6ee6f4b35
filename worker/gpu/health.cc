#include "worker/gpu/health.h"

#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "worker/gpu/xid.h"

namespace muster::gpu {
namespace {

// Throttling by the hardware for its protection; a power cap in software is normal.
constexpr uint64_t kSlowedDown = NVML_CLOCKS_HW_THERMAL | NVML_CLOCKS_HW_POWER_BRAKE;

template <typename T>
std::optional<T> Optional(absl::StatusOr<T> value) {
  if (!value.ok()) return std::nullopt;
  return *std::move(value);
}

std::string ProcessName(int64_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/comm"));
  std::string name;
  std::getline(file, name);
  return name;
}

std::string Size(uint64_t bytes) {
  return absl::StrFormat("%.1f GiB", static_cast<double>(bytes) / (1u << 30));
}

// The action requested by the driver; empty: none.
std::string RecoveryText(uint32_t action) {
  switch (action) {
    case kNvmlRecoveryNone:
      return "";
    case kNvmlRecoveryNodeReboot:
      return "the driver requests a reboot";
    case kNvmlRecoveryDrainPeers:
      return "the driver requests to stop all programs that access it from other GPUs";
    default:
      return "the driver requests a GPU reset";
  }
}

}  // namespace

Reading Read(const Nvml& nvml, NvmlDevice device) {
  Reading reading;
  const absl::StatusOr<NvmlMemory> memory = nvml.Memory(device);
  reading.status = memory.status();
  if (!memory.ok()) return reading;
  reading.memory_used_bytes = memory->used;
  reading.memory_total_bytes = memory->total;
  reading.processes = Optional(nvml.Processes(device));
  if (reading.processes.has_value()) {
    for (GpuProcess& process : *reading.processes) process.name = ProcessName(process.pid);
  }
  reading.utilization_ratio = Optional(nvml.UtilizationRatio(device));
  reading.temperature_celsius = Optional(nvml.TemperatureCelsius(device));
  reading.power_watts = Optional(nvml.PowerWatts(device));
  reading.ecc_errors = Optional(nvml.EccErrors(device));
  reading.clock_reasons = Optional(nvml.ClockReasons(device));
  reading.recovery_action = Optional(nvml.RecoveryAction(device));
  return reading;
}

void Health::OnXid(uint64_t xid) {
  ++xids_[xid];
  if (fatal_.empty() && LookUpXid(xid).kind == XidKind::kFatal) fatal_ = XidText(xid);
}

void Health::OnReading(const Reading& reading, SteadyTime now) {
  unreadable_.clear();
  if (!reading.status.ok()) {
    unreadable_ = absl::IsDataLoss(reading.status) ? "lost: it has fallen off the bus"
                  : absl::IsFailedPrecondition(reading.status)
                      ? "requires a GPU reset"
                      : std::string(reading.status.message());
    return;
  }
  recovery_ = RecoveryText(reading.recovery_action.value_or(kNvmlRecoveryNone));
  if (reading.ecc_errors.has_value()) {
    // The count decreases when the device is reset.
    if (!ecc_at_start_.has_value() || *reading.ecc_errors < *ecc_at_start_) {
      ecc_at_start_ = *reading.ecc_errors;
    }
    new_ecc_errors_ = *reading.ecc_errors - *ecc_at_start_;
  }
  const uint64_t reasons = reading.clock_reasons.value_or(0) & kSlowedDown;
  if (reasons != 0) {
    fast_since_.reset();
    if (!slow_since_.has_value()) slow_since_ = now;
    if (now - *slow_since_ >= kSlowAfter) {
      slow_ = absl::StrCat(
          "throttled by its hardware for more than ", absl::FormatDuration(kSlowAfter), ": ",
          (reasons & NVML_CLOCKS_HW_THERMAL) != 0 ? "too hot" : "insufficient power");
    }
  } else {
    slow_since_.reset();
    if (!fast_since_.has_value()) fast_since_ = now;
    if (now - *fast_since_ >= kSlowAfter) slow_.clear();
  }
}

std::string Health::Problem() const {
  if (!fatal_.empty()) return absl::StrCat(fatal_, "; unusable until the worker is restarted");
  if (!unreadable_.empty()) return unreadable_;
  if (!recovery_.empty()) return recovery_;
  if (new_ecc_errors_ > 0) {
    return absl::StrCat(new_ecc_errors_, " uncorrected ECC error", new_ecc_errors_ == 1 ? "" : "s",
                        "; unusable until the GPU is reset");
  }
  return slow_;
}

void MemoryWatch::Occupy(bool fresh) {
  // If the memory of the last rank has not been freed yet, keep the state before that rank.
  if (!fresh) before_.reset();
  state_ = State::kOccupied;
  text_.clear();
}

void MemoryWatch::Release(SteadyTime now) {
  if (state_ != State::kOccupied) return;
  state_ = State::kReturning;
  released_ = now;
  text_ = "waiting until the memory of its last rank is freed";
}

void MemoryWatch::OnReading(const Reading& reading, SteadyTime now) {
  if (state_ == State::kOccupied) return;
  if (state_ == State::kFree || (reading.status.ok() && Remains(reading).empty())) {
    state_ = State::kFree;
    text_.clear();
    before_.reset();
    if (!reading.status.ok()) return;
    before_ = Before{{}, reading.memory_used_bytes};
    for (const GpuProcess& process : reading.processes.value_or(std::vector<GpuProcess>())) {
      before_->pids.insert(process.pid);
    }
    return;
  }
  if (now - released_ < kPatience) return;
  state_ = State::kHeld;
  // The problem of a device that cannot be read is reported by Health.
  text_ = reading.status.ok() ? Remains(reading) : "its memory usage is unknown";
}

std::string MemoryWatch::Remains(const Reading& reading) const {
  bool others = false;
  for (const GpuProcess& process : reading.processes.value_or(std::vector<GpuProcess>())) {
    if (before_.has_value() && before_->pids.count(process.pid) != 0) {
      others = true;
      continue;
    }
    std::string text = absl::StrCat("memory held by pid ", process.pid);
    if (!process.name.empty()) absl::StrAppend(&text, " (", process.name, ")");
    return text;
  }
  // The memory usage of other programs can change at any time.
  if (others || !before_.has_value()) return "";
  if (reading.memory_used_bytes <= before_->used_bytes + kToleranceBytes) return "";
  return absl::StrCat("memory not freed: ", Size(reading.memory_used_bytes), " in use, ",
                      Size(before_->used_bytes),
                      " before its last rank, and no process is visible");
}

}  // namespace muster::gpu
