// The session of a simulated machine's worker: what it sends to the coordinator.
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/version.h"
#include "tests/simulation/garbage.h"
#include "tests/simulation/machine.h"

namespace muster::simulation {
namespace {

constexpr char kUniqueId[] = "unique-id/WORLD/0";

}  // namespace

void Machine::Connect() {
  const absl::Duration pause =
      world_.random.Between(absl::Milliseconds(10), absl::Seconds(refused_ ? 3 : 1));
  world_.scheduler.After(pause, [this, worker = worker_] {
    if (worker != worker_ || stream_ != nullptr || retired_) return;
    if (IsWorkerPaused()) return WhenWorkerRuns([this] { Connect(); });
    // A worker is told of another address by its operator, or finds it in the name service.
    if (world_.random.Chance(0.1)) known_address_ = coordinator_.address();
    const bool reachable = cut_until_ <= world_.scheduler.now().steady &&
                           world_.IsOpenBothWays(id(), 0) && coordinator_.up() &&
                           known_address_ == coordinator_.address();
    if (!reachable) return Connect();
    const auto stream = std::make_shared<Stream>(world_, incarnation_);
    stream_ = stream;
    // Not a plain pointer: a later stream may have the address of this one.
    stream->worker_end = [this, weak = std::weak_ptr<Stream>(stream)] {
      WhenWorkerRuns([this, weak] {
        if (stream_ != nullptr && weak.lock() == stream_) BreakStream();
      });
    };
    hello_sent_ = world_.scheduler.now().steady;
    sent_.clear();
    replies_.clear();
    v1::Hello hello = MakeHello();
    std::optional<v1::Hello> used;
    if (world_.garbles_reports && world_.random.Chance(0.1)) {
      used = hello;
      Spoil(hello, world_.random);
    }
    stream->ToCoordinator([this, stream, hello, used] {
      coordinator_.Open(
          stream, hello, used,
          [this, stream](const v1::CoordinatorMessage& message) {
            WhenWorkerRuns([this, stream, message] {
              if (stream_ == stream) Receive(message);
            });
          },
          [this, stream](const absl::Status& status) {
            WhenWorkerRuns([this, stream, status] {
              if (stream_ != stream) return;
              refused_ = absl::IsAlreadyExists(status);
              BreakStream();
            });
          });
    });
    world_.Note(absl::StrCat("machine ", id(), " (", node(), ") sends Hello with ",
                             holdings_.size(), " generations"));
  });
}

v1::Hello Machine::MakeHello() {
  v1::Hello hello;
  hello.set_protocol_version(kOldestProtocolVersion);
  hello.set_node_name(node());
  hello.set_incarnation(incarnation_);
  for (uint32_t i = 0; i < options_.slots; ++i) {
    hello.add_slots()->set_index(i);
    hello.mutable_slots(static_cast<int>(i))->set_kind("cpu");
  }
  for (const auto& [key, holding] : holdings_) *hello.add_inventory() = Inventory(key, holding);
  if (is_old_) return hello;
  hello.set_newest_protocol_version(kProtocolVersion);
  hello.set_machine_id(absl::StrCat("machine-", id()));
  hello.set_keeps_bans(true);
  hello.set_fence_set(promises_->fence_set().id());
  membership_->Describe(!holdings_.empty(), hello);
  if (holdings_.empty()) seen_ = {};
  return hello;
}

v1::GenerationReport Machine::Inventory(const Key& key, const Holding& holding) const {
  v1::GenerationReport report;
  report.set_job_id(key.first);
  report.set_generation(key.second);
  for (const auto& [number, rank] : holding.ranks) *report.add_ranks() = rank.report;
  if (holding.passed == 0) return report;
  report.add_passed_barriers()->set_group("world");
  report.mutable_passed_barriers(0)->set_sequence(holding.passed);
  return report;
}

void Machine::ReportAgain() {
  for (const auto& [key, holding] : holdings_) {
    for (const auto& [number, rank] : holding.ranks) SendReport(holding, rank);
    SendCalls(key, holding);
  }
}

void Machine::SendCalls(const Key& key, const Holding& holding) {
  std::set<uint64_t> barriers;
  bool wants_key = false;
  for (const auto& [number, rank] : holding.ranks) {
    wants_key |= rank.stage == Stage::kWaitsForKey;
    if (rank.stage == Stage::kWaitsAtBarrier) barriers.insert(rank.barrier);
  }
  if (!holding.put.empty()) {
    v1::WorkerMessage message;
    message.mutable_put_key()->set_job_id(key.first);
    message.mutable_put_key()->set_generation(key.second);
    message.mutable_put_key()->set_key(kUniqueId);
    message.mutable_put_key()->set_value(holding.put);
    Send(message);
  }
  if (wants_key) {
    v1::WorkerMessage message;
    message.mutable_get_key()->set_job_id(key.first);
    message.mutable_get_key()->set_generation(key.second);
    message.mutable_get_key()->set_key(kUniqueId);
    Send(message);
  }
  for (const uint64_t sequence : barriers) SendArrivals(key, holding, sequence);
}

void Machine::SendJobRecords() {
  std::vector<v1::WorkerMessage> messages;
  for (const auto& [key, holding] : holdings_) {
    v1::JobRecords& records = *messages.emplace_back().mutable_job_records();
    *records.add_launches() = holding.launch;
    *records.add_reports() = Inventory(key, holding);
  }
  if (messages.empty()) messages.emplace_back();
  messages.back().mutable_job_records()->set_last(true);
  for (const v1::WorkerMessage& message : messages) SendNow(message);
}

void Machine::Send(const v1::WorkerMessage& message) {
  if (welcomed()) SendNow(message);
}

void Machine::SendNow(const v1::WorkerMessage& message) {
  if (!worker_up_ || !welcomed_ || stream_ == nullptr) return;
  if (world_.garbles_reports && world_.random.Chance(0.03)) SendGarbage(message);
  Transmit(message, std::nullopt);
}

void Machine::SendGarbage(v1::WorkerMessage message) {
  v1::WorkerMessage used = message;
  if (!Spoil(message, used, world_.random)) {
    message = MakeGarbage(world_.random);
    used.Clear();
  }
  world_.CountFault("garbled messages");
  Transmit(message, used);
}

void Machine::Transmit(const v1::WorkerMessage& message,
                       const std::optional<v1::WorkerMessage>& used) {
  stream_->ToCoordinator(
      [this, stream = stream_, message, used] { coordinator_.Receive(stream, message, used); });
}

void Machine::SendHeartbeat() {
  world_.scheduler.After(absl::Seconds(1), [this, worker = worker_] {
    if (worker != worker_ || !worker_up_) return;
    if (IsWorkerPaused()) return WhenWorkerRuns([this] { SendHeartbeat(); });
    v1::WorkerMessage message;
    message.mutable_heartbeat()->set_sequence(++sequence_);
    sent_[sequence_] = world_.scheduler.now().steady;
    for (const auto& [key, holding] : holdings_) {
      v1::GenerationReport& report = *message.mutable_heartbeat()->add_progress();
      report.set_job_id(key.first);
      report.set_generation(key.second);
      for (const auto& [number, rank] : holding.ranks) {
        if (!rank.report.has_progress()) continue;
        v1::RankReport& of_rank = *report.add_ranks();
        of_rank.set_rank(number);
        of_rank.set_memory_bytes(rank.report.memory_bytes());
        *of_rank.mutable_progress() = rank.report.progress();
      }
    }
    SendNow(message);
    SendHeartbeat();
  });
}

void Machine::SendReport(const Holding& holding, const Rank& rank) {
  v1::WorkerMessage message;
  message.mutable_report()->set_job_id(holding.launch.job_id());
  message.mutable_report()->set_generation(holding.launch.generation());
  *message.mutable_report()->add_ranks() = rank.report;
  Send(message);
}

void Machine::SendArrivals(const Key& key, const Holding& holding, uint64_t sequence) {
  v1::WorkerMessage message;
  v1::ArriveBarrier& arrive = *message.mutable_arrive_barrier();
  arrive.set_job_id(key.first);
  arrive.set_generation(key.second);
  arrive.mutable_barrier()->set_group("world");
  arrive.mutable_barrier()->set_sequence(sequence);
  for (const auto& [number, rank] : holding.ranks) {
    if (rank.stage == Stage::kWaitsAtBarrier && rank.barrier == sequence) arrive.add_ranks(number);
  }
  Send(message);
}

}  // namespace muster::simulation
