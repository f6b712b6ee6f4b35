// Serves PeerService: receives other workers' questions about their leases.
#ifndef MUSTER_WORKER_AGENT_LEASE_PEER_SERVER_H_
#define MUSTER_WORKER_AGENT_LEASE_PEER_SERVER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/http/address.h"
#include "common/security/client_security.h"
#include "proto/muster/v1/worker.pb.h"
#include "worker/agent/event_loop.h"

namespace muster::agent {

// Must be created and destroyed outside the loop.
class PeerServer {
 public:
  struct Options {
    std::string listen;       // HOST:PORT
    std::string coordinator;  // address whose token callers must have
    // With a certificate, the server uses TLS; with a CA as well, it requires a client certificate,
    // which takes the place of the token.
    security::ClientSecurity security;
  };
  // Called on the loop for each question, whose id is unique. Answer must be called with the same
  // id, unless the caller loses patience before.
  using Ask = std::function<void(const v1::LeaseQuestion& question)>;

  // Errors: those of the address, ALREADY_EXISTS for one in use. The loop must outlive the server.
  static absl::StatusOr<std::unique_ptr<PeerServer>> Start(const Options& options, EventLoop& loop,
                                                           Ask ask);
  // Ends the calls in progress.
  virtual ~PeerServer() = default;

  // Answers the question with this id, if it is still open. Must be called on the loop.
  virtual void Answer(uint64_t id, v1::PeerAnswer answer) = 0;

  // The listening address, with the actual port.
  virtual const Address& address() const = 0;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_LEASE_PEER_SERVER_H_
