// Opens gRPC channels to the coordinator.
#ifndef MUSTER_WORKER_AGENT_SESSION_COORDINATOR_CHANNEL_H_
#define MUSTER_WORKER_AGENT_SESSION_COORDINATOR_CHANNEL_H_

#include <memory>
#include <string>
#include <utility>

#include "common/security/client_security.h"
#include "grpcpp/channel.h"
#include "proto/muster/v1/worker.grpc.pb.h"

namespace muster::agent {

// Each channel has its own connection, so that traffic on one does not delay another.
std::shared_ptr<grpc::Channel> OpenCoordinatorChannel(const std::string& address,
                                                      const security::ClientSecurity& security);

// A stub for several calls over one channel, which is opened again with the current certificates
// once a call has failed. Not thread-safe. A call must keep its stub until it is done, and must not
// release it on one of gRPC's threads.
class CoordinatorStub {
 public:
  CoordinatorStub(std::string address, security::ClientSecurity security)
      : address_(std::move(address)), security_(std::move(security)) {}

  std::shared_ptr<v1::WorkerService::Stub> Get() {
    if (stub_ == nullptr) {
      stub_ = v1::WorkerService::NewStub(OpenCoordinatorChannel(address_, security_));
    }
    return stub_;
  }
  // A call over `stub` has failed: later calls use a new channel.
  void Drop(const std::shared_ptr<v1::WorkerService::Stub>& stub) {
    if (stub == stub_) stub_.reset();
  }
  void Reset() { stub_.reset(); }

 private:
  const std::string address_;
  const security::ClientSecurity security_;
  std::shared_ptr<v1::WorkerService::Stub> stub_;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_SESSION_COORDINATOR_CHANNEL_H_
