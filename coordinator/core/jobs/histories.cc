#include "coordinator/core/jobs/histories.h"

#include <utility>

#include "common/limits.h"
#include "common/proto_time.h"
#include "common/version.h"
#include "coordinator/core/records.h"

namespace muster::core {
namespace {

constexpr absl::Duration kWriteInterval = absl::Minutes(1);

}  // namespace

void Histories::BeginGeneration(const Job& job, std::vector<v1::NodeEnvironmentRecord> nodes) {
  const auto entry = histories_.try_emplace(job.queue_sequence).first;
  History& history = entry->second;
  history.job_id = job.status.job_id();
  history.nodes.Clear();
  history.nodes.set_node_count(nodes.size());
  history.nodes.set_coordinator_version(kSoftwareVersion);
  if (nodes.size() > limits::kHistoryNodes) nodes.resize(limits::kHistoryNodes);
  for (v1::NodeEnvironmentRecord& node : nodes) *history.nodes.add_nodes() = std::move(node);
  due_.insert(job.queue_sequence);
  NoteChange(entry);
}

void Histories::EndGeneration(const Job& job) {
  if (histories_.count(job.queue_sequence) != 0) due_.insert(job.queue_sequence);
}

void Histories::AddProgress(const Job& job) {
  const auto entry = histories_.find(job.queue_sequence);
  if (entry == histories_.end()) return;  // deleted, beyond the limit
  History& history = entry->second;
  const absl::Duration age = context_.now.steady - job.submitted;
  if (!history.curves.Add(job.status.progress(), job.status.generation(), age)) return;
  if (context_.now.steady >= history.next_write) due_.insert(job.queue_sequence);
  NoteChange(entry);
}

v1::JobHistory Histories::View(const Job& job, size_t max_points) const {
  v1::JobHistory view;
  const auto entry = histories_.find(job.queue_sequence);
  if (entry == histories_.end()) return view;
  const History& history = entry->second;
  *view.mutable_curves() = history.curves.View(max_points);
  for (const v1::NodeEnvironmentRecord& node : history.nodes.nodes()) {
    v1::NodeEnvironment& shown = *view.add_nodes();
    shown.set_node(node.node());
    shown.set_software_version(node.software_version());
    shown.set_cpu_count(node.cpu_count());
    shown.set_memory_bytes(node.memory_bytes());
    *shown.mutable_devices() = node.devices();
    shown.set_driver_version(node.driver_version());
  }
  view.set_node_count(history.nodes.node_count());
  view.set_coordinator_version(history.nodes.coordinator_version());
  return view;
}

void Histories::Restore(const Job& job, const v1::HistoryRecord& record) {
  const auto entry = histories_.try_emplace(job.queue_sequence).first;
  History& history = entry->second;
  history.job_id = record.job_id();
  history.curves = Curves(record.curves());
  history.nodes = record;
  history.nodes.clear_job_id();
  history.nodes.clear_curves();
  NoteChange(entry);
}

std::optional<std::string> Histories::Remove(const Job& job) {
  const auto entry = histories_.find(job.queue_sequence);
  if (entry == histories_.end()) return std::nullopt;
  std::string key = HistoryKey(entry->second.job_id);
  bytes_ -= entry->second.bytes;
  due_.erase(job.queue_sequence);
  histories_.erase(entry);
  return key;
}

void Histories::WriteChanges() {
  if (context_.space.IsLow()) return;
  for (const uint64_t sequence : std::exchange(due_, {})) {
    History& history = histories_.at(sequence);
    v1::HistoryRecord record = history.nodes;
    record.set_job_id(history.job_id);
    *record.mutable_curves() = history.curves.ToRecord();
    context_.effects.writes.push_back(Put(record));
    history.next_write = context_.now.steady + kWriteInterval;
  }
}

void Histories::NoteChange(Table::iterator entry) {
  History& history = entry->second;
  bytes_ -= history.bytes;
  history.bytes = sizeof(History) + history.curves.ByteSize() + history.nodes.ByteSizeLong();
  bytes_ += history.bytes;
  while (bytes_ > max_bytes_ && histories_.size() > 1) DeleteOldest();
}

void Histories::DeleteOldest() {
  const auto oldest = histories_.begin();
  context_.effects.writes.push_back({HistoryKey(oldest->second.job_id), std::nullopt});
  bytes_ -= oldest->second.bytes;
  due_.erase(oldest->first);
  histories_.erase(oldest);
}

}  // namespace muster::core
