#include "coordinator/core/owners/visibility.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "coordinator/core/reasons.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"

namespace muster::core {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// ------------------------------------------------------------------------------------------------
// fields

// See PublicTexts: names, and constants of the coordinator and of specs.
constexpr const char* kPublicTexts[] = {
    "CheckpointSpec.final",
    "CheckpointSpec.keep_best",
    "CheckpointStatus.continued_job_id",
    "CheckpointStatus.node",
    "CheckpointStatus.resumed_job_id",
    "DatasetSpec.name",
    "DatasetSpec.resident",
    "Dependencies.any",
    "Dependencies.failed",
    "Dependencies.ok",
    "DeviceUse.device",
    "DeviceUse.node",
    "FirstFailure.node",
    "FirstFailure.reason",
    "Goodput.Cause.cause",
    "Goodput.Cause.node",
    "Goodput.current_cause",
    "Hang.node",
    "Job.array_id",
    "Job.estimate_basis",
    "Job.job_id",
    "Job.owner",
    "Job.reason",
    "Job.unplaceable",
    "JobSpec.backend",
    "JobSpec.launcher",
    "JobSpec.name",
    "JobSpec.on_cut_off",
    "JobSpec.on_hang",
    "JobSpec.output",
    "JobSpec.priority_class",
    "JobSpec.stop_signal",
    "MixedPrecisionSpec.dtype",
    "MixedPrecisionSpec.gradient_dtype",
    "ModelSpec.name",
    "ObjectiveSpec.name",
    "ObjectiveSpec.negatives",
    "OptimizerSpec.name",
    "PipelineSpec.schedule",
    "PrecisionInfo.dtype",
    "PrecisionInfo.gradient_dtype",
    "PrecisionInfo.level",
    "RankInspection.state",
    "RankInspection.waits_in",
    "RankStatus.node",
    "Resources.device",
    "Resources.devices_per_rank",
    "Resources.exclude_nodes",
    "Resources.gpu_model",
    "Resources.prefer_nodes",
    "Resources.select",
    "ScheduleSpec.name",
    "StepPart.name",
    "Straggler.message",
    "Straggler.node",
    "Straggler.phase",
    "StrategySpec.hierarchical",
    "StrategySpec.name",
    "TrainSpec.cuda_graphs",
    "TrainSpec.precision",
    "TrainSummary.device",
    "TrainSummary.precision",
    "TrainSummary.resumed_job_id",
    "TrainSummary.strategy",
    "WaitedFor.node",
    "WaitedFor.remedy",
};
// These fields have a public part; see ShowPublicParts.
constexpr const char* kPartlyPublic[] = {"FirstFailure.message", "Job.message", "Progress.phase",
                                         "Wait.what", "WaitedFor.reason"};
// Messages of which nothing is public, not even their number.
constexpr const char* kPrivateMessages[] = {"Job.array_values", "JobSpec.array", "JobSpec.files"};
// A shared job also shows these fields, and all of its spec but kNeverShared.
constexpr const char* kShared[] = {"CheckpointStatus.dir", "CheckpointStatus.name",
                                   "CheckpointStatus.best_name"};
constexpr const char* kNeverShared[] = {"JobSpec.env", "JobSpec.secret_env", "JobSpec.array"};

absl::string_view NameOf(const FieldDescriptor& field) {
  absl::string_view name = field.full_name();
  name.remove_prefix(std::min(name.size(), absl::string_view("muster.v1.").size()));
  return name;
}

template <typename List>
bool Has(const List& list, const FieldDescriptor& field) {
  return absl::c_linear_search(list, NameOf(field));
}

// The fields of a kind of message that are removed, and those that contain such fields.
struct Plan {
  std::vector<const FieldDescriptor*> removed;
  std::vector<std::pair<const FieldDescriptor*, const Plan*>> inner;
};
using Plans = std::map<const Descriptor*, Plan>;

const Plan& PlanOf(const Descriptor& type, bool shared, Plans& plans) {
  const auto [known, first] = plans.try_emplace(&type);
  Plan& plan = known->second;
  if (!first) return plan;
  const bool whole_spec = shared && &type == v1::JobSpec::descriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    const bool is_text = field.cpp_type() == FieldDescriptor::CPPTYPE_STRING || field.is_map();
    if (whole_spec) {
      if (Has(kNeverShared, field)) plan.removed.push_back(&field);
    } else if (Has(kPrivateMessages, field)) {
      plan.removed.push_back(&field);
    } else if (is_text) {
      if (Has(kPublicTexts, field) || Has(kPartlyPublic, field)) continue;
      if (shared && Has(kShared, field)) continue;
      plan.removed.push_back(&field);
    } else if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      const Plan& inner = PlanOf(*field.message_type(), shared, plans);
      if (!inner.removed.empty() || !inner.inner.empty()) plan.inner.emplace_back(&field, &inner);
    }
  }
  return plan;
}

