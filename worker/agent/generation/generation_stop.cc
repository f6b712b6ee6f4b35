// The part of Generation that sends directives to its ranks, stops them, and reports those that
// cannot be killed.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/proto_time.h"
#include "common/stop_signal.h"
#include "glog/logging.h"
#include "worker/agent/generation/generation.h"

namespace muster::agent {

void Generation::Stop(const v1::StopGeneration& stop) {
  if (over()) return EndStoreIfOver();
  const bool aborts =
      stop.abort() || (directive_.has_value() && directive_->kind() == v1::Directive::ABORT);
  v1::Directive directive;
  directive.set_kind(aborts ? v1::Directive::ABORT : v1::Directive::STOP);
  directive.set_reason(stop.reason());
  directive.set_message(stop.message());
  directive.set_leave_in_memory(stop.leave_in_memory() && !aborts);
  const bool repeated =
      directive_.has_value() && directive_->SerializeAsString() == directive.SerializeAsString();
  directive_ = directive;
  const auto watchers = watchers_;
  for (const auto& [id, watcher] : watchers) {
    if (!repeated) watcher.on_directive(directive);
  }
  rendezvous_->EndAll(absl::AbortedError(absl::StrCat(stop.reason(), ": ", stop.message())));

  const absl::Duration grace = FromProto(stop.grace_period());
  for (auto& [number, rank] : ranks_) {
    if (rank.shim != nullptr) {
      // The trainer logs this itself.
      if (!launch_.spec().has_train() && !stop.reason().empty() && !repeated) {
        rank.shim->Note(absl::StrCat("muster: stopping: ", stop.reason()));
      }
      stop.dump_stacks() ? rank.shim->Abort(grace) : rank.shim->Stop(grace);
    } else if (rank.report.phase() != v1::EXITED && !rank.ended) {
      v1::ExitInfo exit;
      exit.set_signal(FindStopSignal(launch_.spec().stop_signal()).number);
      exit.set_stopped_by_worker(true);
      *exit.mutable_time() = ToProto(absl::Now());
      SetExited(rank, std::move(exit));
    }
  }
  FinishIfOver();
}

void Generation::RequestCheckpoint() {
  if (directive_.has_value()) return;
  v1::Directive directive;
  directive.set_kind(v1::Directive::CHECKPOINT);
  const auto watchers = watchers_;
  for (const auto& [id, watcher] : watchers) {
    if (watcher.rank == 0) watcher.on_directive(directive);
  }
}

void Generation::OnUnkillable(RankState& rank, pid_t survivor) {
  LOG(ERROR) << job_id() << " rank " << rank.report.rank() << ": processes outlive SIGKILL";
  if (survivor > 0) rank.report.set_pid(survivor);
  rank.report.set_unkillable(true);
  Changed(rank);
  on_settled_();
}

bool Generation::settled() const {
  if (store_ != nullptr && store_->running()) return false;
  return std::all_of(ranks_.begin(), ranks_.end(), [](const auto& entry) {
    return entry.second.report.phase() == v1::EXITED || entry.second.report.unkillable();
  });
}

}  // namespace muster::agent
