// Messages of workers and requests of clients to the coordinator's core, after the checks of the
// service. The harness compares the core with one loaded from its records after each step.
#include "coordinator/core/core.h"

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/core/testing/harness.h"
#include "coordinator/service/checks/quarantine.h"
#include "coordinator/service/checks/validate.h"
#include "fuzzer/FuzzedDataProvider.h"
#include "gtest/gtest.h"
#include "spec/spec.h"
#include "tests/fuzz/check.h"
#include "tests/fuzz/edit_message.h"

namespace muster {
namespace {

using namespace core;
using testing::Harness;

constexpr int kMaxSteps = 32;
constexpr size_t kMaxJobs = 8;

class Cluster {
 public:
  explicit Cluster(FuzzedDataProvider& input) : input_(input) {
    for (const char* node : {"node1", "node2"}) Welcome(harness_.MakeHello(node, 2));
    harness_.BringUp(AddJob(testing::MakeSpec(2)));
    AddJob(testing::MakeCommandSpec(1));
  }

  void Step() {
    switch (input_.ConsumeIntegralInRange(0, 9)) {
      case 0:
        return Submit();
      case 1:
        return ChangeJob();
      case 2:
        return ChangeNode();
      case 3:
        return SendHello();
      case 4:
        return CloseStream();
      case 5:
        harness_.Advance(absl::Milliseconds(input_.ConsumeIntegralInRange(1, 60'000)));
        return Apply(Tick{});
      case 6:
        open_.clear();
        return harness_.Restart();
      default:
        return SendMessage();
    }
  }

 private:
  std::string AddJob(const v1::JobSpec& spec) {
    jobs_.push_back(harness_.Submit(spec));
    words_.push_back(jobs_.back());
    return jobs_.back();
  }
  const std::string& Job() {
    return jobs_[input_.ConsumeIntegralInRange<size_t>(0, jobs_.size() - 1)];
  }
  std::string Node() { return input_.ConsumeBool() ? "node1" : "node2"; }
  bool IsKnown(const std::string& job) {
    return harness_.core().GetJob(JobId(job), /*detailed=*/false, harness_.now()).ok();
  }
  void Edit(google::protobuf::Message& message) {
    for (int n = input_.ConsumeIntegralInRange(0, 4); n > 0; --n)
      fuzz::EditMessage(input_, words_, message);
  }
  void Apply(const Event& event) { NoteClosed(harness_.Step(event)); }
  void NoteClosed(const Effects& effects) {
    for (const CloseSession& close : effects.closes) {
      std::erase_if(
          open_, [&](const std::string& node) { return harness_.session(node) == close.session; });
    }
  }

  void Submit() {
    v1::SubmitJobRequest request;
    *request.mutable_spec() =
        input_.ConsumeBool() ? testing::MakeSpec(1) : testing::MakeCommandSpec(1, 2);
    if (request.spec().has_train()) {
      v1::TrainSpec& train = *request.mutable_spec()->mutable_train();
      train.mutable_model()->set_name("small_cnn");
      train.mutable_dataset()->set_name("fashion_mnist");
      train.mutable_dataset()->set_path("/data");
      train.set_epochs(1);
    }
    Edit(request);
    spec::ApplyDefaults(*request.mutable_spec());
    const bool valid = service::ValidateSubmit(request).ok() &&
                       spec::Validate(request.spec()).ok() && !request.spec().has_array();
    if (!valid || jobs_.size() >= kMaxJobs) return;
    const absl::StatusOr<v1::Job> job = harness_.TrySubmit(request.spec());
    if (job.ok()) jobs_.push_back(job->job_id());
  }

  void ChangeJob() {
    const std::string job = Job();
    const RequestId request(1'000'000 + next_request_++);
    switch (input_.ConsumeIntegralInRange(0, 5)) {
      case 0:
        return Apply(CancelJob{request, job, absl::Seconds(input_.ConsumeIntegralInRange(0, 100))});
      case 1:
        return Apply(HoldJob{request, job});
      case 2:
        return Apply(ReleaseJob{request, job});
      case 3:
        return Apply(RequeueJob{request, job});
      case 4:
        return Apply(CheckpointJob{request, job});
      default:
        return Apply(RemoveJob{request, job});
    }
  }

  void ChangeNode() {
    const NodeName node(Node());
    const RequestId request(1'000'000 + next_request_++);
    switch (input_.ConsumeIntegralInRange(0, 5)) {
      case 0:
        return Apply(CordonNode{node, "reason", input_.ConsumeBool()});
      case 1:
        return Apply(UncordonNode{node});
      case 2:
        return Apply(TestNode{request, node});
      case 3:
        return Apply(RemoveNode{request, node});
      case 4:
        return Apply(ConfirmNodeLost{request, node});
      default:
        return Apply(RecoverJobs{request, {node}, input_.ConsumeBool()});
    }
  }

  void SendHello() {
    v1::Hello hello = harness_.MakeHello(Node(), input_.ConsumeIntegralInRange(0, 3),
                                         input_.ConsumeIntegralInRange(1, 3));
    Edit(hello);
    if (!service::ValidateHello(hello).ok()) return;
    service::Quarantine(hello);
    if (open_.count(hello.node_name()) == 0 || input_.ConsumeBool()) Welcome(hello);
  }
  void Welcome(const v1::Hello& hello) {
    const Effects effects = harness_.Open(hello);
    open_.insert(hello.node_name());
    words_.push_back(hello.node_name());
    if (!effects.closes.empty()) NoteRefused(hello.node_name(), effects);
  }
  // Open keeps the sessions that were not refused only.
  void NoteRefused(const std::string& node, const Effects& effects) {
    open_.erase(node);
    NoteClosed(effects);
  }

  void CloseStream() {
    const std::string node = Node();
    if (open_.erase(node) != 0) NoteClosed(harness_.CloseStream(node));
  }

  void SendMessage() {
    const std::string node = Node();
    if (open_.count(node) == 0) return;
    v1::WorkerMessage message;
    const std::string& job = Job();
    if (input_.ConsumeBool() && IsKnown(job)) {
      v1::RankReport rank =
          Harness::MakeReport(input_.ConsumeIntegralInRange(0, 2),
                              static_cast<v1::RankPhase>(input_.ConsumeIntegralInRange(1, 6)));
      if (rank.phase() == v1::EXITED)
        *rank.mutable_exit() = testing::ExitWith(input_.ConsumeIntegralInRange(0, 1));
      *message.mutable_report() = harness_.MakeInventory(job, {rank});
    } else {
      message.mutable_heartbeat();
    }
    Edit(message);
    service::Quarantined quarantined = service::Quarantine(message);
    Apply(SessionMessage{harness_.session(node), std::move(message),
                         std::move(quarantined.corrections)});
  }

  FuzzedDataProvider& input_;
  Harness harness_;
  std::vector<std::string> jobs_;
  std::vector<std::string> words_ = {"world", "small_cnn", "a", "1"};
  std::set<std::string> open_;  // nodes with a session
  uint64_t next_request_ = 0;
};

}  // namespace
}  // namespace muster

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  GTEST_FLAG_SET(break_on_failure, true);
  FuzzedDataProvider input(data, size);
  muster::Cluster cluster(input);
  for (int i = 0; i < muster::kMaxSteps && input.remaining_bytes() > 0; ++i) cluster.Step();
  return 0;
}
