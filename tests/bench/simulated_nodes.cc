#include "tests/bench/simulated_nodes.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "collectives/nccl/unique_ids.h"
#include "common/grpc/channel.h"
#include "common/grpc/status.h"
#include "common/security/client_security.h"
#include "common/time/now.h"
#include "common/time/proto_time.h"
#include "common/version.h"
#include "proto/muster/v1/worker.grpc.pb.h"

namespace muster::bench {
namespace {

using collectives::kRanksPerNcclRoot;
using collectives::NcclIdsKey;
using collectives::NcclRootIdKey;
using collectives::NcclRootRank;

constexpr char kUniqueIdKey[] = "unique-id/WORLD/0";
constexpr size_t kUniqueIdBytes = 128;
constexpr char kBarrierGroup[] = "world";
// Delay after which a worker reports the ranks that have arrived at a barrier without the others.
constexpr absl::Duration kFoldDelay = absl::Milliseconds(200);
constexpr int64_t kFirstPid = 100000;

const char* Name(Milestone milestone) {
  switch (milestone) {
    case Milestone::kWelcomed:
      return "were welcomed";
    case Milestone::kLaunched:
      return "received Launch";
    case Milestone::kWorld:
      return "received World";
    case Milestone::kUniqueId:
      return "received the unique id";
    case Milestone::kStopped:
      return "received StopGeneration";
  }
  return "";
}

gpr_timespec ToDeadline(SteadyTime time) {
  if (time == SteadyTime::Infinite()) return gpr_inf_future(GPR_CLOCK_MONOTONIC);
  const int64_t wait_ns = absl::ToInt64Nanoseconds(time - Now().steady);
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_nanos(wait_ns, GPR_TIMESPAN));
}

// The coordinator's token, read once, so that the measurement excludes each node's read of the
// file.
security::ClientSecurity FindSecurity(const std::string& coordinator) {
  security::ClientSecurity security;
  const auto token = security::FindToken(security, coordinator);
  if (token.ok()) security.token = token->token;
  return security;
}

// Opens a separate connection, as a worker does.
std::shared_ptr<grpc::Channel> OpenConnection(const std::string& coordinator,
                                              const security::ClientSecurity& security) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  return OpenChannel(coordinator, std::move(arguments), security);
}

}  // namespace

// A stream and its node's state of the current job. Guarded by the owner's lock.
class SimulatedNodes::Node {
 public:
  enum Event { kStarted, kRead, kWritten, kFinished };
  // Completion queue tag of an operation.
  struct Tag {
    Node* node;
    Event event;
  };

  Node(SimulatedNodes& owner, uint32_t index) : owner_(owner), index_(index) {}

  void Connect(const std::shared_ptr<grpc::Channel>& channel) {
    stub_ = v1::WorkerService::NewStub(channel);
    Open();
  }
  void Cancel() { context_->TryCancel(); }
  bool finished() const { return finished_; }

  void OnEvent(Event event, bool ok) {
    switch (event) {
      case kStarted:
        if (!ok) return Finish();
        writing_ = false;
        SayHello();
        return stream_->Read(&incoming_, &tags_[kRead]);
      case kRead:
        if (!ok) return Finish();
        OnMessage();
        if (!finishing_) stream_->Read(&incoming_, &tags_[kRead]);
        return;
      case kWritten:
        writing_ = false;
        outgoing_.pop_front();
        if (finished_) return Reopen();
        if (ok) WriteOn();
        return;
      case kFinished:
        finished_ = true;
        owner_.mutex_.AssertHeld();
        if (owner_.options_.reconnect) return Reopen();
        return owner_.Failed(FromGrpcStatus(status_));
    }
  }

  void ExpectJob() {
    launch_.Clear();
    has_unique_id_ = false;
    barrier_ = 0;
  }

