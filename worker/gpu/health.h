// Whether a GPU may be given to a rank, judged from what NVML says of it.
#ifndef MUSTER_WORKER_GPU_HEALTH_H_
#define MUSTER_WORKER_GPU_HEALTH_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/time.h"
#include "worker/gpu/nvml.h"

namespace muster::gpu {

// One look at a device. What driver or device do not tell is absent.
struct Reading {
  absl::Status status = absl::UnknownError("not read yet");  // not OK: why it tells nothing at all
  uint64_t memory_used_bytes = 0;
  uint64_t memory_total_bytes = 0;
  std::optional<std::vector<GpuProcess>> processes;
  std::optional<double> utilization_ratio;
  std::optional<double> temperature_celsius;
  std::optional<double> power_watts;
  std::optional<uint64_t> ecc_errors;       // uncorrected ones since the driver was loaded
  std::optional<uint64_t> clock_reasons;    // NVML_CLOCKS_…
  std::optional<uint32_t> recovery_action;  // kNvmlRecovery…
};

// May block for as long as the driver likes.
Reading Read(const Nvml& nvml, NvmlDevice device);

// How ill a device is: the first of these that holds.
//   a fatal Xid          until the worker is started again
//   lost, needs a reset  until it can be read again
//   the driver wants a reset or a restart  until it does not any more
//   uncorrected ECC errors since the worker started  until the driver forgets them (a reset)
//   slowed down by the hardware, too hot or short of power, for kSlowAfter  until it has not been
//                        for as long
// Not thread-safe.
class Health {
 public:
  static constexpr absl::Duration kSlowAfter = absl::Seconds(60);

  void OnReading(const Reading& reading, SteadyTime now);
  void OnXid(uint64_t xid);

  // For people; empty: nothing is wrong.
  std::string Problem() const;
  // How often each came.
  const std::map<uint64_t, uint64_t>& xids() const { return xids_; }

 private:
  std::map<uint64_t, uint64_t> xids_;
  std::string fatal_;       // Xid
  std::string unreadable_;  // lost, to be reset
  std::string recovery_;    // what the driver wants
  std::optional<uint64_t> ecc_at_start_;
  uint64_t new_ecc_errors_ = 0;
  std::optional<SteadyTime> slow_since_;
  std::optional<SteadyTime> fast_since_;
  std::string slow_;
};

// Whether what a rank held of a device's memory has been given back: the driver frees it at some
// time after the process has gone, and a process that got away keeps it. Not thread-safe.
//
//   kFree ──Occupy──▶ kOccupied ──Release──▶ kReturning ──kPatience──▶ kHeld
//     ▲                                          │                       │
//     └───────── seen back ──────────────────────┴───────────────────────┘
//
// It is back when no process is there that was not there before the rank, and, where there is none
// at all, no more memory is in use than before.
class MemoryWatch {
 public:
  enum class State { kFree, kOccupied, kReturning, kHeld };
  static constexpr absl::Duration kPatience = absl::Seconds(10);
  // What a driver may keep for itself of a device that has been used.
  static constexpr uint64_t kToleranceBytes = 256u << 20;

  void OnReading(const Reading& reading, SteadyTime now);
  // `fresh`: the rank starts now, so that what was seen last is what was there before it. A rank
  // that an earlier worker started may have made all that there is.
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

  // Who or what is in the way; empty: all is back.
  std::string Remains(const Reading& reading) const;

  State state_ = State::kFree;
  std::optional<Before> before_;
  SteadyTime released_;
  std::string text_;
};

}  // namespace muster::gpu

#endif  // MUSTER_WORKER_GPU_HEALTH_H_
