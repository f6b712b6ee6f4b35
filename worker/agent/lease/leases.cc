#include "worker/agent/lease/leases.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/http/address.h"
#include "common/process/machine_id.h"
#include "common/status.h"
#include "common/time/proto_time.h"
#include "glog/logging.h"
#include "spec/cut_off.h"
#include "worker/agent/lease/lease_lines.h"
#include "worker/agent/storage/data_directory.h"
#include "worker/shim/fields.h"

namespace muster::agent {
namespace {

// Heartbeat intervals since the newest acknowledged heartbeat was sent, after which this worker
// forwards no questions to the coordinator: one until the next, and one for that one's
// acknowledgement.
constexpr int kFreshIntervals = 2;

// How long a peer waits for the coordinator's address to refuse a connection: less than the
// patience of the worker that asks.
constexpr absl::Duration kProbePatience = absl::Milliseconds(500);

v1::PromiseRecord ReadPromises(const std::string& path) {
  v1::PromiseRecord record;
  const absl::Status read = ReadMessage(path, record);
  if (read.ok()) return record;
  LOG_IF(ERROR, !absl::IsNotFound(read)) << "cannot read " << path << ": " << read;
  return v1::PromiseRecord();
}

// The address that others use, with an empty host where the listener accepts any.
std::string Reported(const Address& address) {
  const bool any_interface = address.host == "0.0.0.0" || address.host == "::";
  return any_interface ? absl::StrCat(":", address.port) : address.ToString();
}

}  // namespace

std::string DefaultPeerListen(const std::string& coordinator, const security::TlsFiles& tls) {
  if (!tls.cert.empty()) return "0.0.0.0:0";
  const absl::StatusOr<Address> address = ParseAddress(coordinator);
  return address.ok() && IsLoopback(address->host) ? "127.0.0.1:0" : "";
}

std::string CheckPeerListen(const std::string& listen, const security::TlsFiles& tls) {
  if (listen.empty()) return "";
  const absl::StatusOr<Address> address = ParseAddress(listen);
  if (!address.ok()) return absl::StrCat("--peer-listen: '", listen, "' is not HOST:PORT");
  if (!tls.cert.empty() || IsLoopback(address->host)) return "";
  return absl::StrCat("--peer-listen=", listen,
                      " is reachable from other machines; set --tls-cert and --tls-key");
}

KnownPeers::KnownPeers(std::string file) : file_(std::move(file)) {
  peers_ = absl::StrSplit(shim::ReadFile(file_).value_or(""), '\n', absl::SkipEmpty());
  if (peers_.empty()) return;
  coordinator_ = peers_.front();
  peers_.erase(peers_.begin());
}

void KnownPeers::Set(const std::string& coordinator, const std::vector<std::string>& peers) {
  const bool same_peers = peers.empty() || peers == peers_;
  if (same_peers && coordinator == coordinator_) return;
  coordinator_ = coordinator;
  if (!peers.empty()) peers_ = peers;
  const std::string text = absl::StrCat(coordinator, "\n", absl::StrJoin(peers_, "\n"));
  if (!shim::WriteFileAtomically(file_, text, false)) {
    LOG(WARNING) << "cannot write " << file_ << ": " << std::strerror(errno);
  }
}

absl::StatusOr<std::unique_ptr<Leases>> Leases::Start(Options options, EventLoop& loop,
                                                      GenerationTable& table, Send send) {
  if (options.peer_listen.empty()) {
    options.peer_listen = DefaultPeerListen(options.coordinator, options.security.tls);
  }
  auto leases = absl::WrapUnique(new Leases(std::move(options), loop, table, std::move(send)));
  const Options& with = leases->options_;
  if (with.peer_listen.empty()) return leases;
  ASSIGN_OR_RETURN(leases->server_,
                   PeerServer::Start({with.peer_listen, with.coordinator, with.security}, loop,
                                     [raw = leases.get()](const v1::LeaseQuestion& question) {
                                       raw->witness_.Ask(
                                           question, kFreshIntervals * raw->heartbeat_interval_);
                                     }));
  leases->peer_address_ = Reported(leases->server_->address());
  return leases;
}

Leases::Leases(Options options, EventLoop& loop, GenerationTable& table, Send send)
    : options_(std::move(options)),
      loop_(loop),
      table_(table),
      send_(std::move(send)),
      known_(options_.peers_file),
      promises_(ReadPromises(options_.promises_file), absl::StrCat("boot-", BootId()), BootNow(),
                [this](const v1::PromiseRecord& record) {
                  return WriteMessage(options_.promises_file, record, /*sync=*/true);
                }),
      keeper_(options_.node_name, MakeOutside(), BootNow()),
      witness_(options_.node_name, MakeWitnessOutside(), keeper_, promises_),
      client_(options_.coordinator, options_.security, loop) {
  loop_.RunAndWait([this] { probe_.emplace(loop_); });
}

Leases::~Leases() {
  server_.reset();
  loop_.RunAndWait([this] { probe_.reset(); });
}

LeaseKeeper::Outside Leases::MakeOutside() {
  LeaseKeeper::Outside outside;
  outside.held = [this] {
    std::vector<LeaseKeeper::Lease> held;
    for (const Generation* generation : table_.Live()) {
      const v1::Launch& launch = generation->launch();
      if (!launch.has_job_lease()) continue;
      held.push_back({generation->job_id(), generation->number(), FromProto(launch.job_lease()),
                      !spec::ContinuesWhenCutOff(launch.spec())});
    }
    return held;
  };
  outside.set_deadline = [this](const LeaseKeeper::Lease& lease, SteadyTime deadline) {
    Generation* const generation = table_.Find(lease.job_id, lease.generation);
    if (generation != nullptr) generation->SetLeaseDeadline(ToBootMs(deadline));
  };
  outside.end = [this](const LeaseKeeper::Lease& lease) {
    Generation* const generation = table_.Find(lease.job_id, lease.generation);
    if (generation == nullptr) return;
    generation->StopByWorker(
        "LeaseLost", "the coordinator declared these ranks lost, and the job may run elsewhere",
        absl::ZeroDuration(), /*abort=*/true);
  };
  outside.ask = [this](v1::LeaseQuestion question, absl::Duration patience,
                       PeerClient::Answered answered, PeerClient::Done done) {
    question.set_node_name(options_.node_name);
    question.set_incarnation(options_.incarnation);
    question.set_coordinator_address(known_.coordinator());
    options_.membership->Describe(question);
    client_.Ask(
        known_.peers(), question, patience,
        [this, answered = std::move(answered)](v1::PeerAnswer answer) {
          if (!options_.membership->Obeys(answer.coordinator())) answer.clear_coordinator();
          answered(answer);
        },
        std::move(done));
  };
  outside.probe = [this](absl::Duration patience, std::function<void()> done) {
    Probe(patience, [done = std::move(done)](std::optional<SteadyTime> refused) {
      if (refused.has_value()) done();
    });
  };
  outside.fence_set = [this]() -> const v1::FenceSet& { return promises_.fence_set(); };
  return outside;
}

LeaseWitness::Outside Leases::MakeWitnessOutside() {
  LeaseWitness::Outside outside;
  outside.now = BootNow;
  outside.address = [this] { return known_.coordinator(); };
  outside.forward = [this](const v1::LeaseQuestion& question) {
    v1::WorkerMessage message;
    *message.mutable_lease_question() = question;
    send_(std::move(message));
  };
  outside.probe = [this](std::function<void(std::optional<SteadyTime>)> done) {
    Probe(kProbePatience, std::move(done));
  };
  outside.answer = [this](uint64_t question, v1::PeerAnswer answer) {
    server_->Answer(question, std::move(answer));
  };
  return outside;
}

void Leases::OnWelcome(const v1::Welcome& welcome) {
  if (welcome.has_heartbeat_interval()) {
    heartbeat_interval_ = absl::Seconds(welcome.heartbeat_interval().seconds()) +
                          absl::Nanoseconds(welcome.heartbeat_interval().nanos());
  }
}

void Leases::OnAcknowledged(SteadyTime sent, const std::string& address,
                            const std::vector<std::string>& peers) {
  keeper_.OnAcknowledged(sent);
  known_.Set(address, peers);
}

void Leases::OnFenceSet(const v1::FenceSet& set) {
  const absl::Status stored = promises_.SetFenceSet(set);
  if (!stored.ok()) {
    LOG(ERROR) << "cannot store the fence set: " << stored;
    return;
  }
  v1::WorkerMessage message;
  message.set_fence_set_kept(set.id());
  send_(std::move(message));
}

void Leases::OnBans(const v1::Bans& bans) {
  absl::StatusOr<v1::BansKept> kept = promises_.Ban(bans, BootNow());
  if (!kept.ok()) {
    LOG(ERROR) << "cannot store bans, so the coordinator waits: " << kept.status();
    return;
  }
  v1::WorkerMessage message;
  *message.mutable_bans_kept() = *std::move(kept);
  send_(std::move(message));
}

void Leases::Probe(absl::Duration patience, std::function<void(std::optional<SteadyTime>)> done) {
  const SteadyTime sent = BootNow();
  const std::string address = options_.trusts_refusals ? known_.coordinator() : "";
  probe_->Start(address, patience, [sent, done = std::move(done)](bool refused) {
    done(refused ? std::optional(sent) : std::nullopt);
  });
}

void Leases::OnAnswer(const v1::LeaseAnswer& answer) {
  if (server_ == nullptr) return;
  v1::PeerAnswer forwarded;
  forwarded.set_node_name(options_.node_name);
  *forwarded.mutable_coordinator() = answer;
  server_->Answer(answer.id(), std::move(forwarded));
}

void Leases::Tick() { keeper_.Tick(BootNow()); }

int64_t Leases::DeadlineMs(const v1::Launch& launch) {
  if (!launch.has_job_lease() || spec::ContinuesWhenCutOff(launch.spec())) return 0;
  // The loop may have been blocked since the launch arrived.
  const SteadyTime acknowledged = options_.lines->acknowledged();
  if (acknowledged > keeper_.acknowledged()) keeper_.OnAcknowledged(acknowledged);
  return ToBootMs(keeper_.DeadlineFor(FromProto(launch.job_lease())));
}

}  // namespace muster::agent