  void SendHeartbeat(uint64_t sequence) {
    if (!welcomed_) return;
    if (!heartbeat_sent_.has_value()) heartbeat_sent_ = Now().steady;
    v1::WorkerMessage message;
    message.mutable_heartbeat()->set_sequence(sequence);
    Send(std::move(message));
  }

  // When the oldest heartbeat without an acknowledgement was sent.
  std::optional<SteadyTime> heartbeat_sent() const { return heartbeat_sent_; }

  bool HasRank(uint32_t rank) const {
    return std::any_of(launch_.ranks().begin(), launch_.ranks().end(),
                       [rank](const v1::RankPlacement& own) { return own.rank() == rank; });
  }

  // Arrives at the next barrier with all ranks except `silent`.
  void Arrive(std::optional<uint32_t> silent) {
    v1::WorkerMessage message;
    v1::ArriveBarrier& arrive = *message.mutable_arrive_barrier();
    arrive.set_job_id(launch_.job_id());
    arrive.set_generation(launch_.generation());
    arrive.mutable_barrier()->set_group(kBarrierGroup);
    arrive.mutable_barrier()->set_sequence(++barrier_);
    for (const v1::RankPlacement& rank : launch_.ranks()) {
      if (rank.rank() != silent) arrive.add_ranks(rank.rank());
    }
    arrived_ = Now().steady;
    if (!arrive.ranks().empty()) Send(std::move(message));
  }

  // Puts the ids of `group` that its ranks create, and requests all of them.
  void RequestNcclIds(const std::string& group) {
    nccl_group_ = group;
    nccl_ids_.clear();
    has_nccl_ids_ = false;
    Get(NcclIdsKey(group));
    for (uint32_t root = 0; root < owner_.NcclRoots(); ++root) {
      if (!HasRank(NcclRootRank(root, owner_.NcclRoots(), owner_.ranks()))) continue;
      if (root == 0) {
        gathers_nccl_ids_ = true;
        nccl_ids_.resize(owner_.NcclRoots());
        for (uint32_t other = 1; other < owner_.NcclRoots(); ++other) {
          Get(NcclRootIdKey(group, other));
        }
        GatherNcclId(0, std::string(kUniqueIdBytes, 'i'));
      } else {
        Put(NcclRootIdKey(group, root), std::string(kUniqueIdBytes, 'i'));
      }
    }
  }

 private:
  void Open() {
    stream_.reset();  // it lies in memory of the context's call
    context_ = std::make_unique<grpc::ClientContext>();
    context_->set_wait_for_ready(owner_.options_.reconnect);
    stream_ = stub_->PrepareAsyncSession(context_.get(), &owner_.queue_);
    outgoing_.clear();
    writing_ = true;
    finishing_ = finished_ = welcomed_ = false;
    heartbeat_sent_.reset();
    stream_->StartCall(&tags_[kStarted]);
  }

  // Opens another stream once nothing of the last one is in progress.
  void Reopen() {
    owner_.mutex_.AssertHeld();
    const bool in_progress = writing_ && !outgoing_.empty();
    if (!in_progress && !owner_.ending_) Open();
  }

  void Send(v1::WorkerMessage message) {
    outgoing_.push_back(std::move(message));
    WriteOn();
  }

  void WriteOn() {
    if (writing_ || finishing_ || outgoing_.empty()) return;
    writing_ = true;
    stream_->Write(outgoing_.front(), &tags_[kWritten]);
  }

  void Finish() {
    if (std::exchange(finishing_, true)) return;
    stream_->Finish(&status_, &tags_[kFinished]);
  }

