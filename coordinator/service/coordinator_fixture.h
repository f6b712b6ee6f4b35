// A whole coordinator on loopback for tests, and a worker that is nothing but its session's
// messages.
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

// The deadline of every call that a test makes: only a failing test waits for it.
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

// A worker's session, driven by hand. One thread.
class RawWorker {
 public:
  explicit RawWorker(const std::shared_ptr<grpc::Channel>& channel);
  ~RawWorker();

  // With two CPU slots.
  static v1::Hello HelloOf(const std::string& name, uint64_t incarnation = 1);
  void SendHello(const v1::Hello& hello);
  bool Send(const v1::WorkerMessage& message) { return stream_->Write(message); }
  // Reports one phase of all of `launch`'s ranks.
  void Report(const v1::Launch& launch, v1::RankPhase phase, int exit_code = 0);

  // The next message of this kind; others are passed over. A test failure and an empty one at the
  // stream's end.
  v1::CoordinatorMessage Next(v1::CoordinatorMessage::KindCase kind);
  // Reads to the end.
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
  // Submits a command job of one node with two ranks; returns its id.
  std::string Submit(const std::string& name);
  v1::Job Get(const std::string& job);
  // A worker that has been welcomed.
  std::unique_ptr<RawWorker> Connect(const std::string& name);
  // Until `condition` holds: asks the coordinator something in between.
  void AwaitCondition(const std::function<bool()>& condition);
  // Until the job is in `state`, by its watch.
  v1::Job AwaitState(const std::string& job, v1::JobState state);

  store::MemoryStore store_;
  std::unique_ptr<Coordinator> coordinator_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::ClusterService::Stub> cluster_;
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_COORDINATOR_FIXTURE_H_
