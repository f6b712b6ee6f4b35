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
#include "common/status.h"
#include "glog/logging.h"
#include "worker/agent/lease/boot_time.h"
#include "worker/shim/fields.h"

namespace muster::agent {
namespace {

// Heartbeat intervals since the newest acknowledged heartbeat was sent, after which this worker
// forwards no questions: one until the next, and one for that one's acknowledgement.
constexpr int kFreshIntervals = 2;

int64_t ToMs(SteadyTime deadline) {
  return std::max<int64_t>(1, absl::ToInt64Milliseconds(deadline.since_start()));
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

absl::StatusOr<std::unique_ptr<Leases>> Leases::Start(Options options, EventLoop& loop,
                                                      GenerationTable& table, Send send) {
  if (options.peer_listen.empty()) {
    options.peer_listen = DefaultPeerListen(options.coordinator, options.security.tls);
  }
  auto leases = absl::WrapUnique(new Leases(std::move(options), loop, table, std::move(send)));
  leases->ReadPeers();
  const Options& with = leases->options_;
  if (with.peer_listen.empty()) return leases;
  ASSIGN_OR_RETURN(leases->server_,
                   PeerServer::Start({with.peer_listen, with.coordinator, with.security}, loop,
                                     [raw = leases.get()](const v1::LeaseQuestion& question) {
                                       return raw->Forward(question);
                                     }));
  leases->peer_address_ = Reported(leases->server_->address());
  return leases;
}

Leases::Leases(Options options, EventLoop& loop, GenerationTable& table, Send send)
    : options_(std::move(options)),
      table_(table),
      send_(std::move(send)),
      keeper_(MakeOutside(), BootNow()),
      client_(options_.coordinator, options_.security, loop) {}

LeaseKeeper::Outside Leases::MakeOutside() {
  LeaseKeeper::Outside outside;
  outside.held = [this] {
    std::vector<LeaseKeeper::Lease> held;
    for (const Generation* generation : table_.Live()) {
      if (generation->job_lease() <= absl::ZeroDuration()) continue;
      held.push_back({generation->job_id(), generation->number(), generation->job_lease()});
    }
    return held;
  };
  outside.set_deadline = [this](const LeaseKeeper::Lease& lease, SteadyTime deadline) {
    Generation* const generation = table_.Find(lease.job_id, lease.generation);
    if (generation != nullptr) generation->SetLeaseDeadline(ToMs(deadline));
  };
  outside.end = [this](const LeaseKeeper::Lease& lease) {
    table_.End(lease.job_id, lease.generation, "LeaseLost",
               "the coordinator declared these ranks lost, and the job may run elsewhere");
  };
  outside.ask = [this](v1::LeaseQuestion question, absl::Duration patience, PeerClient::Done done) {
    question.set_node_name(options_.node_name);
    question.set_incarnation(options_.incarnation);
    options_.membership->Describe(question);
    client_.Ask(peers_, question, patience,
                [this, done = std::move(done)](std::optional<v1::LeaseAnswer> answer) {
                  if (answer.has_value() && !options_.membership->Obeys(*answer)) answer.reset();
                  done(std::move(answer));
                });
  };
  return outside;
}

void Leases::OnWelcome(const v1::Welcome& welcome) {
  if (welcome.has_heartbeat_interval()) {
    heartbeat_interval_ = absl::Seconds(welcome.heartbeat_interval().seconds()) +
                          absl::Nanoseconds(welcome.heartbeat_interval().nanos());
  }
}

void Leases::OnAcknowledged(SteadyTime sent, const std::vector<std::string>& peers) {
  keeper_.OnAcknowledged(sent);
  SetPeers(peers);
}

bool Leases::Forward(const v1::LeaseQuestion& question) {
  if (BootNow() - keeper_.acknowledged() > kFreshIntervals * heartbeat_interval_) return false;
  v1::WorkerMessage message;
  *message.mutable_lease_question() = question;
  send_(std::move(message));
  return true;
}

void Leases::OnAnswer(const v1::LeaseAnswer& answer) {
  if (server_ != nullptr) server_->OnAnswer(answer);
}

void Leases::Tick() { keeper_.Tick(BootNow()); }

int64_t Leases::DeadlineMs(absl::Duration job_lease) const {
  return job_lease > absl::ZeroDuration() ? ToMs(keeper_.DeadlineFor(job_lease)) : 0;
}

void Leases::ReadPeers() {
  const std::optional<std::string> text = shim::ReadFile(options_.peers_file);
  if (text.has_value()) peers_ = absl::StrSplit(*text, '\n', absl::SkipEmpty());
}

void Leases::SetPeers(const std::vector<std::string>& peers) {
  if (peers.empty() || peers == peers_) return;
  peers_ = peers;
  if (!shim::WriteFileAtomically(options_.peers_file, absl::StrJoin(peers_, "\n"), false)) {
    LOG(WARNING) << "cannot write " << options_.peers_file << ": " << std::strerror(errno);
  }
}

}  // namespace muster::agent