  void SayHello() {
    v1::WorkerMessage message;
    v1::Hello& hello = *message.mutable_hello();
    hello.set_protocol_version(kProtocolVersion);
    hello.set_software_version(kSoftwareVersion);
    hello.set_node_name(absl::StrCat("node-", index_));
    hello.set_incarnation(index_ + 1);
    hello.set_metrics_address(":9100");
    hello.set_cpu_count(owner_.options_.ranks_per_node);
    hello.set_memory_bytes(uint64_t{1} << 36);
    for (uint32_t i = 0; i < owner_.options_.ranks_per_node; ++i) {
      v1::Slot& slot = *hello.add_slots();
      slot.set_index(i);
      slot.set_kind("cpu");
    }
    if (!launch_.job_id().empty()) {
      v1::GenerationReport& report = *hello.add_inventory();
      report.set_job_id(launch_.job_id());
      report.set_generation(launch_.generation());
      for (const v1::RankPlacement& placement : launch_.ranks()) {
        v1::RankReport& rank = *report.add_ranks();
        rank.set_rank(placement.rank());
        rank.set_pid(kFirstPid + placement.rank());
        rank.set_phase(v1::STARTED);
      }
    }
    Send(std::move(message));
  }

  void OnMessage() {
    owner_.mutex_.AssertHeld();
    switch (incoming_.kind_case()) {
      case v1::CoordinatorMessage::kWelcome:
        welcomed_ = true;
        owner_.heartbeat_interval_ = FromProto(incoming_.welcome().heartbeat_interval());
        return owner_.Reached(Milestone::kWelcomed);
      case v1::CoordinatorMessage::kHeartbeatAck:
        if (heartbeat_sent_.has_value()) owner_.Acknowledged(*heartbeat_sent_);
        return heartbeat_sent_.reset();
      case v1::CoordinatorMessage::kLaunch:
        launch_ = std::move(*incoming_.mutable_launch());
        launch_.clear_spec();
        owner_.Reached(Milestone::kLaunched);
        Report(v1::STARTED);
        return Report(v1::JOINED);
      case v1::CoordinatorMessage::kWorld:
        owner_.Reached(Milestone::kWorld);
        return ExchangeUniqueId();
      case v1::CoordinatorMessage::kKeyValue:
        if (incoming_.key_value().key() != kUniqueIdKey) return OnNcclKey(incoming_.key_value());
        // Rank 0's node receives two responses: for its put and for its get.
        if (std::exchange(has_unique_id_, true)) return;
        owner_.Reached(Milestone::kUniqueId);
        return Report(v1::CONNECTED);
      case v1::CoordinatorMessage::kReleaseBarrier:
        return OnRelease(incoming_.release_barrier());
      case v1::CoordinatorMessage::kWaitNotice:
        return owner_.notices_.push_back(
            {Now().steady, std::move(*incoming_.mutable_wait_notice())});
      case v1::CoordinatorMessage::kStop:
        owner_.Reached(Milestone::kStopped);
        Report(v1::EXITED);
        if (owner_.options_.reconnect) launch_.Clear();
        return;
      default:
        return;
    }
  }

  void ExchangeUniqueId() {
    if (launch_.node_rank() == 0) return Put(kUniqueIdKey, std::string(kUniqueIdBytes, 'u'));
    Get(kUniqueIdKey);
  }

  // Also requests the key, as a worker does to check whether its value was accepted.
  void Put(const std::string& key, std::string value) {
    v1::WorkerMessage message;
    v1::PutKey& put = *message.mutable_put_key();
    put.set_job_id(launch_.job_id());
    put.set_generation(launch_.generation());
    put.set_key(key);
    put.set_value(std::move(value));
    Send(std::move(message));
    Get(key);
  }

  void Get(const std::string& key) {
    v1::WorkerMessage message;
    v1::GetKey& get = *message.mutable_get_key();
    get.set_job_id(launch_.job_id());
    get.set_generation(launch_.generation());
    get.set_key(key);
    Send(std::move(message));
  }

  // Collects a root's id on rank 0's node, which puts all ids when it has them.
  void GatherNcclId(uint32_t root, const std::string& id) {
    if (!nccl_ids_[root].empty()) return;
    nccl_ids_[root] = id;
    const auto none = [](const std::string& value) { return value.empty(); };
    if (std::any_of(nccl_ids_.begin(), nccl_ids_.end(), none)) return;
    Put(NcclIdsKey(nccl_group_), absl::StrJoin(nccl_ids_, ""));
  }

