// The account of one job's time: every moment from its submission to its end is charged to exactly
// one cause, so the causes add up to the job's wall time. docs/operate/goodput.md defines them.
//
// The cause follows from the job's activity and from what happened before. After a failure or a
// requeue, starting and the first step are charged to that interruption, and steps that an earlier
// generation has completed are charged as redone.
//
// Time is settled when its cause can no longer change: above all, with each completed step. A
// failure takes back the pending time of the step that it interrupts, and the loss of a node also
// that of the generation's start.
//
// Elapsed time is measured on the core's clock, which goes on over a restart of the coordinator:
// that time is charged to the cause of the record.
//
// Not thread-safe.
#ifndef MUSTER_COORDINATOR_CORE_GOODPUT_TIME_ACCOUNT_H_
#define MUSTER_COORDINATOR_CORE_GOODPUT_TIME_ACCOUNT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "common/time/time.h"
#include "coordinator/core/goodput/ledger.h"
#include "proto/muster/v1/job.pb.h"
#include "proto/muster/v1/store.pb.h"

namespace muster::core {

class TimeAccount {
 public:
  // The account of a job that has ended and has none.
  TimeAccount() = default;
  // A job that is queued from `now` on; before that, it existed for `unrecorded`. `counts_steps`:
  // its ranks report steps. Of other jobs, that is known once they have reported one.
  TimeAccount(bool counts_steps, absl::Duration unrecorded, Time now);
  // A stored account. Resume must follow before anything is charged.
  TimeAccount(const v1::TimeAccountRecord& record, bool counts_steps);
  // Continues a stored account; the time since its record is charged to the cause of the record.
  void Resume(Time now);

  // ---- Changes
  // The job's activity, as the cause that it is charged to if no interruption precedes it.
  // RECOVERY: the generation stops because of a failure. REQUEUE: it stops for a requeue,
  // preemption or drain. PRODUCTIVE: it trains, or a program runs.
  void Enter(v1::TimeCause activity, Time now);
  // The generation has completed this step, after stops for checkpoints that took
  // `checkpoint_stall` in total. Both are as reported, and may be wrong.
  void ReportStep(uint64_t step, absl::Duration checkpoint_stall, Time now);
  // The job is found to hang since then. The time of steps since the last one that has been settled
  // is charged as hung from `since` on. Enter(HUNG) follows.
  void FindHang(SteadyTime since, Time now);
  void BeginGeneration(uint32_t slots, Time now);
  // Returns the time of the generation. `lost_node`: the node that is to blame if it has failed.
  Ledger EndGeneration(const std::optional<std::string>& lost_node, Time now);
  // The job has ended.
  void Close(Time now);

  // ---- Reading
  bool is_open() const { return cause_ != v1::TIME_CAUSE_UNSPECIFIED; }
  v1::TimeCause cause() const { return cause_; }
  v1::Goodput View(Time now) const;
  // The time of the living generation so far.
  Ledger OfGeneration(Time now) const;
  // The time that has been settled since the last call.
  Ledger TakeSettled() { return std::exchange(untaken_, Ledger()); }
  // The pending time that will be settled as it is: that of a program without steps, of which
  // nothing is taken back but the time of a hang.
  Ledger CertainlyPending(Time now) const;

  // ---- Records
  v1::TimeAccountRecord ToRecord() const;
  // Whether the record should be written although the job has not changed otherwise. Few records
  // are written for an account: a restart of the coordinator, which charges the time since the
  // record to its cause, may be wrong by seconds.
  bool IsWriteDue(SteadyTime now) const;
  void MarkWritten(SteadyTime now);

 private:
  void Charge(Time now);
  void AddPending(v1::TimeCause cause, absl::Duration wall_time);
  // The share of the steps since the last report, up to `step`, that an earlier generation has
  // completed.
  double RedoneShare(uint64_t step) const;
  void Settle();
  void UpdateCause();
  v1::TimeCause CauseOfActivity() const;
  void Interrupt(v1::TimeCause cause, std::string node);

  Ledger settled_;
  Ledger pending_;
  Ledger generation_;  // the part of settled_ that belongs to the living generation
  Ledger untaken_;
  absl::Duration slots_held_time_;
  SteadyTime charged_to_;
  v1::TimeCause activity_ = v1::TIME_CAUSE_UNSPECIFIED;
  v1::TimeCause cause_ = v1::TIME_CAUSE_UNSPECIFIED;
  // The interruption that the next step ends; UNSPECIFIED without one.
  v1::TimeCause interruption_ = v1::TIME_CAUSE_UNSPECIFIED;
  std::string interruption_node_;
  bool failing_ = false;  // the generation stops because of a failure, whose cause is not known yet
  uint32_t slots_ = 0;
  bool counts_steps_ = false;
  uint64_t step_ = 0;  // the newest of this generation; 0: none
  uint64_t highest_step_ = 0;
  uint64_t redo_until_ = 0;          // the highest step of earlier generations
  absl::Duration checkpoint_stall_;  // charged in this generation
  // ---- In memory only
  SteadyTime written_;
  bool changed_ = false;  // the cause, since the record was written
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_GOODPUT_TIME_ACCOUNT_H_
