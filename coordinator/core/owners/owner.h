// One owner's use of the cluster.
#ifndef MUSTER_COORDINATOR_CORE_OWNERS_OWNER_H_
#define MUSTER_COORDINATOR_CORE_OWNERS_OWNER_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/time/time.h"
#include "common/time.h"
#include "coordinator/core/goodput/ledger.h"
#include "proto/muster/v1/store.pb.h"

namespace muster::core {

struct SlotCount {
  uint32_t cpu = 0;
  uint32_t gpu = 0;
  uint32_t total() const { return cpu + gpu; }
};

// The UTC day of a time, as days since 1970-01-01, and the beginning of a day.
uint32_t DayOf(absl::Time time);
absl::Time StartOfDay(uint32_t day);

// The slots of all running generations are charged from the start of a generation to the end of its
// last rank: continuously, so that nothing has to be written in between.
class Owner {
 public:
  using Day = v1::OwnerRecord::Day;

  // An owner without use so far.
  Owner(std::string name, absl::Duration half_life, Time now);
  // A stored owner. Its running generations follow with Resume; they are charged from the time of
  // the record.
  Owner(const v1::OwnerRecord& record, absl::Duration half_life, Time now);

  const std::string& name() const { return name_; }
  const SlotCount& running() const { return running_; }
  const std::map<uint32_t, Day>& days() const { return days_; }
  bool is_idle() const { return running_.total() == 0 && queued_jobs == 0; }

  void Start(const SlotCount& slots, Time now);
  void Resume(const SlotCount& slots);
  void End(const SlotCount& slots, Time now);
  // Adds the time by cause of a generation that lasted from `begin` until now.
  void AddCauses(const Ledger& spent, absl::Time begin, absl::Time now);
  // Charges the running generations up to `now`, and drops days that are no longer reported.
  void Charge(Time now);
  // The record of a day, which is created if it is missing.
  Day& OnDay(uint32_t day);

  // Slot-seconds with exponential decay, at `now`.
  double Usage(SteadyTime now) const;
  // To be stored after Charge.
  v1::OwnerRecord ToRecord() const;

  uint32_t queued_jobs = 0;  // in memory only; includes held ones

 private:
  std::string name_;
  absl::Duration half_life_;
  SlotCount running_;
  double usage_ = 0;  // as of charged_to_
  // Until when everything is charged. Steady, so that a wall clock that is set charges nothing; a
  // restart bridges the time in between by the wall clock.
  SteadyTime charged_to_;
  absl::Time charged_to_wall_;
  std::map<uint32_t, Day> days_;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_OWNERS_OWNER_H_