  void OnNcclKey(const v1::KeyValue& answer) {
    owner_.mutex_.AssertHeld();
    if (answer.code() != 0) return owner_.Failed(absl::InternalError(answer.message()));
    if (answer.key() == NcclIdsKey(nccl_group_)) {
      if (!std::exchange(has_nccl_ids_, true)) owner_.ReceivedNcclIds();
      return;
    }
    // Nodes that put an id receive a response, too.
    for (uint32_t root = 1; gathers_nccl_ids_ && root < owner_.NcclRoots(); ++root) {
      if (answer.key() == NcclRootIdKey(nccl_group_, root)) GatherNcclId(root, answer.value());
    }
  }

  void OnRelease(const v1::ReleaseBarrier& release) {
    owner_.mutex_.AssertHeld();
    if (release.barrier().sequence() != barrier_ || release.code() != 0) return;
    owner_.PassedBarrier(arrived_);
    if (barrier_ < owner_.last_barrier_) {
      Arrive(std::nullopt);
    } else {
      ++owner_.done_with_barriers_;
    }
  }

  // Reports the phase of all ranks of this node; the silent rank does not pass STARTED before its
  // end.
  void Report(v1::RankPhase phase) {
    owner_.mutex_.AssertHeld();
    v1::WorkerMessage message;
    v1::GenerationReport& report = *message.mutable_report();
    report.set_job_id(launch_.job_id());
    report.set_generation(launch_.generation());
    for (const v1::RankPlacement& placement : launch_.ranks()) {
      const bool silent = placement.rank() == owner_.silent_rank_;
      if (silent && phase != v1::STARTED && phase != v1::EXITED) continue;
      v1::RankReport& rank = *report.add_ranks();
      rank.set_rank(placement.rank());
      rank.set_pid(kFirstPid + placement.rank());
      rank.set_phase(phase);
      if (phase >= v1::JOINED && !silent) rank.mutable_join()->set_layout_digest("canonical");
      if (phase == v1::EXITED) {
        rank.mutable_exit()->set_signal(15);
        rank.mutable_exit()->set_stopped_by_worker(true);
      }
      if (!owner_.options_.unfolded) continue;
      Send(message);
      report.clear_ranks();
    }
    if (!report.ranks().empty()) Send(std::move(message));
  }

  SimulatedNodes& owner_;
  const uint32_t index_;
  std::array<Tag, 4> tags_ = {Tag{this, kStarted}, Tag{this, kRead}, Tag{this, kWritten},
                              Tag{this, kFinished}};
  std::unique_ptr<v1::WorkerService::Stub> stub_;
  std::unique_ptr<grpc::ClientContext> context_;
  std::unique_ptr<grpc::ClientAsyncReaderWriter<v1::WorkerMessage, v1::CoordinatorMessage>> stream_;
  v1::CoordinatorMessage incoming_;
  std::deque<v1::WorkerMessage> outgoing_;  // the first is being written
  grpc::Status status_;
  bool writing_ = true;  // until the call has started
  bool finishing_ = false;
  bool finished_ = false;
  bool welcomed_ = false;
  std::optional<SteadyTime> heartbeat_sent_;

  v1::Launch launch_;  // without its spec
  bool has_unique_id_ = false;
  uint64_t barrier_ = 0;  // last barrier at which it arrived
  SteadyTime arrived_;
  std::string nccl_group_;
  bool gathers_nccl_ids_ = false;      // this node has rank 0
  std::vector<std::string> nccl_ids_;  // gathered ids, by root
  bool has_nccl_ids_ = false;
};

SimulatedNodes::SimulatedNodes(SimulatedNodesOptions options) : options_(std::move(options)) {
  absl::MutexLock lock(&mutex_);
  for (uint32_t i = 0; i < options_.nodes; ++i) {
    nodes_.push_back(std::make_unique<Node>(*this, i));
  }
}

