// Checkpoints that several ranks write: each rank writes its part, and rank 0 publishes them.
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "glog/logging.h"
#include "trainer/checkpoint/sharded_checkpoint.h"
#include "trainer/loop/shared_folder.h"
#include "trainer/loop/trainer.h"

namespace muster::train {

absl::StatusOr<bool> Trainer::StartParts() {
  if (!options_.shards_checkpoints || strategy_->checkpoint_part().count == 1) return false;
  const CheckpointDirectory& directory = *options_.checkpoints;
  ASSIGN_OR_RETURN(const bool shared,
                   CreateSharedFolder(world_, directory.UnfinishedPath(step_),
                                      [&] { return directory.CreateUnfinished(step_).status(); }));
  CountCollectives(2, 0);
  if (shared || !is_first()) return shared;
  directory.Discard(step_);
  LOG_FIRST_N(WARNING, 1) << "not all ranks see the checkpoint directory " << directory.path()
                          << "; gathering checkpoints on rank 0";
  return false;
}

CheckpointWriter::Write Trainer::WriteOfPart() {
  const CheckpointPart part = strategy_->checkpoint_part();
  const ShardedAttempt attempt = {
      .folder = options_.checkpoints->UnfinishedPath(step_),
      .id = absl::StrCat(options_.job_id, " ", options_.generation, " ", step_, " ", ++attempts_),
      .parts = part.count};
  if (!part.index.has_value()) return nullptr;
  return [this, attempt, index = *part.index](const ByteProgress& progress) -> absl::Status {
    const absl::Status own = WritePart(
        attempt, index, {snapshot_.model, snapshot_.optimizer, snapshot_.average}, progress);
    // Rank 0 reports the errors of all ranks.
    if (!is_first()) return absl::OkStatus();
    const CheckpointDirectory& directory = *options_.checkpoints;
    if (!own.ok()) {
      directory.Discard(snapshot_.state.step);
      return Annotate(directory.Explain(own), "write checkpoint");
    }
    PartWait wait;
    wait.check = [this, &progress] {
      // Waiting is progress of this rank: a rank that writes slowly reports its own.
      progress(1);
      return world_.status();
    };
    wait.progress = progress;
    ASSIGN_OR_RETURN(written_, PublishParts(directory, snapshot_.state, attempt, wait));
    return absl::OkStatus();
  };
}

}  // namespace muster::train