const Plan& JobPlan(bool shared) {
  static auto* const plans = new Plans[2];
  static const Plan* const made[] = {&PlanOf(*v1::Job::descriptor(), false, plans[0]),
                                     &PlanOf(*v1::Job::descriptor(), true, plans[1])};
  return *made[shared ? 1 : 0];
}

// Returns whether there was anything to remove.
bool Remove(const Plan& plan, Message& message) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  bool removed = false;
  for (const FieldDescriptor* const field : plan.removed) {
    const bool present = field->is_repeated() ? reflection.FieldSize(message, field) > 0
                                              : reflection.HasField(message, field);
    if (!present) continue;
    reflection.ClearField(&message, field);
    removed = true;
  }
  for (const auto& [field, inner] : plan.inner) {
    if (!field->is_repeated()) {
      if (!reflection.HasField(message, field)) continue;
      removed |= Remove(*inner, *reflection.MutableMessage(&message, field));
      continue;
    }
    for (int i = 0; i < reflection.FieldSize(message, field); ++i) {
      removed |= Remove(*inner, *reflection.MutableRepeatedMessage(&message, field, i));
    }
  }
  return removed;
}

// ------------------------------------------------------------------------------------------------
// texts with public parts

// Reasons and events whose messages the coordinator makes of names and numbers alone.
constexpr const char* kPublicReasons[] = {
    reasons::kWaitingForResources,
    reasons::kHeldByUser,
    reasons::kDependency,
    reasons::kDependencyFailed,
    reasons::kArrayLimit,
    reasons::kRendezvous,
    reasons::kRunning,
    reasons::kCompleted,
    reasons::kCancelledByUser,
    reasons::kTimeLimit,
    reasons::kRecovered,
    reasons::kRequeuedByUser,
    reasons::kNodeDrained,
    reasons::kPreempted,
    reasons::kGrowing,
    reasons::kDeviceShared,
};
constexpr const char* kPublicEvents[] = {
    events::kSubmitted,
    events::kHeld,
    events::kRecovered,
    events::kReleased,
    events::kShared,
    events::kUnshared,
    events::kPlaced,
    events::kRunning,
    events::kCheckpointRequested,
    events::kRankUnkillable,
    events::kNodeSuspect,
    events::kNodeSilent,
    events::kNodeAdopted,
    events::kNodeLost,
    events::kHangEnded,
    events::kStragglerFound,
    events::kStragglerEnded,
    events::kLossNotFinite,
    events::kLossSpike,
    events::kLossScaleLowered,
    events::kPreempted,
    events::kDeviceUnhealthy,
};
constexpr const char* kPublicWaits[] = {"rendezvous", "communicators", "resources", "delay",
                                        "stop",       "dependency",    "array"};
// Waits whose reasons the coordinator makes of names and numbers alone.
constexpr const char* kPublicWaitReasons[] = {"resources", "delay", "dependency", "array"};
constexpr const char* kPhases[] = {
    "starting",   "opening-device", "loading-data", "verifying-checkpoint",
    "connecting", "training",       "evaluating",   "checkpointing",
    "finished",
};

