// The end of a simulation: repairs, and what must be true afterwards.
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/core/jobs/job.h"
#include "coordinator/core/reasons.h"
#include "coordinator/core/recovery/restart_policy.h"
#include "tests/simulation/simulation.h"

namespace muster::simulation {

void Simulation::Heal() {
  world_->Note("all faults are repaired");
  ReturnToTrueStore();
  HealNetwork();
  if (coordinator_.closing()) coordinator_.Crash();
  coordinator_.Start();
  if (store_replaced_) RecoverWhileInConflict();
  for (const auto& machine : machines_) {
    const bool newest = std::none_of(machines_.begin(), machines_.end(), [&](const auto& other) {
      return other->node() == machine->node() && other->id() > machine->id();
    });
    if (newest) {
      machine->CutNetwork(absl::ZeroDuration());
      machine->StartWorker();
      RestartWhileRefused(*machine);
    } else {
      machine->Retire();
    }
  }
  ConfirmWhileSilent();
  for (const auto& [node, slots] : slots_) {
    coordinator_.Request(core::UncordonNode{NodeName(node)}, nullptr);
  }
  for (const std::string& job : jobs_) {
    coordinator_.Request(core::ReleaseJob{coordinator_.NewRequest(), job},
                         [](const core::Reply&) {});
  }
}

void Simulation::ConfirmWhileSilent() {
  world_->scheduler.After(absl::Seconds(30), [this] {
    ConfirmLostNodes();
    ConfirmWhileSilent();
  });
}

void Simulation::RecoverWhileInConflict() {
  world_->scheduler.After(absl::Seconds(10), [this] {
    std::vector<NodeName> nodes = Conflicts();
    // Workers of the previous protocol version cannot send their records.
    const bool discard = world_->mixes_versions && Below(3) == 0;
    if (!nodes.empty()) Recover(std::move(nodes), discard);
    RecoverWhileInConflict();
  });
}

void Simulation::RestartWhileRefused(Machine& machine) {
  world_->scheduler.After(absl::Seconds(15), [this, &machine] {
    if (machine.refused()) {
      machine.CrashWorker();
      machine.StartWorker();
    }
    if (!machine.welcomed()) RestartWhileRefused(machine);
  });
}

bool Simulation::HasConverged() {
  if (!coordinator_.up()) return false;
  for (const auto& machine : machines_) {
    if (!machine->retired() && (!machine->welcomed() || !machine->idle())) return false;
  }
  for (const v1::Job& brief : Jobs()) {
    if (!core::IsTerminal(brief.state())) return false;
    CheckEnd(*coordinator_.core()->GetJob(JobId(brief.job_id()), /*detailed=*/true,
                                          world_->scheduler.now()));
  }
  for (const v1::Node& node : coordinator_.core()->ListNodes(world_->scheduler.now())) {
    for (const v1::Slot& slot : node.slots()) {
      if (!slot.job_id().empty()) {
        world_->violations.Add(
            absl::StrCat("slot ", slot.index(), " of ", node.name(), " is never released"));
      }
    }
  }
  return true;
}

void Simulation::CheckEnd(const v1::Job& job) {
  const uint32_t failures = job.past_failures_size() + job.past_failures_omitted();
  std::string wrong_time = FindWrongTime(job, world_->scheduler.now().wall);
  if (!wrong_time.empty()) world_->violations.Add(std::move(wrong_time));
  // The workers, from whose records a job is recovered, do not know its past failures.
  if (!store_replaced_ && job.restarts() > failures) {
    world_->violations.Add(absl::StrCat(job.job_id(), " was restarted without a failure"));
  }
  if (job.restarts_used() > job.spec().restart().max()) {
    world_->violations.Add(absl::StrCat(job.job_id(), " was restarted too often"));
  }
  if (job.state() == v1::FAILED && job.reason() == core::reasons::kNodeLost && !store_replaced_ &&
      failures < core::kMaxFailedAttempts) {
    world_->violations.Add(absl::StrCat(job.job_id(), " gave up too early: ", job.message()));
  }
  if (world_->orderly && job.has_first_failure()) {
    world_->violations.Add(absl::StrCat(
        job.job_id(),
        " failed in a simulation with orderly faults only: ", job.first_failure().message()));
  }
  if (job.state() == v1::CANCELLED && cancel_tried_.count(job.job_id()) == 0) {
    world_->violations.Add(absl::StrCat(job.job_id(), " was cancelled without a request"));
  }
  if (acknowledged_.cancelled.count(job.job_id()) != 0 && job.state() != v1::CANCELLED &&
      job.state() != v1::TIMED_OUT) {
    world_->violations.Add(absl::StrCat(job.job_id(), " continued after it was cancelled"));
  }
  // A generation whose ranks an older store has not forgotten waits for ranks that are gone.
  if (!store_replaced_ && job.first_failure().reason() == core::reasons::kRendezvousTimedOut) {
    world_->violations.Add(absl::StrCat(
        job.job_id(), " timed out in its rendezvous: ", job.first_failure().message()));
  }
  if (job.state() == v1::SUCCEEDED && job.exit_code() != 0) {
    world_->violations.Add(absl::StrCat(job.job_id(), " succeeded with a nonzero exit code"));
  }
  const bool dependency_failed = job.reason() == core::reasons::kDependencyFailed;
  if (dependency_failed && job.generation() > 0) {
    world_->violations.Add(absl::StrCat(job.job_id(), " had run when its dependency failed"));
  }
  const bool has_cause = job.has_first_failure() || dependency_failed;
  if (job.state() == v1::FAILED && (job.exit_code() == 0 || !has_cause)) {
    world_->violations.Add(absl::StrCat(job.job_id(), " failed without a cause"));
  }
}

void Simulation::ExplainStall() {
  world_->violations.Add("the simulation did not finish");
  for (const v1::Job& job : Jobs()) {
    if (core::IsTerminal(job.state())) continue;
    world_->violations.Add(coordinator_.core()
                               ->GetJob(JobId(job.job_id()), true, world_->scheduler.now())
                               ->DebugString());
  }
  for (const auto& machine : machines_) {
    if (!machine->retired() && !machine->idle()) world_->violations.Add(machine->Describe());
  }
}

}  // namespace muster::simulation
