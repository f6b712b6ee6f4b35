#include "worker/agent/generation/generation_table.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/status.h"
#include "glog/logging.h"
#include "spec/files.h"
#include "worker/agent/generation/ranks/exit_info.h"

namespace muster::agent {
namespace {

// Whether both launches start the same ranks. Other fields may differ: they describe the job's
// state.
bool IsSameLaunch(const v1::Launch& a, const v1::Launch& b) {
  if (a.world_size() != b.world_size() || a.node_rank() != b.node_rank()) return false;
  return std::equal(a.ranks().begin(), a.ranks().end(), b.ranks().begin(), b.ranks().end(),
                    [](const v1::RankPlacement& x, const v1::RankPlacement& y) {
                      return x.SerializeAsString() == y.SerializeAsString();
                    });
}

// INVALID_ARGUMENT.
absl::Status CheckLaunch(const v1::Launch& launch) {
  RETURN_IF_ERROR(CheckJobId(launch.job_id()));
  if (launch.generation() == 0) return absl::InvalidArgumentError("generation must not be 0");
  if (launch.ranks_size() == 0 || launch.ranks_size() > static_cast<int>(limits::kSlotsPerNode)) {
    return absl::InvalidArgumentError(absl::StrCat(launch.ranks_size(), " ranks"));
  }
  std::set<uint32_t> ranks;
  for (const v1::RankPlacement& placement : launch.ranks()) {
    if (placement.rank() >= launch.world_size() || !ranks.insert(placement.rank()).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("rank ", placement.rank(), " of ", launch.world_size()));
    }
  }
  if (launch.spec().has_train() == !launch.spec().command().empty()) {
    return absl::InvalidArgumentError("neither a train job nor a command");
  }
  return spec::CheckUploadedFiles(launch.spec());
}

// Reports the ranks of a launch that comes too late as failed.
v1::WorkerMessage Refusal(const v1::Launch& launch, uint64_t newest) {
  const absl::Status refusal = absl::AlreadyExistsError(
      absl::StrCat("this node already holds generation ", newest, " of job ", launch.job_id(),
                   ", so it cannot launch generation ", launch.generation(),
                   ": the coordinator's store is older than this generation"));
  LOG(ERROR) << "refusing a launch: " << refusal.message();
  v1::WorkerMessage message;
  v1::GenerationReport& report = *message.mutable_report();
  report.set_job_id(launch.job_id());
  report.set_generation(launch.generation());
  for (const v1::RankPlacement& placement : launch.ranks()) {
    v1::RankReport& rank = *report.add_ranks();
    rank.set_rank(placement.rank());
    rank.set_phase(v1::EXITED);
    *rank.mutable_exit() = LaunchFailure(refusal);
  }
  return message;
}

void Stop(Generation& generation, const v1::StopGeneration& stop) {
  LOG(INFO) << "stopping " << stop.job_id() << " generation " << stop.generation() << ": "
            << stop.reason() << ": " << stop.message();
  v1::StopGeneration complete = stop;
  if (!stop.has_grace_period()) {
    *complete.mutable_grace_period() = generation.launch().spec().grace_period();
  }
  generation.Stop(complete);
}

}  // namespace

GenerationTable::GenerationTable(GenerationContext context)
    : context_(std::move(context)), stops_(*context_.loop, generations_) {}

GenerationTable::~GenerationTable() { *self_ = nullptr; }

Generation& GenerationTable::Add(const v1::Launch& launch) {
  const std::string job_id = launch.job_id();
  v1::Launch stored = launch;
  SecretValues secrets = TakeSecrets(stored);
  auto& generation = generations_[{job_id, launch.generation()}];
  generation = std::make_unique<Generation>(context_, std::move(stored), std::move(secrets),
                                            [this, job_id] { OnSettled(job_id); });
  uint64_t& newest = newest_[job_id];
  newest = std::max(newest, launch.generation());
  return *generation;
}

