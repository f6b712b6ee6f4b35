// One owner's use of the cluster.
#ifndef MUSTER_COORDINATOR_CORE_OWNERS_OWNER_H_
#define MUSTER_COORDINATOR_CORE_OWNERS_OWNER_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/time/time.h"
#include "common/time/time.h"
#include "coordinator/core/goodput/ledger.h"
#include "proto/muster/v1/store.pb.h"

namespace muster::core {

struct SlotCount {
  uint32_t cpu = 0;
  uint32_t gpu = 0;
  uint32_t total() const { return cpu + gpu; }
};

// The day of a time on the core's clock, which never goes back, and the beginning of a day. Setting
// the wall clock thus does not drop days.
uint32_t DayOf(SteadyTime time);
SteadyTime StartOfDay(uint32_t day);

// The slots of all running generations are charged from the start of a generation to the end of its
// last rank: continuously, so that nothing has to be written in between.
class Owner {
 public:
  using Day = v1::OwnerRecord::Day;

  // An owner without use so far.
  Owner(std::string name, absl::Duration half_life, SteadyTime now);
  // A stored owner. Its running generations follow with Resume; they are charged from the time of
  // the record.
  Owner(const v1::OwnerRecord& record, absl::Duration half_life, SteadyTime now);

  const std::string& name() const { return name_; }
  const SlotCount& running() const { return running_; }
  const std::map<uint32_t, Day>& days() const { return days_; }
  bool is_idle() const { return running_.total() == 0 && queued_jobs == 0; }

  void Start(const SlotCount& slots, SteadyTime now);
  void Resume(const SlotCount& slots);
  void End(const SlotCount& slots, SteadyTime now);
  // Adds the time by cause of a generation that lasted from `begin` until now.
  void AddCauses(const Ledger& spent, SteadyTime begin, SteadyTime now);
  // Charges the running generations up to `now`, and drops days that are no longer reported.
  void Charge(SteadyTime now);
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
  double usage_ = 0;       // as of charged_to_
  SteadyTime charged_to_;  // until when everything is charged
  std::map<uint32_t, Day> days_;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_OWNERS_OWNER_H_
