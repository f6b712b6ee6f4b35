#include "coordinator/core/checkpoints.h"

#include <bit>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/core/reasons.h"

namespace muster::core {
namespace {

// Checks that the job could write a checkpoint now.
absl::Status CheckTrains(const Job& job) {
  const std::string& id = job.status.job_id();
  if (!job.is_train()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "job ", id,
        " runs a command, which Muster cannot ask for a checkpoint; requeue the job if "
        "the command writes one on its stop signal"));
  }
  const v1::CheckpointSpec& spec = job.spec().train().checkpoint();
  if (spec.has_keep() && spec.keep() == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("job ", id, " writes no checkpoints: train.checkpoint.keep is 0"));
  }
  if (job.state() != v1::RUNNING || job.generation->ranks[0].gone()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "job ", id, " is ", v1::JobState_Name(job.state()),
        job.state() == v1::RUNNING ? ", but its rank 0 has ended" : "",
        "; only a training that is RUNNING can write a checkpoint: see muster why ", id));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Checkpoints::Request(Job& job, const Actor& actor) {
  absl::Status trains = CheckTrains(job);
  if (!trains.ok()) return trains;
  const GenerationState& generation = *job.generation;
  const v1::NodePlacement& placement = generation.placement(generation.ranks[0].node_rank);
  const Node& node = nodes_.at(NodeName(placement.node()));
  const bool is_connected = node.session.has_value() && node.conflict.empty() &&
                            node.record.incarnation() == placement.incarnation();
  if (!is_connected) {
    return absl::UnavailableError(absl::StrCat("node ", placement.node(),
                                               ", which runs rank 0 of job ", job.status.job_id(),
                                               ", is not connected; try again"));
  }
  v1::CoordinatorMessage message;
  message.mutable_checkpoint()->set_job_id(job.status.job_id());
  message.mutable_checkpoint()->set_generation(generation.record.generation());
  nodes_.Send(node, std::move(message));
  jobs_.AddEvent(job, events::kCheckpointRequested, DoneBy("checkpoint requested", actor));
  return absl::OkStatus();
}

// Reports repeat the status, so only a change is written.
void Checkpoints::Record(Job& job, const v1::CheckpointStatus& reported) {
  const v1::CheckpointStatus before = job.status.checkpoint();
  v1::CheckpointStatus status = before;
  status.set_dir(reported.dir());
  status.set_shared(reported.shared());
  status.set_node(reported.node());
  status.set_step(reported.step());
  status.set_name(reported.name());
  status.set_best_name(reported.best_name());
  status.set_best_step(reported.best_step());
  status.set_failures(reported.failures());
  status.set_failed_step(reported.failed_step());
  status.set_failure(reported.failure());
  if (job.status.has_checkpoint() && status.SerializeAsString() == before.SerializeAsString()) {
    return;
  }
  *job.status.mutable_checkpoint() = std::move(status);
  jobs_.MarkJob(job);
  NoteFailures(job, before);
  if (reported.dir() != before.dir() || reported.node() != before.node()) NoteLocation(job);
}

// Adds an event at the first failure, and then whenever the number has doubled: a job's history
// holds few events.
void Checkpoints::NoteFailures(Job& job, const v1::CheckpointStatus& before) {
  const v1::CheckpointStatus& status = job.status.checkpoint();
  if (status.failures() <= before.failures()) return;
  context_.stats.OnCheckpointFailures(status.failures() - before.failures());
  if (std::bit_width(status.failures()) == std::bit_width(before.failures())) return;
  jobs_.AddEvent(
      job, events::kCheckpointFailed,
      absl::StrCat("the checkpoint of step ", status.failed_step(), " cannot be written to ",
                   status.dir(), status.node().empty() ? "" : absl::StrCat(" on ", status.node()),
                   ": ", status.failure(), "; ", status.failures(),
                   status.failures() == 1 ? " failure" : " failures", " in this generation"));
}

void Checkpoints::NoteLocation(Job& job) {
  const v1::CheckpointStatus& status = job.status.checkpoint();
  if (status.shared() || !job.is_train()) return;
  if (job.generation->record.nodes_size() < 2) return;
  jobs_.AddEvent(job, events::kCheckpointsOnOneNode,
                 absl::StrCat("checkpoints are only on node ", status.node(), ", in ", status.dir(),
                              ": without that node a restart begins at step 0; start the "
                              "coordinator with --checkpoint-dir, or set train.checkpoint.dir to a "
                              "directory that all nodes share"));
}

}  // namespace muster::core
