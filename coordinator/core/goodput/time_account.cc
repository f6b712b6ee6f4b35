#include "coordinator/core/goodput/time_account.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/time/proto_time.h"
#include "coordinator/core/steady_clock.h"

namespace muster::core {
namespace {

// Shortest interval between two records of an account whose cause changes, and of one whose cause
// remains the same.
constexpr absl::Duration kWriteInterval = absl::Seconds(10);
constexpr absl::Duration kLongestInterval = absl::Minutes(5);

bool IsStepTime(v1::TimeCause cause) {
  return cause == v1::TIME_PRODUCTIVE || cause == v1::TIME_REDONE;
}

// The order of causes in a view.
int OrderOf(v1::TimeCause cause) {
  return cause == v1::TIME_HUNG ? 2 * v1::TIME_CHECKPOINT_STALL + 1 : 2 * cause;
}

// Whether a generation with this activity has begun to train.
bool Trains(v1::TimeCause activity) {
  return activity == v1::TIME_PRODUCTIVE || activity == v1::TIME_EVALUATING ||
         activity == v1::TIME_CHECKPOINT_STALL;
}

}  // namespace

TimeAccount::TimeAccount(bool counts_steps, absl::Duration unrecorded, Time now)
    : charged_to_(now.steady),
      activity_(v1::TIME_QUEUED),
      cause_(v1::TIME_QUEUED),
      counts_steps_(counts_steps),
      written_(now.steady) {
  settled_.Add(
      {v1::TIME_UNRECORDED, "", std::max(unrecorded, absl::ZeroDuration()), absl::ZeroDuration()});
}

TimeAccount::TimeAccount(const v1::TimeAccountRecord& record, bool counts_steps)
    : settled_(record.settled()),
      pending_(record.pending()),
      generation_(record.generation()),
      slots_held_time_(FromProto(record.slots_held_time())),
      charged_to_(FromStored(record.charged_to())),
      activity_(record.activity()),
      cause_(record.cause()),
      interruption_(record.interruption()),
      interruption_node_(record.interruption_node()),
      failing_(record.failing()),
      slots_(record.slots()),
      counts_steps_(counts_steps || record.highest_step() > 0),
      step_(record.step()),
      highest_step_(record.highest_step()),
      redo_until_(record.redo_until()),
      checkpoint_stall_(FromProto(record.checkpoint_stall())) {}

void TimeAccount::Resume(Time now) {
  charged_to_ = std::min(charged_to_, now.steady);
  written_ = now.steady;
}

// ------------------------------------------------------------------------------------------------
// changes

void TimeAccount::Enter(v1::TimeCause activity, Time now) {
  if (!is_open() || activity == activity_) return;
  Charge(now);
  if (!counts_steps_ && (activity_ == v1::TIME_PRODUCTIVE || activity == v1::TIME_PRODUCTIVE)) {
    Settle();
  }
  activity_ = activity;
  if (activity == v1::TIME_RECOVERY) failing_ = true;
  if (activity == v1::TIME_REQUEUE && !failing_) Interrupt(v1::TIME_REQUEUE, "");
  UpdateCause();
}

void TimeAccount::ReportStep(uint64_t step, absl::Duration checkpoint_stall, Time now) {
  if (!is_open() || step == 0) return;
  highest_step_ = std::max(highest_step_, step);
  // A generation that has failed loses what it did after its last settled step.
  if (failing_ || step <= step_) return;
  counts_steps_ = true;
  const absl::Duration elapsed = std::max(now.steady - charged_to_, absl::ZeroDuration());
  if (IsStepTime(cause_) && slots_ > 0) {
    const absl::Duration stalled =
        std::clamp(checkpoint_stall - checkpoint_stall_, absl::ZeroDuration(), elapsed);
    const absl::Duration worked = elapsed - stalled;
    const absl::Duration redone = worked * RedoneShare(step);
    AddPending(v1::TIME_CHECKPOINT_STALL, stalled);
    AddPending(v1::TIME_REDONE, redone);
    AddPending(v1::TIME_PRODUCTIVE, worked - redone);
    charged_to_ = now.steady;
  } else {
    Charge(now);
  }
  step_ = step;
  Settle();
  UpdateCause();
}

void TimeAccount::FindHang(SteadyTime since, Time now) {
  Charge(now);
  absl::Duration left = std::max(now.steady - since, absl::ZeroDuration());
  Ledger found;
  for (Ledger::Entry entry : pending_.entries()) {
    if (IsStepTime(entry.cause)) {
      const absl::Duration hung = std::min(entry.wall_time, left);
      left -= hung;
      entry.wall_time -= hung;
      entry.slot_time -= hung * slots_;
      found.Add({v1::TIME_HUNG, "", hung, hung * slots_});
    }
    found.Add(std::move(entry));
  }
  pending_ = std::move(found);
}

void TimeAccount::BeginGeneration(uint32_t slots, Time now) {
  if (!is_open()) return;
  Charge(now);
  Settle();
  generation_ = Ledger();
  slots_ = slots;
  step_ = 0;
  redo_until_ = highest_step_;
  checkpoint_stall_ = absl::ZeroDuration();
}

Ledger TimeAccount::EndGeneration(const std::optional<std::string>& lost_node, Time now) {
  Charge(now);
  if (std::exchange(failing_, false)) {
    Ledger taken_back;
    for (Ledger::Entry entry : pending_.entries()) {
      if (lost_node.has_value()) {
        entry.cause = v1::TIME_LOST_TO_NODE;
        entry.node = *lost_node;
      } else if (IsStepTime(entry.cause)) {
        entry.cause = v1::TIME_RECOVERY;
      }
      taken_back.Add(std::move(entry));
    }
    pending_ = std::move(taken_back);
    Interrupt(lost_node.has_value() ? v1::TIME_LOST_TO_NODE : v1::TIME_RECOVERY,
              lost_node.value_or(""));
  }
  Settle();
  slots_ = 0;
  activity_ = v1::TIME_QUEUED;
  UpdateCause();
  return std::exchange(generation_, Ledger());
}

void TimeAccount::Close(Time now) {
  Charge(now);
  Settle();
  generation_ = Ledger();
  activity_ = cause_ = v1::TIME_CAUSE_UNSPECIFIED;
}

void TimeAccount::Charge(Time now) {
  if (!is_open()) return;
  AddPending(cause_, std::max(now.steady - charged_to_, absl::ZeroDuration()));
  charged_to_ = now.steady;
}

void TimeAccount::AddPending(v1::TimeCause cause, absl::Duration wall_time) {
  pending_.Add({cause, cause == v1::TIME_LOST_TO_NODE ? interruption_node_ : "", wall_time,
                wall_time * slots_});
  if (slots_ > 0) slots_held_time_ += wall_time;
  if (cause == v1::TIME_CHECKPOINT_STALL) checkpoint_stall_ += wall_time;
}

double TimeAccount::RedoneShare(uint64_t step) const {
  if (cause_ != v1::TIME_REDONE) return 0;
  if (step <= redo_until_) return 1;
  return static_cast<double>(redo_until_ - step_) / static_cast<double>(step - step_);
}

void TimeAccount::Settle() {
  settled_.Add(pending_);
  generation_.Add(pending_);
  untaken_.Add(pending_);
  pending_ = Ledger();
}

void TimeAccount::Interrupt(v1::TimeCause cause, std::string node) {
  interruption_ = cause;
  interruption_node_ = std::move(node);
}

void TimeAccount::UpdateCause() {
  // The next step ends an interruption. A generation may have no step left, or a program no steps.
  const bool advanced = step_ > 0 || !counts_steps_ || activity_ != v1::TIME_PRODUCTIVE;
  if (Trains(activity_) && advanced) Interrupt(v1::TIME_CAUSE_UNSPECIFIED, "");
  const v1::TimeCause cause = CauseOfActivity();
  changed_ |= cause != cause_;
  cause_ = cause;
}

v1::TimeCause TimeAccount::CauseOfActivity() const {
  if (failing_) return v1::TIME_RECOVERY;
  const bool interrupted = interruption_ != v1::TIME_CAUSE_UNSPECIFIED;
  switch (activity_) {
    case v1::TIME_QUEUED:
      // A job that was requeued waits like any other.
      return interrupted && interruption_ != v1::TIME_REQUEUE ? interruption_ : activity_;
    case v1::TIME_STARTING:
    case v1::TIME_PREPARING_DATA:
      return interrupted ? interruption_ : activity_;
    case v1::TIME_PRODUCTIVE:
      if (interrupted) return interruption_;
      return step_ > 0 && step_ < redo_until_ ? v1::TIME_REDONE : v1::TIME_PRODUCTIVE;
    default:
      return activity_;
  }
}

// ------------------------------------------------------------------------------------------------
// reading

v1::Goodput TimeAccount::View(Time now) const {
  TimeAccount charged = *this;
  charged.Charge(now);
  Ledger all = charged.settled_;
  all.Add(charged.pending_);
  v1::Goodput view;
  std::vector<Ledger::Entry> entries = all.entries();
  std::stable_sort(entries.begin(), entries.end(),
                   [](const Ledger::Entry& a, const Ledger::Entry& b) {
                     return OrderOf(a.cause) < OrderOf(b.cause);
                   });
  for (const Ledger::Entry& entry : entries) {
    v1::Goodput::Cause& cause = *view.add_causes();
    cause.set_cause(NameOf(entry.cause));
    cause.set_node(entry.node);
    *cause.mutable_wall_time() = ToProto(entry.wall_time);
    cause.set_slot_seconds(absl::ToDoubleSeconds(entry.slot_time));
  }
  *view.mutable_wall_time() = ToProto(all.Total().wall_time);
  *view.mutable_slots_held_time() = ToProto(charged.slots_held_time_);
  if (charged.slots_held_time_ > absl::ZeroDuration()) {
    view.set_goodput_ratio(
        absl::FDivDuration(all.Of(v1::TIME_PRODUCTIVE).wall_time, charged.slots_held_time_));
  }
  if (is_open()) view.set_current_cause(NameOf(cause_));
  return view;
}

Ledger TimeAccount::OfGeneration(Time now) const {
  TimeAccount charged = *this;
  charged.Charge(now);
  charged.generation_.Add(charged.pending_);
  return charged.generation_;
}

Ledger TimeAccount::CertainlyPending(Time now) const {
  if (counts_steps_ || cause_ != v1::TIME_PRODUCTIVE) return Ledger();
  TimeAccount charged = *this;
  charged.Charge(now);
  return charged.pending_;
}

// ------------------------------------------------------------------------------------------------
// records

v1::TimeAccountRecord TimeAccount::ToRecord() const {
  v1::TimeAccountRecord record;
  *record.mutable_settled() = settled_.ToRecords();
  *record.mutable_pending() = pending_.ToRecords();
  *record.mutable_generation() = generation_.ToRecords();
  *record.mutable_slots_held_time() = ToProto(slots_held_time_);
  *record.mutable_charged_to() = ToStored(charged_to_);
  record.set_activity(activity_);
  record.set_cause(cause_);
  record.set_interruption(interruption_);
  record.set_interruption_node(interruption_node_);
  record.set_failing(failing_);
  record.set_slots(slots_);
  record.set_step(step_);
  record.set_highest_step(highest_step_);
  record.set_redo_until(redo_until_);
  *record.mutable_checkpoint_stall() = ToProto(checkpoint_stall_);
  return record;
}

bool TimeAccount::IsWriteDue(SteadyTime now) const {
  return is_open() && now - written_ >= (changed_ ? kWriteInterval : kLongestInterval);
}

void TimeAccount::MarkWritten(SteadyTime now) {
  written_ = now;
  changed_ = false;
}

}  // namespace muster::core
