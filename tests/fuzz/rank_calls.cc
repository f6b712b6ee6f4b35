// Calls of every method that a worker offers its ranks, over its Unix socket, with any values in
// the requests: as a rank of the generation, whose token it has, or as a stranger.
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "fuzzer/FuzzedDataProvider.h"
#include "proto/muster/v1/rank.grpc.pb.h"
#include "tests/fuzz/call.h"
#include "tests/fuzz/check.h"
#include "tests/fuzz/edit_message.h"
#include "tests/fuzz/temporary_folder.h"
#include "worker/agent/agent.h"
#include "worker/agent/testing/scripted_coordinator.h"

namespace muster {
namespace {

constexpr int kMaxEdits = 12;
// All calls but reports wait: for ranks that do not come, and for answers that the coordinator does
// not give.
constexpr std::chrono::milliseconds kWait(20);
constexpr std::chrono::milliseconds kDeadline(20'000);
constexpr char kJob[] = "job-1";
constexpr uint32_t kRanks = 2;

// The rank of this node waits until this process ends; the other one is on a node that does not
// exist.
v1::CoordinatorMessage MakeLaunch() {
  v1::CoordinatorMessage message;
  v1::Launch& launch = *message.mutable_launch();
  launch.set_job_id(kJob);
  launch.set_generation(1);
  launch.set_world_size(kRanks);
  launch.set_node_count(kRanks);
  for (const std::string& word : {std::string("tail"), absl::StrCat("--pid=", getpid()),
                                  std::string("-f"), std::string("/dev/null")}) {
    launch.mutable_spec()->add_command(word);
  }
  v1::RankPlacement& placement = *launch.add_ranks();
  placement.add_slots(0);
  return message;
}

struct Node {
  Node() {
    agent::AgentOptions options;
    options.coordinator = coordinator.address();
    options.name = "node-a";
    options.data_dir = folder.Path("data");
    options.devices.slots = 1;
    options.shim_binary =
        std::filesystem::read_symlink("/proc/self/exe").parent_path() / "../../worker/muster-shim";
    auto started = agent::Agent::Start(options, [](const absl::Status&) {});
    fuzz::CheckOk(started.status(), "the worker starts");
    agent = *std::move(started);
    fuzz::Check(coordinator.WaitForSessions(1), "the worker registers");
    coordinator.Send(MakeLaunch());
    v1::RankReport report;
    fuzz::Check(
        coordinator.WaitForRank(
            kJob, 1, 0, [](const v1::RankReport& r) { return r.phase() >= v1::STARTED; }, &report),
        "the rank starts");
    std::ifstream file(absl::StrCat("/proc/", report.pid(), "/environ"));
    const std::string environment((std::istreambuf_iterator<char>(file)), {});
    for (absl::string_view variable : absl::StrSplit(environment, '\0')) {
      if (absl::ConsumePrefix(&variable, "MUSTER_RANK_TOKEN="))
        identity.set_token(std::string(variable));
      if (absl::ConsumePrefix(&variable, "MUSTER_WORKER_SOCKET=")) {
        channel = grpc::CreateChannel(std::string(variable), grpc::InsecureChannelCredentials());
      }
    }
    fuzz::Check(channel != nullptr && !identity.token().empty(), "the rank knows its worker");
    identity.set_job_id(kJob);
    identity.set_generation(1);
  }

  fuzz::TemporaryFolder folder;
  agent::ScriptedCoordinator coordinator;
  std::unique_ptr<agent::Agent> agent;
  std::shared_ptr<grpc::Channel> channel;
  v1::RankIdentity identity;
};

}  // namespace
}  // namespace muster

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster;
  static Node node;
  static const std::vector<std::string> words = {kJob, "key", "a", "1", node.identity.token()};
  FuzzedDataProvider input(data, size);
  const google::protobuf::ServiceDescriptor& service =
      *v1::JoinRequest::descriptor()->file()->service(0);
  const auto& method = *service.method(input.ConsumeIntegralInRange(0, service.method_count() - 1));
  const std::unique_ptr<google::protobuf::Message> message(
      google::protobuf::MessageFactory::generated_factory()
          ->GetPrototype(method.input_type())
          ->New());
  const bool is_rank = input.ConsumeBool();
  for (int n = input.ConsumeIntegralInRange(0, kMaxEdits); n > 0; --n) {
    fuzz::EditMessage(input, words, *message);
  }
  if (is_rank) {
    const auto* const field = message->GetDescriptor()->FindFieldByName("identity");
    message->GetReflection()->MutableMessage(message.get(), field)->CopyFrom(node.identity);
  }
  const bool waits = method.name() != "Report";
  const grpc::Status status =
      fuzz::Call(node.channel, method, {message->SerializeAsString()}, waits ? kWait : kDeadline);
  const grpc::StatusCode code = status.error_code();
  fuzz::Check(code != grpc::StatusCode::INTERNAL && code != grpc::StatusCode::UNKNOWN &&
                  code != grpc::StatusCode::UNAVAILABLE &&
                  (waits || code != grpc::StatusCode::DEADLINE_EXCEEDED),
              "calls end with an error that names the problem of the request",
              absl::StrCat(method.name(), ": ", code, " ", status.error_message()));
  fuzz::Check(code != grpc::StatusCode::UNAUTHENTICATED || !is_rank,
              "the rank is known by its token", status.error_message());
  return 0;
}
