#include "coordinator/service/checks/quarantine.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/status.h"
#include "common/text/utf8.h"
#include "coordinator/service/checks/validate.h"
#include "spec/spec.h"

namespace muster::service {
namespace {

// A node has fewer CPUs: more CPU time per second is an error of measurement.
constexpr double kLargestCpuRatio = 1e6;
// More than a node has GPUs.
constexpr size_t kSelfTestChecks = 64;
// Dropped records of jobs that are named one by one.
constexpr size_t kNamedRecords = 16;

void Note(absl::string_view field, const std::string& what, Corrections& corrections) {
  corrections.push_back({field, absl::StrCat(field, " ", what)});
}

// Removes the entries of a list for which `is_wrong` holds, and notes them as one correction.
template <typename List, typename Predicate>
void DropEntries(absl::string_view field, const std::string& why, List& list,
                 const Predicate& is_wrong, Corrections& corrections) {
  const int before = list.size();
  list.erase(std::remove_if(list.begin(), list.end(), is_wrong), list.end());
  const int dropped = before - list.size();
  if (dropped > 0) Note(field, absl::StrCat(why, "; ", dropped, " dropped"), corrections);
}

// Clears an address that is too long to be one.
void DropLong(absl::string_view field, std::string& text, Corrections& corrections) {
  if (text.size() <= limits::kLabelBytes) return;
  Note(field,
       absl::StrCat("is ", text.size(), " bytes long; the limit is ", limits::kLabelBytes,
                    "; dropped"),
       corrections);
  text.clear();
}

bool IsGeneration(uint64_t number) { return number >= 1 && number <= limits::kLargestGeneration; }

// ------------------------------------------------------------------------------------------------
// ranks

void CorrectStoreWaits(v1::StoreWaits& waits, Corrections& corrections) {
  KeepEntries("store_waits", limits::kStoreWaits, *waits.mutable_waits(), corrections);
  for (v1::StoreWait& wait : *waits.mutable_waits()) {
    Truncate("store_waits.what", limits::kStoreWaitBytes, *wait.mutable_what(), corrections);
    Truncate("store_waits.reason", limits::kLabelBytes, *wait.mutable_reason(), corrections);
    DropUnlikely(
        "store_waits.since", wait.since(), [&wait] { wait.clear_since(); }, corrections);
    if (wait.missing_size() <= static_cast<int>(limits::kRanksPerJob)) continue;
    Note("store_waits.missing", "has more ranks than a job; dropped", corrections);
    wait.clear_missing();
  }
}

void CorrectReport(v1::GenerationReport& report, Corrections& corrections) {
  Corrections of_lists;
  KeepEntries("ranks", limits::kSlotsPerNode, *report.mutable_ranks(), of_lists);
  KeepEntries("passed_barriers", limits::kBarriersPerGeneration, *report.mutable_passed_barriers(),
              of_lists);
  DropEntries(
      "passed_barriers", absl::StrCat("has a group of more than ", limits::kKeyBytes, " bytes"),
      *report.mutable_passed_barriers(),
      [](const v1::BarrierId& barrier) { return barrier.group().size() > limits::kKeyBytes; },
      of_lists);
  if (report.has_store_waits()) CorrectStoreWaits(*report.mutable_store_waits(), of_lists);
  for (v1::RankReport& rank : *report.mutable_ranks()) {
    const Corrections of_rank = Clamp(rank);
    corrections.insert(corrections.end(), of_rank.begin(), of_rank.end());
  }
  for (const Correction& correction : of_lists) {
    if (!report.ranks().empty()) AddWarning(correction.problem, *report.mutable_ranks(0));
    corrections.push_back(correction);
  }
}

void CorrectReports(google::protobuf::RepeatedPtrField<v1::GenerationReport>& reports,
                    Corrections& corrections) {
  KeepEntries("generations", limits::kGenerationsPerNode, reports, corrections);
  DropEntries(
      "job_id", "of a report is not a job id", reports,
      [](const v1::GenerationReport& report) { return !ValidateJobName(report.job_id()).ok(); },
      corrections);
  DropEntries(
      "generation", absl::StrCat("of a report is not from 1 to ", limits::kLargestGeneration),
      reports,
      [](const v1::GenerationReport& report) { return !IsGeneration(report.generation()); },
      corrections);
  for (v1::GenerationReport& report : reports) CorrectReport(report, corrections);
}

// A node cannot run more ranks than it has slots.
void DropSurplusRanks(v1::Hello& hello, Corrections& corrections) {
  size_t running = 0;
  for (v1::GenerationReport& report : *hello.mutable_inventory()) {
    DropEntries(
        "inventory", absl::StrCat("has more than ", limits::kSlotsPerNode, " running ranks"),
        *report.mutable_ranks(),
        [&running](const v1::RankReport& rank) {
          return rank.phase() != v1::EXITED && ++running > limits::kSlotsPerNode;
        },
        corrections);
  }
}

void CorrectInspection(v1::InspectionReport& report, Corrections& corrections) {
  KeepEntries("inspection.ranks", limits::kSlotsPerNode, *report.mutable_ranks(), corrections);
  for (v1::RankInspection& rank : *report.mutable_ranks()) {
    const size_t before = corrections.size();
    const absl::Cleanup name_rank = [&] {
      for (size_t i = before; i < corrections.size(); ++i) corrections[i].rank = rank.rank();
    };
    Truncate("inspection.state", limits::kLabelBytes, *rank.mutable_state(), corrections);
    Truncate("inspection.waits_in", limits::kLabelBytes, *rank.mutable_waits_in(), corrections);
    Truncate("inspection.stack", limits::kStackBytes, *rank.mutable_stack(), corrections);
    DropUnlikely(
        "inspection.silence", rank.silence(), [&rank] { rank.clear_silence(); }, corrections);
    if (rank.cpu_ratio() >= 0 && rank.cpu_ratio() <= kLargestCpuRatio) continue;
    Note("inspection.cpu_ratio", absl::StrCat("is ", rank.cpu_ratio(), "; dropped"), corrections);
    rank.clear_cpu_ratio();
  }
}

bool IsPlausible(const v1::Launch& launch) {
  return ValidateJobName(launch.job_id()).ok() &&
         launch.spec().ByteSizeLong() <= limits::kSpecBytes &&
         launch.owner().size() <= limits::kLabelBytes &&
         launch.ranks_size() <= static_cast<int>(limits::kSlotsPerNode) &&
         IsGeneration(launch.generation()) && launch.node_rank() < launch.node_count() &&
         launch.node_count() <= limits::kNodes && launch.world_size() <= limits::kRanksPerJob;
}

// Checks one launch of a worker's records, and the report that belongs to it.
absl::Status CheckRecord(const v1::Launch& launch, const v1::GenerationReport& report) {
  if (!IsPlausible(launch)) return absl::InvalidArgumentError("is out of bounds");
  if (report.job_id() != launch.job_id() || report.generation() != launch.generation()) {
    return absl::InvalidArgumentError("has no report about its ranks");
  }
  const absl::Status spec = spec::Validate(launch.spec());
  if (spec.ok()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("has an invalid spec: ", spec.message()));
}

// The lists are parallel: a launch and its report are kept or dropped together.
void CorrectRecords(v1::JobRecords& records, Corrections& corrections) {
  KeepEntries("job_records.launches", limits::kGenerationsPerNode, *records.mutable_launches(),
              corrections);
  v1::JobRecords kept;
  int unnamed = 0;
  for (int i = 0; i < records.launches_size(); ++i) {
    const v1::GenerationReport& report =
        i < records.reports_size() ? records.reports(i) : v1::GenerationReport::default_instance();
    const absl::Status status = CheckRecord(records.launches(i), report);
    if (!status.ok() && corrections.size() >= kNamedRecords) {
      ++unnamed;
      continue;
    }
    if (!status.ok()) {
      std::string id = records.launches(i).job_id();
      KeepFirst(limits::kNameLength, id);
      std::string what = absl::StrCat("of job ", id, " ", status.message());
      KeepFirst(limits::kWarningBytes, what);
      Note("job_records.launches", absl::StrCat(what, "; dropped"), corrections);
      continue;
    }
    kept.add_launches()->Swap(records.mutable_launches(i));
    *kept.add_reports() = report;
    CorrectReport(*kept.mutable_reports(kept.reports_size() - 1), corrections);
  }
  if (unnamed > 0) {
    Note("job_records.launches", absl::StrCat("are wrong; ", unnamed, " more were dropped"),
         corrections);
  }
  kept.set_last(records.last());
  records = std::move(kept);
}

// ------------------------------------------------------------------------------------------------
// nodes

void CorrectDevice(v1::Device& device, Corrections& corrections) {
  for (std::string* text :
       {device.mutable_name(), device.mutable_pci_bus_id(), device.mutable_driver_version()}) {
    Truncate("slot.device", limits::kLabelBytes, *text, corrections);
  }
  Truncate("slot.device.cpus", limits::kReportedTextBytes, *device.mutable_cpus(), corrections);
  KeepEntries("slot.device.links", limits::kLinksPerDevice, *device.mutable_links(), corrections);
  for (v1::DeviceLink& link : *device.mutable_links()) {
    Truncate("slot.device.links", limits::kLabelBytes, *link.mutable_path(), corrections);
  }
}

void CorrectSlots(v1::Hello& hello, Corrections& corrections) {
  KeepEntries("slots", limits::kSlotsPerNode, *hello.mutable_slots(), corrections);
  absl::flat_hash_set<uint32_t> indices;
  DropEntries(
      "slot.index", "is listed twice", *hello.mutable_slots(),
      [&indices](const v1::Slot& slot) { return !indices.insert(slot.index()).second; },
      corrections);
  for (v1::Slot& slot : *hello.mutable_slots()) {
    slot.clear_job_id();  // the coordinator sets it for clients
    Truncate("slot.kind", limits::kLabelBytes, *slot.mutable_kind(), corrections);
    Truncate("slot.uuid", limits::kLabelBytes, *slot.mutable_uuid(), corrections);
    Truncate("slot.unavailable", limits::kSlotReasonBytes, *slot.mutable_unavailable(),
             corrections);
    if (slot.has_device()) CorrectDevice(*slot.mutable_device(), corrections);
  }
}

void CorrectConditions(v1::SlotReport& report, Corrections& corrections) {
  KeepEntries("slots", limits::kSlotsPerNode, *report.mutable_conditions(), corrections);
  for (v1::SlotCondition& condition : *report.mutable_conditions()) {
    Truncate("slot.unavailable", limits::kSlotReasonBytes, *condition.mutable_unavailable(),
             corrections);
  }
}

void CorrectSelfTest(v1::SelfTestReport& report, Corrections& corrections) {
  KeepEntries("self_test.checks", kSelfTestChecks, *report.mutable_checks(), corrections);
  for (v1::SelfTest::Check& check : *report.mutable_checks()) {
    Truncate("self_test.name", limits::kLabelBytes, *check.mutable_name(), corrections);
    Truncate("self_test.failure", limits::kSlotReasonBytes, *check.mutable_failure(), corrections);
  }
  DropUnlikely(
      "self_test.duration", report.duration(), [&report] { report.clear_duration(); }, corrections);
}

// Keeps the first labels in the order of their names.
void CorrectLabels(google::protobuf::Map<std::string, std::string>& labels,
                   Corrections& corrections) {
  std::vector<std::string> names;
  std::vector<std::string> wrong;
  for (const auto& [name, value] : labels) {
    const bool fits = name.size() <= limits::kLabelBytes && value.size() <= limits::kLabelBytes;
    (fits ? names : wrong).push_back(name);
  }
  std::sort(names.begin(), names.end());
  while (names.size() > limits::kLabels) {
    wrong.push_back(std::move(names.back()));
    names.pop_back();
  }
  if (wrong.empty()) return;
  for (const std::string& name : wrong) labels.erase(name);
  Note("labels",
       absl::StrCat("are more than ", limits::kLabels, " or longer than ", limits::kLabelBytes,
                    " bytes; ", wrong.size(), " dropped"),
       corrections);
}

// ------------------------------------------------------------------------------------------------
// ranks' calls

// A call that the core does not see, because it cannot be valid.
struct Refusal {
  absl::string_view field;
  absl::Status why;
  v1::CoordinatorMessage answer;
  // The caller.
  std::string job_id = {};
  std::optional<uint32_t> rank = std::nullopt;
};

std::optional<Refusal> RefuseKey(absl::string_view field, std::string job_id, uint64_t generation,
                                 std::string key, absl::Status why) {
  if (why.ok()) return std::nullopt;
  Refusal refusal{field, std::move(why), {}, job_id};
  v1::KeyValue& answer = *refusal.answer.mutable_key_value();
  KeepFirst(limits::kKeyBytes, job_id);
  KeepFirst(limits::kKeyBytes, key);
  answer.set_job_id(std::move(job_id));
  answer.set_generation(generation);
  answer.set_key(std::move(key));
  answer.set_code(refusal.why.raw_code());
  answer.set_message(std::string(refusal.why.message()));
  return refusal;
}

std::optional<Refusal> RefuseArrival(v1::ArriveBarrier arrive, absl::Status why) {
  if (why.ok()) return std::nullopt;
  Refusal refusal{"arrive_barrier", std::move(why), {}, arrive.job_id()};
  if (!arrive.ranks().empty()) refusal.rank = arrive.ranks(0);
  v1::ReleaseBarrier& answer = *refusal.answer.mutable_release_barrier();
  KeepFirst(limits::kKeyBytes, *arrive.mutable_job_id());
  KeepFirst(limits::kKeyBytes, *arrive.mutable_barrier()->mutable_group());
  answer.set_job_id(std::move(*arrive.mutable_job_id()));
  answer.set_generation(arrive.generation());
  *answer.mutable_barrier() = std::move(*arrive.mutable_barrier());
  answer.set_code(refusal.why.raw_code());
  answer.set_message(std::string(refusal.why.message()));
  return refusal;
}

absl::Status CheckKey(const std::string& job_id, const std::string& key) {
  RETURN_IF_ERROR(ValidateJobName(job_id));
  if (key.empty()) return absl::InvalidArgumentError("the key is empty");
  return CheckLength("the key", key.size(), limits::kKeyBytes);
}

absl::Status CheckPut(const v1::PutKey& put) {
  RETURN_IF_ERROR(CheckKey(put.job_id(), put.key()));
  return CheckLength("the value", put.value().size(), limits::kValueBytes);
}

absl::Status CheckArrival(const v1::ArriveBarrier& arrive) {
  RETURN_IF_ERROR(CheckKey(arrive.job_id(), arrive.barrier().group()));
  return CheckCount("the arrivals at a barrier", arrive.ranks_size(), limits::kSlotsPerNode);
}

std::optional<Refusal> CheckCall(const v1::WorkerMessage& message) {
  if (message.has_put_key()) {
    const v1::PutKey& put = message.put_key();
    return RefuseKey("put_key", put.job_id(), put.generation(), put.key(), CheckPut(put));
  }
  if (message.has_get_key()) {
    const v1::GetKey& get = message.get_key();
    return RefuseKey("get_key", get.job_id(), get.generation(), get.key(),
                     CheckKey(get.job_id(), get.key()));
  }
  if (!message.has_arrive_barrier()) return std::nullopt;
  return RefuseArrival(message.arrive_barrier(), CheckArrival(message.arrive_barrier()));
}

// ------------------------------------------------------------------------------------------------
// messages

void Drop(absl::string_view field, const std::string& why, v1::WorkerMessage& message,
          Corrections& corrections) {
  Note(field, absl::StrCat(why, "; the message was dropped"), corrections);
  message.Clear();
}

// Drops a message about a job with an impossible id.
void CheckJob(const std::string& job_id, v1::WorkerMessage& message, Corrections& corrections) {
  if (ValidateJobName(job_id).ok()) return;
  Drop("job_id", absl::StrCat("has ", job_id.size(), " bytes"), message, corrections);
}

void Correct(v1::WorkerMessage& message, Corrections& corrections) {
  switch (message.kind_case()) {
    case v1::WorkerMessage::kHello:
      return Drop("hello", "was sent twice in one session", message, corrections);
    case v1::WorkerMessage::kHeartbeat:
      return CorrectReports(*message.mutable_heartbeat()->mutable_progress(), corrections);
    case v1::WorkerMessage::kReport:
      if (!IsGeneration(message.report().generation())) {
        return Drop("generation", absl::StrCat("is ", message.report().generation()), message,
                    corrections);
      }
      CorrectReport(*message.mutable_report(), corrections);
      return CheckJob(message.report().job_id(), message, corrections);
    case v1::WorkerMessage::kSlots:
      return CorrectConditions(*message.mutable_slots(), corrections);
    case v1::WorkerMessage::kSelfTest:
      return CorrectSelfTest(*message.mutable_self_test(), corrections);
    case v1::WorkerMessage::kInspection:
      CorrectInspection(*message.mutable_inspection(), corrections);
      for (Correction& correction : corrections) {
        correction.job_id = message.inspection().job_id();
      }
      return CheckJob(message.inspection().job_id(), message, corrections);
    case v1::WorkerMessage::kLogUnavailable:
      return Truncate("log_unavailable.message", limits::kReportedTextBytes,
                      *message.mutable_log_unavailable()->mutable_message(), corrections);
    case v1::WorkerMessage::kTransferUnavailable:
      return Truncate("transfer_unavailable.message", limits::kReportedTextBytes,
                      *message.mutable_transfer_unavailable()->mutable_message(), corrections);
    case v1::WorkerMessage::kUnknownGeneration:
      return CheckJob(message.unknown_generation().job_id(), message, corrections);
    case v1::WorkerMessage::kLogTail:
      return CheckJob(message.log_tail().job_id(), message, corrections);
    case v1::WorkerMessage::kLeaseQuestion:
      if (!ValidateNodeName(message.lease_question().node_name()).ok()) {
        return Drop("node_name", "of a question is not a node name", message, corrections);
      }
      if (CheckBounds(message.lease_question()).ok()) return;
      return Drop("lease_question", "exceeds the limits", message, corrections);
    case v1::WorkerMessage::kJobRecords:
      return CorrectRecords(*message.mutable_job_records(), corrections);
    case v1::WorkerMessage::KIND_NOT_SET:
      return Drop("kind", "is unknown", message, corrections);
    case v1::WorkerMessage::kPutKey:
    case v1::WorkerMessage::kGetKey:
    case v1::WorkerMessage::kArriveBarrier:
    case v1::WorkerMessage::kLeaving:
    case v1::WorkerMessage::kBansKept:
    case v1::WorkerMessage::kFenceSetKept:
      return;
  }
}

}  // namespace

Corrections Quarantine(v1::Hello& hello) {
  Corrections corrections;
  Truncate("software_version", limits::kLabelBytes, *hello.mutable_software_version(), corrections);
  Truncate("cluster_id", limits::kLabelBytes, *hello.mutable_cluster_id(), corrections);
  Truncate("machine_id", limits::kLabelBytes, *hello.mutable_machine_id(), corrections);
  Truncate("coordinator_start", limits::kLabelBytes, *hello.mutable_coordinator_start(),
           corrections);
  Truncate("limits_unavailable", limits::kSlotReasonBytes, *hello.mutable_limits_unavailable(),
           corrections);
  DropLong("advertise_address", *hello.mutable_advertise_address(), corrections);
  DropLong("metrics_address", *hello.mutable_metrics_address(), corrections);
  DropLong("peer_address", *hello.mutable_peer_address(), corrections);
  CorrectSlots(hello, corrections);
  CorrectLabels(*hello.mutable_labels(), corrections);
  CorrectReports(*hello.mutable_inventory(), corrections);
  absl::flat_hash_set<std::pair<std::string, uint64_t>> generations;
  DropEntries(
      "inventory", "lists a generation twice", *hello.mutable_inventory(),
      [&generations](const v1::GenerationReport& report) {
        return !generations.emplace(report.job_id(), report.generation()).second;
      },
      corrections);
  DropSurplusRanks(hello, corrections);
  return corrections;
}

Quarantined Quarantine(v1::WorkerMessage& message) {
  Quarantined result;
  if (std::optional<Refusal> refusal = CheckCall(message)) {
    Drop(refusal->field, absl::StrCat("is invalid: ", std::string(refusal->why.message())), message,
         result.corrections);
    result.corrections.back().job_id = std::move(refusal->job_id);
    result.corrections.back().rank = refusal->rank;
    result.refusal = std::move(refusal->answer);
  } else {
    Correct(message, result.corrections);
  }
  return result;
}

}  // namespace muster::service
