#include "worker/agent/generation/store/master_endpoint.h"

#include <cerrno>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/status.h"
#include "glog/logging.h"
#include "worker/shim/fields.h"

namespace muster::agent {
namespace {

// The id of the worker's own call; ids of ranks' calls start at 1.
constexpr CallId kOwnCall = 0;

absl::StatusOr<MasterEndpoint> Reachable(const GenerationContext& context,
                                         const absl::StatusOr<std::string>& text) {
  if (!text.ok()) return text.status();
  ASSIGN_OR_RETURN(MasterEndpoint endpoint, DecodeMasterEndpoint(*text));
  RETURN_IF_ERROR(CheckReachable(endpoint, context.environment.address, context.network));
  return endpoint;
}

}  // namespace

std::string EncodeMasterEndpoint(const MasterEndpoint& endpoint) {
  return absl::StrCat(endpoint.address.ToString(), "\n", endpoint.network);
}

absl::StatusOr<MasterEndpoint> DecodeMasterEndpoint(absl::string_view text) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(text, absl::MaxSplits('\n', 1));
  MasterEndpoint endpoint;
  ASSIGN_OR_RETURN(endpoint.address, ParseAddress(parts.first));
  endpoint.network = std::string(parts.second);
  return endpoint;
}

absl::Status CheckReachable(const MasterEndpoint& endpoint, const std::string& own_address,
                            const std::string& own_network) {
  const std::string& master = endpoint.address.host;
  if (endpoint.network == own_network && !own_network.empty()) return absl::OkStatus();
  if (IsLoopback(master)) {
    return absl::FailedPreconditionError(
        absl::StrCat("rank 0's node is registered as ", master,
                     ", a loopback address that other machines cannot reach; start its worker with "
                     "--advertise=ADDR, an address at which the other nodes reach it"));
  }
  if (IsLoopback(own_address)) {
    return absl::FailedPreconditionError(
        absl::StrCat("this node is registered as ", own_address,
                     ", a loopback address that rank 0's node ", master,
                     " cannot reach; start this worker with --advertise=ADDR, an address at which "
                     "the other nodes reach it"));
  }
  return absl::OkStatus();
}

absl::StatusOr<MasterEndpoint> MasterPort::Hold() {
  ASSIGN_OR_RETURN(port_, HeldPort::Hold(0));
  MasterEndpoint endpoint;
  endpoint.address = {context_.environment.address, port_->port()};
  endpoint.network = context_.network;
  if (!shim::WriteFileAtomically(File(), EncodeMasterEndpoint(endpoint), false)) {
    return ErrnoStatus(errno, absl::StrCat("write ", File()));
  }
  return endpoint;
}

void MasterPort::HoldAgain() {
  const absl::StatusOr<MasterEndpoint> endpoint =
      DecodeMasterEndpoint(shim::ReadFile(File()).value_or(""));
  if (!endpoint.ok()) return;
  // The earlier worker may have ended before the coordinator received it.
  Publish(*endpoint);
  auto port = HeldPort::Hold(endpoint->address.port);
  // Usually fails because the job's program already listens on it.
  if (port.ok()) port_ = *std::move(port);
}

void MasterPort::Publish(const MasterEndpoint& endpoint) {
  if (launch_.node_count() < 2) return;
  rendezvous_.Put(launch_.ranks(0).rank(), kMasterKey, EncodeMasterEndpoint(endpoint), kOwnCall,
                  [job = launch_.job_id()](const absl::StatusOr<std::string>& answer) {
                    LOG_IF(WARNING, !answer.ok() && !absl::IsAborted(answer.status()))
                        << job << ": cannot publish the master endpoint: " << answer.status();
                  });
}

void MasterPort::Await(std::function<void(const absl::StatusOr<MasterEndpoint>&)> done) {
  // This object may be gone when the rendezvous ends.
  rendezvous_.Get(launch_.ranks(0).rank(), kMasterKey, kOwnCall,
                  [&context = context_, done = std::move(done)](
                      const absl::StatusOr<std::string>& text) { done(Reachable(context, text)); });
}

std::string MasterPort::File() const {
  return context_.directory->Generation(launch_.job_id(), launch_.generation()) + "/master";
}

}  // namespace muster::agent
