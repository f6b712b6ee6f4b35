#include "coordinator/service/coordinator.h"

#include <glog/logging.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/http/endpoints.h"
#include "common/http/http_server.h"
#include "common/process/machine_id.h"
#include "common/process/systemd.h"
#include "common/random_id.h"
#include "common/status.h"
#include "common/time/file_clock.h"
#include "coordinator/core/batches.h"
#include "coordinator/service/auth/audit_calls.h"
#include "coordinator/service/auth/audit_log.h"
#include "coordinator/service/auth/first_join_token.h"
#include "coordinator/service/auth/live_calls.h"
#include "coordinator/service/auth/own_certificate.h"
#include "coordinator/service/calls/cluster_service.h"
#include "coordinator/service/calls/core_calls.h"
#include "coordinator/service/calls/identity_service.h"
#include "coordinator/service/calls/worker_service.h"
#include "coordinator/service/grpc_server.h"
#include "coordinator/service/http/discovery.h"
#include "coordinator/service/http/login/page_logins.h"
#include "coordinator/service/http/status_page.h"
#include "coordinator/service/loop/core_loop.h"
#include "coordinator/service/loop/job_watchers.h"
#include "coordinator/service/loop/pending_requests.h"
#include "coordinator/service/loop/snapshot.h"
#include "coordinator/service/loop/worker_sessions.h"
#include "coordinator/service/metrics/grpc_metrics.h"
#include "coordinator/service/metrics/metrics.h"
#include "coordinator/service/relay/file_calls.h"
#include "coordinator/service/relay/log_relay.h"
#include "coordinator/service/relay/transfers.h"

namespace muster::service {
namespace {

// The health check fails when a turn or a commit takes this long, so that the coordinator is
// restarted.
constexpr absl::Duration kStuck = absl::Seconds(30);
// Interval at which files that no job references are looked for.
constexpr absl::Duration kCollectInterval = absl::Minutes(10);
// Interval at which the coordinator looks whether its certificate is to be renewed.
constexpr absl::Duration kRenewalInterval = absl::Minutes(10);
// Interval at which stalled uploads are looked for.
constexpr absl::Duration kUploadCheckInterval = absl::Seconds(10);
// On shutdown, calls that have not ended after this time are cancelled.
constexpr std::chrono::seconds kShutdownPatience(2);

}  // namespace

void EndOnCommitFailure(const absl::Status& status) {
  LOG(ERROR) << "commit to the store failed: " << status.message()
             << "; exiting because the state in memory is not on disk";
  google::FlushLogFiles(google::INFO);
  std::_Exit(1);
}

class Coordinator::Impl : public TurnObserver {
 public:
  Impl(const CoordinatorOptions& options, store::Store& store, std::unique_ptr<core::Core> core,
       std::unique_ptr<files::FileStore> files, std::unique_ptr<Authorizer> authorizer,
       std::optional<security::Authority> authority)
      : options_(options),
        sessions_(options.core.job_memory),
        logs_(sessions_),
        files_{std::move(files), options.clock, {}, {}, {}},
        transfers_(sessions_),
        snapshots_([this](const core::Stats& stats) { metrics_.Observe(stats); },
                   [this](const JobId& id, const v1::Job* job) { PutOnPage(id, job); },
                   options.clock),
        snapshot_metrics_(
            std::make_shared<SnapshotMetrics>([this] { return snapshots_.Get(); }, options.clock)),
        loop_(std::move(core), store,
              {.clock = options.clock,
               .deliver = [this](core::Effects effects) { Deliver(std::move(effects)); },
               .on_commit_failure = options.on_commit_failure,
               .observer = this,
               .is_open = [this](SessionId id) { return sessions_.Contains(id); }}),
        audit_log_({.path = options.audit_log, .clock = options.clock}, *metrics_.registry()),
        authorizer_(std::move(authorizer)),
        live_calls_(*authorizer_),
        authority_(std::move(authority)),
        page_logins_(options.clock),
        page_(loop_, logs_, *authorizer_, page_logins_, [this] { return snapshots_.Get(); }),
        calls_(loop_, requests_, *authorizer_),
        cluster_service_(loop_, calls_, watchers_, logs_, files_, transfers_, page_logins_),
        worker_service_(loop_, sessions_, logs_, files_, transfers_),
        identity_service_(calls_, authority_, options.certificate_validity, options.clock) {}
  ~Impl() override;