SimulatedNodes::~SimulatedNodes() {
  if (!thread_.joinable()) return;
  {
    absl::MutexLock lock(&mutex_);
    ending_ = true;
    for (const auto& node : nodes_) node->Cancel();
    const auto all_finished = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return std::all_of(nodes_.begin(), nodes_.end(),
                         [](const auto& node) { return node->finished(); });
    };
    mutex_.Await(absl::Condition(&all_finished));
  }
  queue_.Shutdown();
  thread_.join();
}

void SimulatedNodes::Connect() {
  absl::MutexLock lock(&mutex_);
  const security::ClientSecurity security = FindSecurity(options_.coordinator);
  std::vector<std::shared_ptr<grpc::Channel>> channels;
  const uint32_t count = options_.connections == 0 ? options_.nodes : options_.connections;
  for (uint32_t i = 0; i < std::min(count, options_.nodes); ++i) {
    channels.push_back(OpenConnection(options_.coordinator, security));
  }
  for (size_t i = 0; i < nodes_.size(); ++i) nodes_[i]->Connect(channels[i % channels.size()]);
  thread_ = std::thread([this] { Run(); });
}

void SimulatedNodes::ExpectJob(std::optional<uint32_t> silent_rank) {
  absl::MutexLock lock(&mutex_);
  const uint32_t welcomed = reached_[0];
  reached_ = {welcomed};
  silent_rank_ = silent_rank;
  last_barrier_ = 0;
  notices_.clear();
  for (const auto& node : nodes_) node->ExpectJob();
}

absl::Status SimulatedNodes::AwaitCount(const uint32_t& count, absl::string_view what,
                                        absl::Duration timeout) {
  const auto done = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return count >= options_.nodes || !status_.ok();
  };
  mutex_.AwaitWithTimeout(absl::Condition(&done), timeout);
  if (!status_.ok()) return status_;
  if (count >= options_.nodes) return absl::OkStatus();
  return absl::DeadlineExceededError(absl::StrCat(count, " of ", options_.nodes, " nodes ", what,
                                                  " within ", absl::FormatDuration(timeout)));
}

absl::StatusOr<SteadyTime> SimulatedNodes::Await(Milestone milestone, absl::Duration timeout) {
  absl::MutexLock lock(&mutex_);
  const size_t index = static_cast<size_t>(milestone);
  const absl::Status status = AwaitCount(reached_[index], Name(milestone), timeout);
  if (!status.ok()) return status;
  return last_reached_[index];
}

absl::StatusOr<std::vector<double>> SimulatedNodes::RunBarriers(uint32_t count,
                                                                absl::Duration timeout) {
  absl::MutexLock lock(&mutex_);
  barrier_seconds_.clear();
  barrier_seconds_.reserve(size_t{count} * options_.nodes);
  done_with_barriers_ = 0;
  last_barrier_ += count;
  for (const auto& node : nodes_) node->Arrive(std::nullopt);
  const absl::Status status = AwaitCount(done_with_barriers_, "passed every barrier", timeout);
  if (!status.ok()) return status;
  return std::exchange(barrier_seconds_, {});
}

absl::StatusOr<std::vector<double>> SimulatedNodes::ExchangeNcclIds(uint32_t count,
                                                                    absl::Duration timeout) {
  std::vector<double> seconds;
  absl::MutexLock lock(&mutex_);
  for (uint32_t i = 0; i < count; ++i) {
    have_nccl_ids_ = 0;
    const std::string group = absl::StrCat("group-", nccl_groups_++);
    const SteadyTime start = Now().steady;
    for (const auto& node : nodes_) node->RequestNcclIds(group);
    const absl::Status status = AwaitCount(have_nccl_ids_, "received the NCCL unique ids", timeout);
    if (!status.ok()) return status;
    seconds.push_back(absl::ToDoubleSeconds(last_nccl_ids_ - start));
  }
  return seconds;
}