template <typename List>
bool Contains(const List& list, absl::string_view text) {
  return absl::c_linear_search(list, text);
}

// "rank 1 on node-2 exited with code 1", without the text that the program left; empty if neither
// rank nor node is known.
std::string PublicMessage(const v1::FirstFailure& failure) {
  const v1::ExitInfo& exit = failure.exit();
  std::string who = failure.node().empty() ? "" : absl::StrCat("node ", failure.node());
  if (failure.has_rank()) who = absl::StrCat("rank ", failure.rank(), " on ", failure.node());
  if (who.empty()) return "";
  if (exit.out_of_memory()) return who + " ran out of memory";
  if (exit.signal() != 0) return absl::StrCat(who, " was killed by signal ", exit.signal());
  if (exit.exit_code() != 0) return absl::StrCat(who, " exited with code ", exit.exit_code());
  return who + " failed";
}

void Show(std::string part, std::string& text, bool& hidden) {
  hidden |= part != text;
  text = std::move(part);
}

void ShowPublicPart(v1::FirstFailure& failure, bool& hidden) {
  Show(PublicMessage(failure), *failure.mutable_message(), hidden);
}

void ShowPublicPart(v1::Progress& progress, bool& hidden) {
  if (!Contains(kPhases, progress.phase())) Show("", *progress.mutable_phase(), hidden);
}

// Replaces texts by their public parts. Returns whether that removes anything.
bool ShowPublicParts(v1::Job& job) {
  bool hidden = false;
  if (job.has_first_failure()) ShowPublicPart(*job.mutable_first_failure(), hidden);
  for (v1::FirstFailure& failure : *job.mutable_past_failures()) ShowPublicPart(failure, hidden);
  if (!Contains(kPublicReasons, job.reason())) {
    Show(job.first_failure().message(), *job.mutable_message(), hidden);
  }
  for (v1::Wait& wait : *job.mutable_waits()) {
    const std::string what = wait.what();
    for (v1::WaitedFor& missing : *wait.mutable_missing()) {
      if (!Contains(kPublicWaitReasons, what)) Show("", *missing.mutable_reason(), hidden);
    }
    if (Contains(kPublicWaits, what) || absl::StartsWith(what, "the end of its ranks on "))
      continue;
    // "barrier world/12", "c10d key …": the program chooses the names.
    const std::string kind = what.substr(0, what.find(' '));
    const bool known = kind == "barrier" || kind == "c10d";
    Show(known ? kind : "the program", *wait.mutable_what(), hidden);
  }
  if (job.has_progress()) ShowPublicPart(*job.mutable_progress(), hidden);
  for (v1::RankStatus& rank : *job.mutable_ranks()) {
    if (rank.has_progress()) ShowPublicPart(*rank.mutable_progress(), hidden);
  }
  return hidden;
}

}  // namespace

absl::Span<const char* const> PublicTexts() { return kPublicTexts; }

void RemovePrivate(v1::Job& job) {
  const bool hidden = ShowPublicParts(job);
  if (Remove(JobPlan(job.shared()), job) || hidden) job.set_private_hidden(true);
}

void RemovePrivate(v1::JobEvent& event) {
  if (!Contains(kPublicEvents, event.type())) event.clear_message();
}

void HidePrivate(const Actor& actor, v1::Job& job) {
  if (!MayUse(job, actor)) RemovePrivate(job);
}

void HidePrivate(const Actor& actor, v1::Node& node) {
  if (!actor.is_admin) node.clear_launch_failure();
}

std::shared_ptr<const v1::Job> VisibleTo(const Actor& actor, std::shared_ptr<const v1::Job> job) {
  if (MayUse(*job, actor)) return job;
  auto visible = std::make_shared<v1::Job>(*job);
  RemovePrivate(*visible);
  return visible;
}

}  // namespace muster::core
