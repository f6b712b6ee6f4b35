#include "worker/agent/session/coordinator_client.h"

#include <utility>

#include "common/network/network.h"
#include "common/status.h"
#include "common/time/now.h"
#include "glog/logging.h"
#include "worker/agent/storage/data_directory.h"

namespace muster::agent {

CoordinatorClient::CoordinatorClient(Context context)
    : context_(std::move(context)),
      session_(context_.coordinator, context_.loop, context_.board, MakeEvents(),
               context_.security) {}

void CoordinatorClient::Send(v1::WorkerMessage message) {
  if (stopping_ || context_.membership.in_conflict()) return;
  session_.Send(std::move(message));
}

void CoordinatorClient::Leave() {
  leaving_ = true;
  v1::WorkerMessage message;
  message.mutable_leaving();
  Send(std::move(message));
}

void CoordinatorClient::Tick() {
  // Without ranks there is no conflict.
  if (context_.membership.in_conflict() && context_.status.session_up.load() &&
      !context_.table.HasLiveRanks()) {
    session_.Reconnect();
  }
}

void CoordinatorClient::BeginShutdown() {
  stopping_ = true;
  context_.self_tester.reset();
}

Session::Events CoordinatorClient::MakeEvents() {
  Session::Events events;
  events.hello = [this] { return MakeHello(); };
  events.on_welcome = [this](const v1::Welcome& welcome) { OnWelcome(welcome); };
  events.on_message = [this](const v1::CoordinatorMessage& message) { OnMessage(message); };
  events.on_acknowledged = [this](const Session::Acknowledgement& acknowledged) {
    // Only the coordinator of the ranks extends their leases.
    if (stopping_ || context_.membership.in_conflict()) return;
    if (context_.membership.IsOutdated(acknowledged.term)) return;
    context_.leases.OnAcknowledged(acknowledged.sent, acknowledged.address, acknowledged.peers);
  };
  events.on_arrival = [this](const v1::CoordinatorMessage& message, SteadyTime sent) {
    if (message.has_stop())
      context_.lease_lines.Hold(message.stop().job_id(), message.stop().generation());
    if (message.has_heartbeat_ack() && extends_leases_) context_.lease_lines.OnAcknowledged(sent);
  };
  events.on_lost = [this](const absl::Status&) {
    extends_leases_ = false;
    context_.lease_lines.ReleaseAll();
    context_.status.session_up = false;
    if (!stopping_) {
      context_.logs.CloseAll();
      context_.transfers.CloseAll();
    }
    context_.table.stops().OnCoordinatorLost();
  };
  events.on_refused = [this](const absl::Status& status) {
    context_.on_failure(Annotate(status, "the coordinator rejected this worker; not retrying"));
  };
  events.retries_refused = [this](const absl::Status& status) {
    if (!context_.table.HasLiveRanks()) return false;
    context_.membership.OnRefused(status);
    context_.status.in_conflict = context_.membership.in_conflict();
    return true;
  };
  events.on_heartbeat_ack = [this](const v1::HeartbeatAck& ack) {
    context_.membership.OnHeartbeatAck(ack, Now().steady);
  };
  return events;
}

v1::Hello CoordinatorClient::MakeHello() {
  v1::Hello hello = context_.hello;
  for (v1::Slot& slot : context_.devices.ReportSlots()) *hello.add_slots() = std::move(slot);
  hello.set_cpu_count(CpuCount());
  hello.set_memory_bytes(MemoryBytes());
  for (v1::GenerationReport& report : context_.table.Inventory()) {
    *hello.add_inventory() = std::move(report);
  }
  hello.set_fence_set(context_.leases.fence_set());
  context_.membership.Describe(!hello.inventory().empty(), hello);
  return hello;
}

void CoordinatorClient::OnWelcome(const v1::Welcome& welcome) {
  const std::string address = context_.hello.advertise_address().empty()
                                  ? welcome.observed_address()
                                  : context_.hello.advertise_address();
  LOG(INFO) << "session opened with the coordinator " << context_.coordinator << " (version "
            << welcome.software_version() << "), reached at " << address;
  context_.status.session_up = true;
  ++context_.status.sessions_total;
  context_.membership.OnWelcome(welcome, context_.table.HasLiveRanks());
  context_.status.in_conflict = context_.membership.in_conflict();
  if (context_.membership.in_conflict()) return;
  extends_leases_ = !context_.membership.IsOutdated(welcome.term());
  // Resolving an advertised name can be slow: do it only once.
  if (address != address_) interface_ = InterfaceOf(address);
  address_ = address;
  if (!stopping_) context_.leases.OnWelcome(welcome);
  context_.table.SetAddress(address_, interface_);
  context_.table.stops().OnCoordinatorConnected();
  context_.table.Resend();
  if (leaving_) Leave();
}

void CoordinatorClient::OnMessage(const v1::CoordinatorMessage& message) {
  if (message.has_send_job_records()) return SendJobRecords();
  if (message.has_join_cluster()) {
    extends_leases_ = false;
    context_.membership.OnJoinCluster(message.join_cluster());
    if (!stopping_) session_.Reconnect();
    return;
  }
  if (context_.membership.in_conflict()) return;
  switch (message.kind_case()) {
    case v1::CoordinatorMessage::kLaunch:
      if (context_.membership.IsOutdated(message.launch().term())) return;
      return context_.table.OnMessage(message);
    case v1::CoordinatorMessage::kStop:
      context_.table.OnMessage(message);
      return context_.lease_lines.Release(message.stop().job_id(), message.stop().generation());
    case v1::CoordinatorMessage::kForget:
      context_.table.OnMessage(message);
      if (message.forget().delete_files()) DeleteFiles(message.forget().job_id());
      if (message.forget().job_ended() &&
          context_.table.NewestGeneration(message.forget().job_id()) == 0) {
        context_.sweeper.DiscardMemory(message.forget().job_id());
      }
      return;
    case v1::CoordinatorMessage::kWorld:
    case v1::CoordinatorMessage::kKeyValue:
    case v1::CoordinatorMessage::kReleaseBarrier:
    case v1::CoordinatorMessage::kWaitNotice:
    case v1::CoordinatorMessage::kInspect:
    case v1::CoordinatorMessage::kCheckpoint:
      return context_.table.OnMessage(message);
    case v1::CoordinatorMessage::kOpenLog:
    case v1::CoordinatorMessage::kCloseLog:
    case v1::CoordinatorMessage::kOpenExec:
    case v1::CoordinatorMessage::kOpenFiles:
    case v1::CoordinatorMessage::kCloseTransfer:
    case v1::CoordinatorMessage::kLeaseAnswer:
    case v1::CoordinatorMessage::kFenceSet:
    case v1::CoordinatorMessage::kBans:
    case v1::CoordinatorMessage::kSelfTest:
      if (!stopping_) Serve(message);
      return;
    case v1::CoordinatorMessage::kSendJobRecords:
    case v1::CoordinatorMessage::kJoinCluster:
    case v1::CoordinatorMessage::kWelcome:
    case v1::CoordinatorMessage::kHeartbeatAck:
    case v1::CoordinatorMessage::KIND_NOT_SET:
      return;
  }
}

void CoordinatorClient::Serve(const v1::CoordinatorMessage& message) {
  switch (message.kind_case()) {
    case v1::CoordinatorMessage::kOpenLog:
      return OpenLog(message.open_log());
    case v1::CoordinatorMessage::kCloseLog:
      return context_.logs.Close(message.close_log().transfer());
    case v1::CoordinatorMessage::kOpenExec:
      return OpenExec(message.open_exec());
    case v1::CoordinatorMessage::kOpenFiles:
      return context_.transfers.OpenFiles(message.open_files());
    case v1::CoordinatorMessage::kCloseTransfer:
      return context_.transfers.Close(message.close_transfer().transfer());
    case v1::CoordinatorMessage::kLeaseAnswer:
      return context_.leases.OnAnswer(message.lease_answer());
    case v1::CoordinatorMessage::kFenceSet:
      return context_.leases.OnFenceSet(message.fence_set());
    case v1::CoordinatorMessage::kBans:
      return context_.leases.OnBans(message.bans());
    case v1::CoordinatorMessage::kSelfTest:
      return context_.self_tester->Run(message.self_test().id(), context_.devices.CheckGpus(),
                                       [this](v1::SelfTestReport report) {
                                         v1::WorkerMessage answer;
                                         *answer.mutable_self_test() = std::move(report);
                                         Send(std::move(answer));
                                       });
    default:
      return;
  }
}

void CoordinatorClient::SendJobRecords() {
  if (stopping_) return;
  for (v1::JobRecords& records : context_.table.Records()) {
    v1::WorkerMessage message;
    *message.mutable_job_records() = std::move(records);
    session_.Send(std::move(message));
  }
}

void CoordinatorClient::OpenLog(v1::OpenLog open) {
  v1::ReadLogRequest& request = *open.mutable_request();
  if (request.generation() == 0) {
    request.set_generation(context_.table.NewestGeneration(request.job_id()));
  }
  Generation* const generation = context_.table.Find(request.job_id(), request.generation());
  context_.logs.Open(open, generation != nullptr && generation->ranks().IsLive(request.rank()));
}

void CoordinatorClient::OpenExec(const v1::OpenExec& open) {
  Generation* const generation = context_.table.Find(open.job_id(), open.generation());
  context_.transfers.OpenExec(
      open, generation != nullptr && generation->ranks().IsLive(open.start().rank()));
}

void CoordinatorClient::DeleteFiles(const std::string& job_id) {
  const absl::Status valid = CheckJobId(job_id);
  if (!valid.ok() || context_.table.NewestGeneration(job_id) != 0) {
    LOG(WARNING) << "not deleting the files of " << job_id << ": "
                 << (valid.ok() ? "it has ranks on this node" : valid.message());
    return;
  }
  context_.sweeper.DeleteFiles(job_id);
}

}  // namespace muster::agent
