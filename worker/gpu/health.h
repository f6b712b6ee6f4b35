// Judges from NVML's values whether a GPU can be used by a rank.
#ifndef MUSTER_WORKER_GPU_HEALTH_H_
#define MUSTER_WORKER_GPU_HEALTH_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/time/time.h"
#include "worker/gpu/nvml.h"

namespace muster::gpu {

// One reading of a device. Values that the driver or the device does not provide are absent.
struct Reading {
  absl::Status status = absl::UnknownError("not read yet");  // not OK: the device cannot be read
  uint64_t memory_used_bytes = 0;
  uint64_t memory_total_bytes = 0;
  std::optional<std::vector<GpuProcess>> processes;
  std::optional<double> utilization_ratio;
  std::optional<double> temperature_celsius;
  std::optional<double> power_watts;
  std::optional<uint64_t> ecc_errors;       // uncorrected errors since the driver was loaded
  std::optional<uint64_t> clock_reasons;    // NVML_CLOCKS_…
  std::optional<uint32_t> recovery_action;  // kNvmlRecovery…
};

// Reads the device; may block indefinitely in the driver.
Reading Read(const Nvml& nvml, NvmlDevice device);

// The health of a device. Its problem is the first of these that holds:
//   a fatal Xid: until the worker is restarted;
//   lost, or requires a reset: until it can be read again;
//   the driver requests a reset or a reboot: until it no longer does;
//   uncorrected ECC errors since the worker started: until the driver clears them (by a reset);
//   throttled by the hardware (temperature or power) for kSlowAfter: until not throttled for
//   kSlowAfter.
// Not thread-safe.
class Health {
 public:
  static constexpr absl::Duration kSlowAfter = absl::Seconds(60);

  void OnReading(const Reading& reading, SteadyTime now);
  void OnXid(uint64_t xid);

  // The problem as text; empty: healthy.
  std::string Problem() const;
  // Number of occurrences by Xid.
  const std::map<uint64_t, uint64_t>& xids() const { return xids_; }

 private:
  std::map<uint64_t, uint64_t> xids_;
  std::string fatal_;       // a fatal Xid
  std::string unreadable_;  // lost, or requires a reset
  std::string recovery_;    // action requested by the driver
  std::optional<uint64_t> ecc_at_start_;
  uint64_t new_ecc_errors_ = 0;
  std::optional<SteadyTime> slow_since_;
  std::optional<SteadyTime> fast_since_;
  std::string slow_;
};

// Tracks whether a device's memory has been freed after a rank: the driver frees it some time after
// the process has ended, and a process that escaped keeps it. Not thread-safe.
//
//   kFree ──Occupy──▶ kOccupied ──Release──▶ kReturning ──kPatience──▶ kHeld
//     ▲                                          │                       │
//     └────────── freed ─────────────────────────┴───────────────────────┘
//
// It is free again when the device has no processes that were not there before the rank and, if it
// has none at all, no more memory is in use than before.
class MemoryWatch {
 public:
  enum class State { kFree, kOccupied, kReturning, kHeld };
  static constexpr absl::Duration kPatience = absl::Seconds(10);
  // Memory that the driver may keep on a device that has been used.
  static constexpr uint64_t kToleranceBytes = 256u << 20;

  void OnReading(const Reading& reading, SteadyTime now);
  // `fresh`: the rank starts now, so the last reading shows the state before it. An adopted rank,
  // started by an earlier worker, may have caused everything in the reading.
  void Occupy(bool fresh);
  void Release(SteadyTime now);

  State state() const { return state_; }
  // "memory held by pid 4411 (python3)"; empty unless kReturning or kHeld.
  const std::string& text() const { return text_; }

 private:
  struct Before {
    std::set<int64_t> pids;
    uint64_t used_bytes;
  };

  // Why the memory has not been freed; empty: it has been.
  std::string Remains(const Reading& reading) const;

  State state_ = State::kFree;
  std::optional<Before> before_;
  SteadyTime released_;
  std::string text_;
};

}  // namespace muster::gpu

#endif  // MUSTER_WORKER_GPU_HEALTH_H_
