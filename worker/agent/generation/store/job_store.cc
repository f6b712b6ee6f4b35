#include "worker/agent/generation/store/job_store.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "spec/hosted_store.h"
#include "worker/agent/generation/rank_launch.h"

namespace muster::agent {

HostedStore::Events JobStore::HostedEvents() {
  HostedStore::Events events;
  events.on_ready = events_.on_ready;
  events.on_ended = [this] {
    Report();
    events_.on_ended();
  };
  return events;
}

absl::Status JobStore::Start(const Address& endpoint, const std::optional<JobUser>& user) {
  ASSIGN_OR_RETURN(hosted_, HostedStore::Start(context_, launch_, endpoint, user, HostedEvents()));
  KeepLease(context_, launch_, hosted_->line());
  return absl::OkStatus();
}

void JobStore::Adopt() {
  if (launch_.node_rank() != 0) return;
  hosted_ = HostedStore::Adopt(context_, launch_, HostedEvents());
  if (hosted_ != nullptr && !events_.is_over()) KeepLease(context_, launch_, hosted_->line());
}

void JobStore::Connect(const Address& endpoint) {
  if (locator_ != nullptr || launch_.node_rank() == 0) return;
  if (!spec::RequestsHostedStore(launch_.spec())) return;
  locator_ = std::make_unique<RankLocator>(
      *context_.loop, endpoint,
      std::vector<std::string>{absl::StrCat("MUSTER_JOB_ID=", launch_.job_id()),
                               absl::StrCat("MUSTER_GENERATION=", launch_.generation())});
}

void JobStore::Tick() {
  if (hosted_ != nullptr && hosted_->ReadStatus()) Report();
  if (locator_ == nullptr) return;
  if (events_.is_over()) return locator_.reset();
  locator_->Tick();
}

void JobStore::SetLeaseDeadline(int64_t boot_ms) {
  if (hosted_ != nullptr && !events_.is_over()) hosted_->SetLeaseDeadline(boot_ms);
}

std::optional<v1::StoreWaits> JobStore::Waits() const {
  if (hosted_ == nullptr) return std::nullopt;
  return hosted_->Waits();
}

void JobStore::SendWaits() const {
  if (hosted_ == nullptr) return;
  v1::WorkerMessage message;
  v1::GenerationReport& report = *message.mutable_report();
  report.set_job_id(launch_.job_id());
  report.set_generation(launch_.generation());
  *report.mutable_store_waits() = hosted_->Waits();
  context_.send(std::move(message));
}

void JobStore::Report() {
  if (!hosted_->failure().empty()) events_.on_problem(std::nullopt, hosted_->failure());
  for (const c10d_store::ClientProblem& problem : hosted_->status().problems) {
    const bool is_here = std::any_of(
        launch_.ranks().begin(), launch_.ranks().end(),
        [&](const v1::RankPlacement& placement) { return problem.rank == placement.rank(); });
    if (is_here) {
      events_.on_problem(problem.rank, problem.text);
    } else {
      events_.on_problem(std::nullopt, absl::StrCat(problem.client, " was ", problem.text));
    }
  }
  SendWaits();
}

void JobStore::EndIfOver() {
  if (!running() || !events_.is_over()) return;
  if (launch_.node_count() > 1 && !ends_by_itself_) return hosted_->SetLeaseDeadline(0);
  hosted_->Stop();
}

bool JobStore::Stop() {
  if (!running()) return true;
  hosted_->Stop();
  return false;
}

}  // namespace muster::agent
