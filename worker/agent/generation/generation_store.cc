// The part of Generation that hosts the c10d store of a command job.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/report_bounds.h"
#include "spec/hosted_store.h"
#include "worker/agent/generation/generation.h"

namespace muster::agent {

HostedStore::Events Generation::StoreEvents() {
  HostedStore::Events events;
  events.on_ready = [this](const absl::Status& status) { OnStoreReady(status); };
  events.on_ended = [this] {
    ReportStore();
    on_settled_();
  };
  return events;
}

void Generation::StartStore(const MasterEndpoint& master) {
  auto store = HostedStore::Start(context_, launch_, master.address, user_, StoreEvents());
  if (!store.ok()) return StartRanks(store.status());
  store_ = *std::move(store);
  KeepLease(store_->line());
  master_ = master;
}

void Generation::OnStoreReady(const absl::Status& status) {
  // The generation was stopped meanwhile.
  if (directive_.has_value()) return EndStoreIfOver();
  if (!status.ok()) return StartRanks(status);
  PublishMaster(EncodeMasterEndpoint(master_));
  StartRanks(master_);
}

void Generation::EndStoreIfOver() {
  if (store_ == nullptr || !store_->running() || !over()) return;
  // Ranks of other nodes may still need it: the coordinator ends the generation once they have
  // exited, too.
  if (launch_.node_count() > 1 && !ends_by_itself_) return store_->SetLeaseDeadline(0);
  store_->Stop();
}

void Generation::StopByWorker(const v1::StopGeneration& stop) {
  ends_by_itself_ = true;
  Stop(stop);
}

bool Generation::Close() {
  if (store_ == nullptr || !store_->running()) return true;
  store_->Stop();
  return false;
}

void Generation::LocateRanksFor(const Address& master) {
  if (launch_.node_rank() == 0 || !spec::RequestsHostedStore(launch_.spec())) return;
  locator_ = std::make_unique<RankLocator>(
      *context_.loop, master,
      std::vector<std::string>{absl::StrCat("MUSTER_JOB_ID=", job_id()),
                               absl::StrCat("MUSTER_GENERATION=", number())});
}

void Generation::TickStore() {
  if (store_ != nullptr && store_->ReadStatus()) ReportStore();
  if (locator_ == nullptr) return;
  if (over()) return locator_.reset();
  locator_->Tick();
}

void Generation::WarnOfStore(RankState& rank, const std::string& problem) {
  if (!AddWarning(problem, rank.report)) return;
  if (rank.shim != nullptr) rank.shim->Note(absl::StrCat("muster: ", problem));
  Changed(rank);
}

void Generation::ReportStore() {
  if (!store_->failure().empty()) WarnOfStore(ranks_.begin()->second, store_->failure());
  for (const c10d_store::ClientProblem& problem : store_->status().problems) {
    const auto own = problem.rank.has_value() ? ranks_.find(*problem.rank) : ranks_.end();
    if (own != ranks_.end()) {
      WarnOfStore(own->second, problem.text);
    } else {
      WarnOfStore(ranks_.begin()->second, absl::StrCat(problem.client, " was ", problem.text));
    }
  }
  SendStoreWaits();
}

void Generation::SendStoreWaits() {
  v1::WorkerMessage message;
  v1::GenerationReport& report = *message.mutable_report();
  report.set_job_id(job_id());
  report.set_generation(number());
  *report.mutable_store_waits() = store_->Waits();
  context_.send(std::move(message));
}

}  // namespace muster::agent
