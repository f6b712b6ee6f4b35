#include "coordinator/core/jobs/job_table.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/text/utf8.h"
#include "common/time/proto_time.h"
#include "coordinator/core/reasons.h"
#include "coordinator/core/records.h"

namespace muster::core {
namespace {

// Numbers that stay free for a job's generations, whatever number a worker
// reports.
constexpr uint64_t kGenerationsLeft = 1'000'000;

// About twice its bytes: texts of exits, and small numbers.
size_t MemoryOf(const v1::GenerationRecord& record) { return 2 * record.ByteSizeLong(); }

size_t MemoryOf(const v1::JobEvent& event) {
  return sizeof(event) + event.type().size() + event.message().size();
}

void Charge(Job& job, size_t bytes, MemoryBudget& memory) {
  job.memory_bytes += bytes;
  memory.Add(job.status.owner(), bytes);
}

void Discharge(Job& job, size_t bytes, MemoryBudget& memory) {
  job.memory_bytes -= bytes;
  memory.Remove(job.status.owner(), bytes);
}

// Returns whether the owner has memory, and the store space, for what is not
// needed to run the job.
bool HasRoom(const Job& job, const MemoryBudget& memory, const Context& context) {
  return !context.space.IsLow() && memory.Check(job.status.owner(), 0).ok();
}

// Returns whether a list includes the jobs and arrays in this state.
bool IsSelected(const v1::ListJobsRequest& request, v1::JobState state) {
  if (request.state() != v1::JOB_STATE_UNSPECIFIED) return state == request.state();
  return request.include_finished() || !IsTerminal(state);
}

}  // namespace

Job* JobTable::Find(const JobId& id) {
  const auto entry = jobs_.find(id);
  return entry == jobs_.end() ? nullptr : &entry->second;
}

const Job* JobTable::Find(const JobId& id) const {
  const auto entry = jobs_.find(id);
  return entry == jobs_.end() ? nullptr : &entry->second;
}

Job* JobTable::FindLiving(const JobId& id, uint64_t number, const NodeName& node) {
  Job* const job = Find(id);
  if (job == nullptr || !job->generation.has_value()) return nullptr;
  if (job->generation->record.generation() != number) return nullptr;
  return job->generation->NodeRank(node).has_value() ? job : nullptr;
}

const std::set<JobId>& JobTable::ActiveOn(const NodeName& node) const {
  static const auto* const kNone = new std::set<JobId>();
  const auto found = active_by_node_.find(node);
  return found == active_by_node_.end() ? *kNone : found->second;
}

void JobTable::AddActive(const Job& job) {
  active_.insert(job.id());
  for (const v1::NodePlacement& placement : job.generation->record.nodes()) {
    active_by_node_[NodeName(placement.node())].insert(job.id());
  }
}

absl::StatusOr<const Job*> JobTable::Get(const JobId& id) const {
  const Job* const job = Find(id);
  if (job == nullptr) return absl::NotFoundError(absl::StrCat("no job ", id.value()));
  return job;
}

v1::JobState JobTable::StateOf(const std::string& id) const {
  if (const Job* const job = Find(JobId(id))) return job->state();
  const JobArray* const array = arrays_.Find(id);
  return array == nullptr ? v1::JOB_STATE_UNSPECIFIED : array->state();
}

Job& JobTable::Add(Job added) {
  const JobId id = added.id();
  Job& job = jobs_[id] = std::move(added);
  if (job.queue_sequence == 0) job.queue_sequence = next_queue_sequence_;
  next_queue_sequence_ = std::max(next_queue_sequence_, job.queue_sequence + 1);
  job.state_since = context_.now.steady;
  const size_t sharing = job.shares_spec ? std::max(1u, job.status.array_count()) : 1;
  Charge(job, MemoryOf(job.spec(), sharing), memory_);
  for (const v1::JobEvent& event : job.events) Charge(job, MemoryOf(event), memory_);
  for (const auto& [number, record] : job.past) Charge(job, MemoryOf(record), memory_);
  arrays_.Add(job);
  if (job.generation.has_value()) AddActive(job);
  return job;
}

void JobTable::Remove(const JobId& id) {
  const auto entry = jobs_.find(id);
  const Job& job = entry->second;
  MarkChanged(job);
  records_.ForgetJob(id);
  memory_.Remove(job.status.owner(), job.memory_bytes);
  arrays_.Remove(job);
  jobs_.erase(entry);
}

void JobTable::BeginGeneration(Job& job, v1::GenerationRecord record) {
  job.generation.emplace(std::move(record), context_.now.steady);
  AddActive(job);
  records_.MarkGeneration(job);
  for (int node_rank = 0; node_rank < job.generation->record.nodes_size(); ++node_rank) {
    MarkPlacement(job, node_rank);
  }
}

void JobTable::EndGeneration(Job& job) {
  job.generation->record.set_over(true);
  records_.MarkGeneration(job);
  MarkJob(job);
  v1::GenerationRecord record = std::move(job.generation->record);
  job.generation.reset();
  active_.erase(job.id());
  for (const v1::NodePlacement& placement : record.nodes()) {
    const auto active = active_by_node_.find(NodeName(placement.node()));
    if (active == active_by_node_.end()) continue;  // several placements on one node
    active->second.erase(job.id());
    if (active->second.empty()) active_by_node_.erase(active);
  }
  Charge(job, MemoryOf(record), memory_);
  job.past[Generation(record.generation())] = std::move(record);
  // Those in the middle are deleted, without room all but the newest.
  std::vector<std::string> keys;
  const bool has_room = HasRoom(job, memory_, context_);
  const size_t kept = has_room ? kOldestKept + kNewestKept : kKeptWithoutRoom;
  while (job.past.size() > kept) {
    const auto dropped = std::next(job.past.begin(), has_room ? kOldestKept : 0);
    AddKeys(dropped->second, keys);
    Discharge(job, MemoryOf(dropped->second), memory_);
    job.past.erase(dropped);
  }
  for (std::string& key : keys) {
    context_.effects.writes.push_back({std::move(key), std::nullopt});
  }
}

void JobTable::AddEvent(Job& job, absl::string_view type, std::string message) {
  v1::JobEvent event;
  event.set_job_id(job.status.job_id());
  event.set_sequence(job.next_event_sequence++);
  *event.mutable_time() = ToProto(context_.now.wall);
  event.set_generation(job.status.generation());
  event.set_type(std::string(type));
  KeepFirst(kMessageBytes, message);
  event.set_message(std::move(message));
  MarkJob(job);
  context_.effects.writes.push_back(Put(ToRecord(event)));
  Charge(job, MemoryOf(event), memory_);
  job.events.push_back(std::move(event));
  const size_t kept =
      HasRoom(job, memory_, context_) ? limits::kEventsPerJob : limits::kEventsWithoutRoom;
  // One more than was added, so that a long history becomes shorter, in short
  // steps.
  for (int i = 0; i < 2 && job.events.size() > kept; ++i) {
    const v1::JobEvent& oldest = job.events.front();
    context_.effects.writes.push_back(DeleteEvent(job.id(), oldest.sequence()));
    Discharge(job, MemoryOf(oldest), memory_);
    job.events.pop_front();
  }
}

void JobTable::Warn(Job& job, uint32_t rank, const std::string& problem) {
  const int count = job.status.warnings_size();
  const std::string text = absl::StrCat(": ", problem);
  for (const std::string& warning : job.status.warnings()) {
    if (absl::EndsWith(warning, text)) return;
  }
  if (count >= limits::kWarningsPerJob) return;
  const bool last = count + 1 == limits::kWarningsPerJob;
  std::string warning = last ? "further warnings are not shown" : absl::StrCat("rank ", rank, text);
  job.status.add_warnings(warning);
  AddEvent(job, events::kWarning, std::move(warning));
}

void ReserveGeneration(JobTable& jobs, const JobId& id, uint64_t generation) {
  Job* const job = jobs.Find(id);
  generation = std::min(generation, limits::kLargestGeneration - kGenerationsLeft);
  if (job == nullptr || generation < job->NextGeneration().value()) return;
  job->highest_generation = generation;
  jobs.MarkJob(*job);
}

std::vector<const Job*> ListJobs(const JobTable& jobs, const v1::ListJobsRequest& request) {
  std::vector<const Job*> chosen;
  const auto consider = [&](const Job& job) {
    if (!IsSelected(request, job.state())) return;
    if (!request.owner().empty() && job.status.owner() != request.owner()) return;
    if (request.collapse_arrays() && !job.status.array_id().empty()) return;
    chosen.push_back(&job);
  };
  if (request.array_id().empty()) {
    for (const auto& [id, job] : jobs.all()) consider(job);
  } else if (const JobArray* const array = jobs.arrays().Find(request.array_id())) {
    for (const uint32_t index : array->tasks) consider(jobs.at(TaskId(array->id, index)));
  }
  std::sort(chosen.begin(), chosen.end(),
            [](const Job* a, const Job* b) { return a->queue_sequence > b->queue_sequence; });
  return chosen;
}

std::vector<const JobArray*> ListArrays(const JobTable& jobs, const v1::ListJobsRequest& request) {
  std::vector<const JobArray*> chosen;
  for (const auto& [id, array] : jobs.arrays().all()) {
    if (!IsSelected(request, array.state())) continue;
    if (!request.owner().empty() && array.owner != request.owner()) continue;
    if (!request.array_id().empty() && id != request.array_id()) continue;
    chosen.push_back(&array);
  }
  return chosen;
}

std::map<std::string, absl::flat_hash_set<std::string>> FilesOf(const JobTable& jobs) {
  std::map<std::string, absl::flat_hash_set<std::string>> digests;
  for (const auto& [id, job] : jobs.all()) {
    for (const v1::FileSpec& file : job.spec().files()) {
      digests[job.status.owner()].insert(file.sha256());
    }
  }
  return digests;
}

absl::flat_hash_set<std::string> UsableFiles(const JobTable& jobs, const Actor& actor,
                                             const absl::flat_hash_set<std::string>& digests) {
  absl::flat_hash_set<std::string> usable;
  for (const auto& [id, job] : jobs.all()) {
    if (usable.size() == digests.size()) break;
    if (!job.status.shared() && !MayUse(job.status, actor)) continue;
    for (const v1::FileSpec& file : job.spec().files()) {
      if (digests.contains(file.sha256())) usable.insert(file.sha256());
    }
  }
  return usable;
}

bool NeedsFile(const JobTable& jobs, const std::optional<NodeName>& node,
               const std::string& digest) {
  return std::any_of(jobs.active().begin(), jobs.active().end(), [&](const JobId& id) {
    const Job& job = jobs.at(id);
    if (node.has_value() && !job.generation->NodeRank(*node).has_value()) return false;
    return std::any_of(job.spec().files().begin(), job.spec().files().end(),
                       [&](const v1::FileSpec& file) { return file.sha256() == digest; });
  });
}

}  // namespace muster::core
