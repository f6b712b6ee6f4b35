// Checkpoints that several ranks write: each rank writes its part, and rank 0 publishes them.
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "glog/logging.h"
#include "trainer/checkpoint/sharded_checkpoint.h"
#include "trainer/loop/shared_folder.h"
#include "trainer/loop/trainer.h"

namespace muster::train {

absl::StatusOr<bool> Trainer::CanWriteParts() {
  if (!options_.shards_checkpoints || strategy_->checkpoint_part().count == 1) return false;
  const CheckpointDirectory& directory = *options_.checkpoints;
  ASSIGN_OR_RETURN(
      const bool shared,
      CreateSharedFolder(world_, directory.UnfinishedPath(step_), ReportInterval(),
                         [&](const std::function<void()>& on_progress) {
                           return directory.CreateUnfinished(step_, on_progress).status();
                         }));
  CountCollectives(3, 0);
  if (is_first()) directory.Discard(step_);
  LOG_IF(WARNING, !shared && is_first()) << "not all ranks see the checkpoint directory "
                                         << directory.path() << "; gathering checkpoints on rank 0";
  return shared;
}

CheckpointWriter::Write Trainer::WriteOfPart(StateCopy& copy) {
  const CheckpointPart part = strategy_->checkpoint_part();
  const ShardedAttempt attempt = {.folder = options_.checkpoints->UnfinishedPath(copy.state.step),
                                  .id = absl::StrCat(options_.job_id, " ", options_.generation, " ",
                                                     copy.state.step, " ", ++attempts_),
                                  .parts = part.count};
  if (!part.index.has_value()) return nullptr;
  return [this, &copy, attempt, index = *part.index](const ByteProgress& progress) -> absl::Status {
    const CheckpointDirectory& directory = *options_.checkpoints;
    // Rank 0 processes the errors of all ranks.
    if (is_first()) RETURN_IF_ERROR(directory.CheckGeneration());
    const ModelTensors tensors = copy.snapshot.Convert();
    const absl::Status own =
        WritePart(attempt, index, {tensors.model, tensors.optimizer, tensors.average}, progress);
    if (!is_first()) return absl::OkStatus();
    if (!own.ok()) {
      directory.Discard(copy.state.step);
      return Annotate(directory.Explain(own), "write checkpoint");
    }
    PartWait wait;
    wait.check = [this, &progress] {
      // Waiting is progress of this rank: a rank that writes slowly reports its own.
      progress(1);
      return world_.status();
    };
    wait.progress = progress;
    ASSIGN_OR_RETURN(written_, PublishParts(directory, copy.state, attempt, wait));
    return absl::OkStatus();
  };
}

}  // namespace muster::train