void GenerationTable::Recover() {
  for (const auto& [job_id, number] : context_.directory->Generations()) {
    const std::string directory = context_.directory->Generation(job_id, number);
    v1::Launch launch;
    absl::Status status = ReadMessage(directory + "/launch.pb", launch);
    if (status.ok()) status = CheckLaunch(launch);
    if (!status.ok() || launch.job_id() != job_id || launch.generation() != number) {
      LOG(ERROR) << "ignoring " << directory << ": " << status;
      continue;
    }
    LOG(INFO) << "found " << job_id << " generation " << number << " with " << launch.ranks_size()
              << " ranks";
    Add(launch).Adopt();
  }
  CountSlots();
}

void GenerationTable::OnMessage(const v1::CoordinatorMessage& message) {
  // The generation of a message for ranks.
  const auto find = [this](const auto& m) { return Find(m.job_id(), m.generation()); };
  const auto find_or_report = [this](const auto& m) {
    return FindOrReport(m.job_id(), m.generation());
  };
  Generation* generation = nullptr;
  switch (message.kind_case()) {
    case v1::CoordinatorMessage::kLaunch:
      return OnLaunch(message.launch());
    case v1::CoordinatorMessage::kStop:
      generation = find_or_report(message.stop());
      if (generation != nullptr) Stop(*generation, message.stop());
      return;
    case v1::CoordinatorMessage::kForget:
      return OnForget(message.forget());
    case v1::CoordinatorMessage::kWorld:
      generation = find_or_report(message.world());
      if (generation != nullptr) generation->calls().OnWorld(message.world());
      return;
    case v1::CoordinatorMessage::kInspect:
      generation = find_or_report(message.inspect());
      if (generation != nullptr) generation->ranks().Inspect();
      return;
    case v1::CoordinatorMessage::kCheckpoint:
      generation = find_or_report(message.checkpoint());
      if (generation != nullptr) generation->calls().directives().RequestCheckpoint();
      return;
    case v1::CoordinatorMessage::kKeyValue:
      generation = find(message.key_value());
      if (generation != nullptr) generation->calls().rendezvous().OnKeyValue(message.key_value());
      return;
    case v1::CoordinatorMessage::kReleaseBarrier:
      generation = find(message.release_barrier());
      if (generation == nullptr) return;
      return generation->calls().rendezvous().OnReleaseBarrier(message.release_barrier());
    case v1::CoordinatorMessage::kWaitNotice:
      generation = find(message.wait_notice());
      if (generation != nullptr) generation->calls().OnWaitNotice(message.wait_notice());
      return;
    default:
      return;
  }
}

void GenerationTable::OnLaunch(const v1::Launch& launch) {
  const absl::Status status = CheckLaunch(launch);
  if (!status.ok()) {
    LOG(ERROR) << "rejecting a launch of " << launch.job_id() << ": " << status;
    return;
  }
  if (stops_.stopping()) return;
  const uint64_t newest = NewestGeneration(launch.job_id());
  if (launch.generation() <= newest) {
    const Generation* const held = Find(launch.job_id(), launch.generation());
    // The coordinator repeats a launch when it does not know whether it arrived.
    if (held != nullptr && IsSameLaunch(held->launch(), launch)) return;
    return context_.send(Refusal(launch, newest));
  }
  LOG(INFO) << "launching " << launch.job_id() << " generation " << launch.generation() << ": "
            << launch.ranks_size() << " of " << launch.world_size() << " ranks";
  Add(launch);
  for (const auto& [key, generation] : generations_) {
    if (key.first == launch.job_id() && key.second < launch.generation()) {
      generation->StopByWorker("Superseded", "replaced by a newer generation of the job");
    }
  }
  StartIfFree(launch.job_id());
}

void GenerationTable::StartIfFree(const std::string& job_id) {
  const auto newest = generations_.find({job_id, NewestGeneration(job_id)});
  if (newest == generations_.end() || newest->second->started() || stops_.stopping()) return;
  for (const auto& [key, generation] : generations_) {
    if (key.first == job_id && key.second < newest->first.second && !generation->settled()) return;
  }
  newest->second->Start();
  CountSlots();
}