  absl::Status Serve();

  SteadyTime AfterTurn(core::Core& core, absl::Span<const JobId> changed, const Time& now,
                       std::vector<Release>& releases) override;
  void OnLag(absl::Duration lag) override { metrics_.ObserveLag(lag); }

 private:
  friend class Coordinator;
  void Deliver(core::Effects effects);
  // Ends the leases' clock, and waits until all earlier decisions have left.
  void AwaitClosing();
  void HandleHttp();
  void PutOnPage(const JobId& id, const v1::Job* job);
  // Removes files that no job references; called on the core thread.
  void CollectFiles(const core::Core& core, const Time& now);
  // Renews the coordinator's certificate if it is time; called on the core thread.
  void RenewCertificate(const Time& now);

  const CoordinatorOptions options_;
  Metrics metrics_;
  WorkerSessions sessions_;
  PendingRequests requests_;
  JobWatchers watchers_;
  LogRelay logs_;
  FileAccess files_;
  const FileClock file_clock_{options_.clock()};
  Transfers transfers_;
  SnapshotPublisher snapshots_;
  std::shared_ptr<SnapshotMetrics> snapshot_metrics_;
  // Core thread only.
  SteadyTime next_watchdog_;
  SteadyTime next_collection_;
  SteadyTime next_renewal_;
  SteadyTime next_upload_check_;
  CoreLoop loop_;
  AuditLog audit_log_;
  const std::unique_ptr<Authorizer> authorizer_;
  LiveCalls live_calls_;
  const std::optional<security::Authority> authority_;
  PageLogins page_logins_;
  StatusPage page_;
  CoreCalls calls_;
  ClusterServiceImpl cluster_service_;
  WorkerServiceImpl worker_service_;
  IdentityServiceImpl identity_service_;
  std::atomic<bool> serving_ = false;
  std::unique_ptr<GrpcServer> grpc_;
  std::unique_ptr<http::HttpServer> http_;
};

absl::Status Coordinator::Impl::Serve() {
  // Queued before any call can arrive, so that the status page and the metrics start from the
  // recovered state.
  const bool queued = loop_.PushQuery([this](core::Core& core, const Time& now) -> Release {
    snapshots_.Load(core, now);
    return nullptr;
  });
  if (!queued) return absl::InternalError("the core loop is not running");
  loop_.Start();
  RETURN_IF_ERROR(TakeFirstJoinToken(options_.first_join_token, loop_, requests_));
  ASSIGN_OR_RETURN(http_, http::HttpServer::Start(options_.http, kPageStreams, options_.tls));
  HandleHttp();
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> interceptors;
  interceptors.push_back(std::make_unique<GrpcMetrics>(*metrics_.registry()));
  interceptors.push_back(std::make_unique<AuditCalls>(audit_log_, *authorizer_));
  ASSIGN_OR_RETURN(
      grpc_, GrpcServer::Start(options_.listen,
                               {{v1::ClusterService::service_full_name(), &cluster_service_},
                                {v1::WorkerService::service_full_name(), &worker_service_},
                                {v1::IdentityService::service_full_name(), &identity_service_}},
                               *authorizer_, live_calls_, options_.tls,
                               authority_.has_value() ? security::ClientCertificates::kOptional
                                                      : security::ClientCertificates::kRequired,
                               std::move(interceptors)));
  loop_.Push(core::Listening{options_.machine_id, grpc_->address().ToString()});
  serving_ = true;
  return absl::OkStatus();
}

void Coordinator::Impl::HandleHttp() {
  http::HandleMetrics(*http_, {metrics_.registry(), snapshot_metrics_});
  http::HandleVersion(*http_, [this] {
    const std::shared_ptr<const Snapshot> snapshot = snapshots_.Get();
    return nlohmann::json{{"cluster_id", snapshot->store.cluster_id},
                          {"commit_index", snapshot->store.commit_index}};
  });
  const http::HealthCheck core = {"core", [this] {
                                    const absl::Duration delay = loop_.Delay();
                                    if (delay < kStuck) return absl::OkStatus();
                                    return absl::DeadlineExceededError(absl::StrCat(
                                        "an event has waited for ", absl::FormatDuration(delay)));
                                  }};
  const http::HealthCheck serving = {
      "serving", [this] {
        return serving_ ? absl::OkStatus() : absl::UnavailableError("starting or shutting down");
      }};
  http::HandleHealth(*http_, {core}, {core, serving});
  http_->Handle("/sd", [this](const http::Request&) {
    return http::Response{200, http::kJson, DiscoveryJson(*snapshots_.Get())};
  });
  page_.Register(*http_);
}

void Coordinator::Impl::PutOnPage(const JobId& id, const v1::Job* job) {
  if (job == nullptr) {
    page_.jobs().Erase(id);
  } else {
    page_.jobs().Put(*job);
  }
}

void Coordinator::Impl::Deliver(core::Effects effects) {
  for (const std::string& serial : effects.revoked_certificates) {
    authorizer_->RevokeCertificate(serial);
  }
  // Before the launches of later turns are sent.
  if (!effects.revoked_certificates.empty()) live_calls_.Check();
  for (core::Send& send : effects.sends) sessions_.Send(send.session, std::move(send.message));
  for (core::Reply& reply : effects.replies) requests_.Complete(std::move(reply));
  for (core::CloseSession& close : effects.closes) {
    sessions_.Close(close.session, std::move(close.status));
  }
  for (const std::string& line : effects.logs) LOG(INFO) << line;
}

SteadyTime Coordinator::Impl::AfterTurn(core::Core& core, absl::Span<const JobId> changed,
                                        const Time& now, std::vector<Release>& releases) {
  watchers_.AfterTurn(core, changed, now, releases);
  if (now.steady >= next_watchdog_) {
    const absl::Status notified = NotifySystemd(options_.notify_socket, "WATCHDOG=1");
    if (!notified.ok()) LOG(WARNING) << notified.message();
    next_watchdog_ = now.steady + options_.watchdog_interval;
  }
  if (now.steady >= next_collection_) CollectFiles(core, now);
  if (now.steady >= next_renewal_) RenewCertificate(now);
  if (now.steady >= next_upload_check_) {
    next_upload_check_ = now.steady + kUploadCheckInterval;
    files_.thread.Post([this, now = now.steady] { EndStalledUploads(files_, now); });
  }
  return std::min({next_watchdog_, next_collection_, next_renewal_, next_upload_check_,
                   snapshots_.Refresh(core, changed, now)});
}

void Coordinator::Impl::RenewCertificate(const Time& now) {
  next_renewal_ = authority_.has_value() ? now.steady + kRenewalInterval : SteadyTime::Infinite();
  if (!authority_.has_value()) return;
  // On the thread for files, because it waits for the disk.
  files_.thread.Post([this, wall = now.wall] {
    const absl::StatusOr<bool> renewed = RenewOwnCertificate(options_.tls, *authority_, wall);
    if (!renewed.ok()) {
      LOG(ERROR) << "cannot renew the coordinator's certificate: " << renewed.status().message();
    } else if (*renewed) {
      LOG(INFO) << "renewed the coordinator's certificate " << options_.tls.cert;
    }
  });
}

void Coordinator::Impl::CollectFiles(const core::Core& core, const Time& now) {
  next_collection_ = now.steady + kCollectInterval;
  files_.thread.Post([this, referenced = core.ListFiles(), wall = file_clock_.At(now)] {
    const size_t removed = files_.store->CollectGarbage(referenced, wall);
    LOG_IF(INFO, removed > 0) << "removed " << removed << " files that no job references";
  });
}

void Coordinator::Impl::AwaitClosing() {
  const auto closing = std::make_shared<absl::Notification>();
  loop_.Push(core::Closing{});
  // Released after the decisions before it; destroyed unused if the loop has ended.
  std::shared_ptr<void> guard(nullptr, [closing](void*) { closing->Notify(); });
  loop_.PushQuery([guard = std::move(guard)](core::Core&, const Time&) mutable -> Release {
    return [released = std::move(guard)] {};
  });
  closing->WaitForNotification();
}

Coordinator::Impl::~Impl() {
  serving_ = false;
  page_.Stop();
  const absl::Status ending = absl::UnavailableError("the coordinator is shutting down");
  watchers_.Shutdown();
  logs_.Shutdown();
  transfers_.Shutdown();
  sessions_.CloseAll(ending);
  // From the moment at which the address refuses connections, workers extend their leases.
  AwaitClosing();
  // The loop still runs and answers the calls in progress.
  if (grpc_ != nullptr) grpc_->Shutdown(kShutdownPatience);
  loop_.Stop();
  requests_.FailAll();
}

Coordinator::Coordinator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Coordinator::~Coordinator() = default;

absl::StatusOr<std::unique_ptr<Coordinator>> Coordinator::Start(const CoordinatorOptions& options,
                                                                store::Store& store) {
  CoordinatorOptions complete = options;
  if (complete.core.incarnation.value() == 0) {
    complete.core.incarnation = Incarnation(RandomId());
  }
  complete.core.new_cluster_id = RandomHexId(128);
  complete.core.awaits_listening = true;
  complete.core.boot_id = BootId();
  ASSIGN_OR_RETURN(std::unique_ptr<files::FileStore> files,
                   files::FileStore::Open(complete.files_dir));
  auto core = std::make_unique<core::Core>(complete.core);
  ASSIGN_OR_RETURN(const std::vector<store::Record> records, store.Scan(""));
  ASSIGN_OR_RETURN(const core::Effects effects, core->Load(records, complete.clock()));
  RETURN_IF_ERROR(Annotate(core::CommitInBatches(store, effects.writes), "recovery"));
  for (const std::string& line : effects.logs) LOG(INFO) << line;
  LOG(INFO) << "recovered " << records.size() << " records of cluster " << core->store().cluster_id
            << ", commit " << core->store().commit_index;
  std::optional<security::Authority> authority;
  if (!complete.ca_key.empty()) {
    ASSIGN_OR_RETURN(authority, security::Authority::Load(complete.tls.ca, complete.ca_key));
    RETURN_IF_ERROR(CheckChain(complete.tls, *authority));
    complete.access.require_certificate = true;
  }
  ASSIGN_OR_RETURN(auto authorizer, Authorizer::Create(complete.access, complete.clock));
  for (const std::string& serial : effects.revoked_certificates) {
    authorizer->RevokeCertificate(serial);
  }
  auto impl = std::make_unique<Impl>(complete, store, std::move(core), std::move(files),
                                     std::move(authorizer), std::move(authority));
  RETURN_IF_ERROR(impl->Serve());
  return std::unique_ptr<Coordinator>(new Coordinator(std::move(impl)));
}

const Address& Coordinator::grpc_address() const { return impl_->grpc_->address(); }
const Address& Coordinator::http_address() const { return impl_->http_->address(); }
size_t Coordinator::watcher_count() const { return impl_->watchers_.size(); }
size_t Coordinator::log_transfer_count() const { return impl_->logs_.size(); }
size_t Coordinator::transfer_count() const {
  return impl_->transfers_.exec.size() + impl_->transfers_.files.size();
}
void Coordinator::Wake() { impl_->loop_.Wake(); }

}  // namespace muster::service
