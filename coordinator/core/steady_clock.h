// The clock of the core: steady time that goes on over restarts of the coordinator.
//
// Leases, delays, time limits, ages and charges are measured on it, and the records in the store
// hold its times. It begins with the store, as the time since 1970-01-01, and counts elapsed time
// from then on: setting the wall clock neither advances nor holds it. Dates that are shown and the
// expiry of certificates and tokens follow the wall clock instead.
//
// Not thread-safe.
#ifndef MUSTER_COORDINATOR_CORE_STEADY_CLOCK_H_
#define MUSTER_COORDINATOR_CORE_STEADY_CLOCK_H_

#include <string>
#include <utility>

#include "absl/time/time.h"
#include "common/time/time.h"
#include "google/protobuf/timestamp.pb.h"
#include "proto/muster/v1/store.pb.h"

namespace muster::core {

// The most time that the clock advances while no coordinator runs and the machine reboots or is
// another one, so that the wall clock has to measure it.
inline constexpr absl::Duration kLongestDowntime = absl::Hours(24);

class SteadyClock {
 public:
  // `boot_id`: of the machine's boot; empty: unknown.
  explicit SteadyClock(std::string boot_id) : boot_id_(std::move(boot_id)) {}

  // Continues the clock of the store's last commit. In the same boot of the machine, the machine's
  // steady clock has measured the time in between; otherwise the wall clock has, from zero to
  // kLongestDowntime. A store of an older version has no clock: it begins at the wall time.
  void Continue(const v1::CommitRecord& last, Time machine);
  // Notes the time, given on this clock, in the record of a commit.
  void Note(Time now, v1::CommitRecord& commit) const;

  // Converts from and to the steady time of the machine.
  Time At(Time machine) const { return {machine.steady + offset_, machine.wall}; }
  SteadyTime OnMachine(SteadyTime time) const { return time - offset_; }

 private:
  std::string boot_id_;
  absl::Duration offset_;
};

// Times of the clock in records.
google::protobuf::Timestamp ToStored(SteadyTime time);
SteadyTime FromStored(const google::protobuf::Timestamp& time);

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_STEADY_CLOCK_H_
