// Test fixture: a complete coordinator on loopback, and a worker that only sends and receives
// session messages.
#ifndef MUSTER_COORDINATOR_SERVICE_COORDINATOR_FIXTURE_H_
#define MUSTER_COORDINATOR_SERVICE_COORDINATOR_FIXTURE_H_

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "coordinator/service/coordinator.h"
#include "coordinator/store/memory_store.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "proto/muster/v1/cluster.grpc.pb.h"
#include "proto/muster/v1/worker.grpc.pb.h"

namespace muster::service {

// The deadline of all calls in tests; only a failing test waits for it.
inline std::chrono::system_clock::time_point TestDeadline() {
  return std::chrono::system_clock::now() + std::chrono::seconds(20);
}

// Calls a unary method: Call(stub, &Stub::GetJob, request, response).
template <typename Stub, typename Method, typename Request, typename Response>
grpc::Status Call(Stub& stub, Method method, const Request& request, Response* response) {
  grpc::ClientContext context;
  context.set_deadline(TestDeadline());
  return (stub.*method)(&context, request, response);
}

// A manually driven worker session. Not thread-safe.
class RawWorker {
 public:
  explicit RawWorker(const std::shared_ptr<grpc::Channel>& channel);
  ~RawWorker();

  // Returns a Hello with two CPU slots.
  static v1::Hello HelloOf(const std::string& name, uint64_t incarnation = 1);
  void SendHello(const v1::Hello& hello);
  bool Send(const v1::WorkerMessage& message) { return stream_->Write(message); }
  // Reports `phase` for all ranks of `launch`.
  void Report(const v1::Launch& launch, v1::RankPhase phase, int exit_code = 0);

  // Returns the next message of this kind and skips others. If the stream ends first, fails the
  // test and returns an empty message.
  v1::CoordinatorMessage Next(v1::CoordinatorMessage::KindCase kind);
  // Reads to the end of the stream and returns its status.
  grpc::Status Finish();
  void Cancel() { context_.TryCancel(); }

  v1::WorkerService::Stub& stub() { return *stub_; }

 private:
  std::unique_ptr<v1::WorkerService::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::WorkerMessage, v1::CoordinatorMessage>> stream_;
  bool finished_ = false;
};

class CoordinatorFixture : public ::testing::Test {
 protected:
  void SetUp() override { StartCoordinator(); }
  void StartCoordinator();
  void StopCoordinator() { coordinator_.reset(); }

  static v1::SubmitJobRequest SubmitRequest(const std::string& name);
  // Submits a command job with one node and two ranks; returns its id.
  std::string Submit(const std::string& name);
  v1::Job Get(const std::string& job);
  // Returns a worker that has received its Welcome.
  std::unique_ptr<RawWorker> Connect(const std::string& name);
  // Polls until `condition` holds, with a call to the coordinator in between.
  void AwaitCondition(const std::function<bool()>& condition);
  // Watches the job until it is in `state`.
  v1::Job AwaitState(const std::string& job, v1::JobState state);

  store::MemoryStore store_;
  std::unique_ptr<Coordinator> coordinator_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::ClusterService::Stub> cluster_;
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_COORDINATOR_FIXTURE_H_