void SimulatedNodes::ArriveWithout(uint32_t silent_rank) {
  Node* late = nullptr;
  {
    absl::MutexLock lock(&mutex_);
    ++last_barrier_;
    for (const auto& node : nodes_) {
      if (node->HasRank(silent_rank)) {
        late = node.get();
      } else {
        node->Arrive(std::nullopt);
      }
    }
  }
  // The delay of a real worker; not a wait for a condition.
  absl::SleepFor(kFoldDelay);
  absl::MutexLock lock(&mutex_);
  if (late != nullptr) late->Arrive(silent_rank);
}

std::vector<SimulatedNodes::Notice> SimulatedNodes::TakeNotices() {
  absl::MutexLock lock(&mutex_);
  return std::exchange(notices_, {});
}

void SimulatedNodes::ExpectReconnection() {
  absl::MutexLock lock(&mutex_);
  reached_[static_cast<size_t>(Milestone::kWelcomed)] = 0;
}

absl::Duration SimulatedNodes::TakeLongestHeartbeat() {
  absl::MutexLock lock(&mutex_);
  for (const auto& node : nodes_) {
    if (node->heartbeat_sent().has_value()) Acknowledged(*node->heartbeat_sent());
  }
  return std::exchange(longest_heartbeat_, absl::ZeroDuration());
}

uint32_t SimulatedNodes::NcclRoots() const {
  return (ranks() + kRanksPerNcclRoot - 1) / kRanksPerNcclRoot;
}

void SimulatedNodes::Run() {
  SteadyTime deadline = SteadyTime::Infinite();
  while (true) {
    void* done = nullptr;
    bool ok = false;
    const auto next = queue_.AsyncNext(&done, &ok, ToDeadline(deadline));
    if (next == grpc::CompletionQueue::SHUTDOWN) return;
    absl::MutexLock lock(&mutex_);
    if (next == grpc::CompletionQueue::GOT_EVENT) {
      const Node::Tag& tag = *static_cast<Node::Tag*>(done);
      tag.node->OnEvent(tag.event, ok);
    }
    const SteadyTime now = Now().steady;
    if (now >= next_beat_) SendHeartbeats(now);
    deadline = next_beat_;
  }
}

void SimulatedNodes::SendHeartbeats(SteadyTime now) {
  // Spread over the interval, like the heartbeats of many workers.
  for (size_t i = 0; i < nodes_.size() && next_beat_ <= now; ++i) {
    nodes_[next_to_beat_]->SendHeartbeat(++heartbeats_);
    next_to_beat_ = (next_to_beat_ + 1) % nodes_.size();
    next_beat_ = next_beat_ + heartbeat_interval_ / static_cast<int64_t>(nodes_.size());
  }
}

void SimulatedNodes::Reached(Milestone milestone) {
  const size_t index = static_cast<size_t>(milestone);
  if (++reached_[index] < options_.nodes) return;
  last_reached_[index] = Now().steady;
  if (milestone == Milestone::kWelcomed) next_beat_ = last_reached_[index];
}

void SimulatedNodes::PassedBarrier(SteadyTime arrived) {
  barrier_seconds_.push_back(absl::ToDoubleSeconds(Now().steady - arrived));
}

void SimulatedNodes::ReceivedNcclIds() {
  if (++have_nccl_ids_ == options_.nodes) last_nccl_ids_ = Now().steady;
}

void SimulatedNodes::Acknowledged(SteadyTime sent) {
  longest_heartbeat_ = std::max(longest_heartbeat_, Now().steady - sent);
}

void SimulatedNodes::Failed(absl::Status status) {
  if (ending_ || !status_.ok()) return;
  status_ = status.ok()
                ? absl::UnavailableError("the coordinator ended a session")
                : absl::Status(status.code(), absl::StrCat("a session ended: ", status.message()));
}

}  // namespace muster::bench