void GenerationTable::OnSettled(const std::string& job_id) {
  // Deferred, because the caller is inside a method of the generation.
  context_.loop->Post([this, self = self_, job_id] {
    if (*self == nullptr) return;
    for (const v1::ForgetGeneration& message : std::exchange(forgotten_, {})) OnForget(message);
    CountSlots();
    StartIfFree(job_id);
    stops_.CheckAllStopped();
  });
}

void GenerationTable::CountSlots() {
  const std::vector<v1::Slot>& slots = context_.environment.slots;
  std::map<std::string, uint32_t> counts;
  for (const auto& [key, generation] : generations_) {
    for (const uint32_t slot : generation->ranks().SlotsInUse()) {
      if (slot < slots.size()) ++counts[slots[slot].kind()];
    }
  }
  context_.progress->SetSlotsInUse(std::move(counts));
}

Generation* GenerationTable::FindOrReport(const std::string& job_id, uint64_t generation) {
  Generation* const found = Find(job_id, generation);
  if (found != nullptr) return found;
  v1::WorkerMessage message;
  message.mutable_unknown_generation()->set_job_id(job_id);
  message.mutable_unknown_generation()->set_generation(generation);
  context_.send(std::move(message));
  return nullptr;
}

void GenerationTable::OnForget(const v1::ForgetGeneration& message) {
  const auto it = generations_.find({message.job_id(), message.generation()});
  if (it == generations_.end()) return;
  if (!it->second->over()) {
    LOG(ERROR) << "ignoring a request to forget " << message.job_id() << " generation "
               << message.generation() << ", which is still running";
    return;
  }
  if (!it->second->Close()) {
    forgotten_.push_back(message);
    return;
  }
  generations_.erase(it);
  const auto next = generations_.lower_bound({message.job_id(), 0});
  if (next == generations_.end() || next->first.first != message.job_id()) {
    newest_.erase(message.job_id());
  }
  std::error_code error;
  std::filesystem::remove_all(
      context_.directory->Generation(message.job_id(), message.generation()), error);
  LOG_IF(WARNING, error) << "cannot remove " << message.job_id() << ": " << error.message();
}

std::vector<v1::GenerationReport> GenerationTable::Inventory() {
  std::vector<v1::GenerationReport> inventory;
  for (const auto& [key, generation] : generations_) inventory.push_back(generation->Inventory());
  return inventory;
}

bool GenerationTable::HasLiveRanks() const {
  return std::any_of(generations_.begin(), generations_.end(),
                     [](const auto& entry) { return !entry.second->over(); });
}

std::vector<v1::JobRecords> GenerationTable::Records() {
  std::vector<v1::JobRecords> records;
  for (const auto& [key, generation] : generations_) {
    v1::JobRecords& record = records.emplace_back();
    *record.add_launches() = generation->launch();
    *record.add_reports() = generation->Inventory();
  }
  if (records.empty()) records.emplace_back();
  records.back().set_last(true);
  return records;
}

std::set<std::pair<std::string, uint64_t>> GenerationTable::Held() const {
  std::set<std::pair<std::string, uint64_t>> held;
  for (const auto& [key, generation] : generations_) held.insert(key);
  return held;
}

void GenerationTable::Resend() {
  for (const auto& [key, generation] : generations_) {
    generation->ResendChanged();
    generation->calls().rendezvous().Resend();
  }
}

void GenerationTable::SetAddress(const std::string& address, const std::string& interface) {
  context_.environment.address = address;
  context_.environment.interface = interface;
}

void GenerationTable::Tick() {
  for (const auto& [key, generation] : generations_) generation->Tick();
}

std::vector<Generation*> GenerationTable::Live() {
  std::vector<Generation*> live;
  for (const auto& [key, generation] : generations_) {
    if (!generation->over()) live.push_back(generation.get());
  }
  return live;
}

Generation* GenerationTable::Find(const std::string& job_id, uint64_t generation) {
  const auto it = generations_.find({job_id, generation});
  return it == generations_.end() ? nullptr : it->second.get();
}

uint64_t GenerationTable::NewestGeneration(const std::string& job_id) const {
  const auto it = newest_.find(job_id);
  return it == newest_.end() ? 0 : it->second;
}

}  // namespace muster::agent
