#include "worker/agent/generation/store/master_endpoint.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/status.h"

namespace muster::agent {
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

}  // namespace muster::agent
