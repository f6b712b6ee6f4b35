// Writes a checkpoint that is divided among several ranks, which share its directory.
//
// Each writing rank writes its tensors into the unfinished folder, and last a part file, which
// appears there complete. The rank that publishes waits for all part files, adds the index files,
// the state and the manifest, and publishes the folder as any other checkpoint:
//
//   model-00001-of-00002.safetensors      tensors of part 0: see tensor_set.h
//   optimizer-00001-of-00002.safetensors
//   part-00001.json                       names, sizes and digests, or the error of this rank, or
//                                         nothing if not even the error could be written; removed
//                                         before the folder is published
//   …
//   model.safetensors.index.json          file of each tensor
//   optimizer.safetensors.index.json
//   state.json, manifest.json             see checkpoint.h
//
// Ranks communicate only through the folder, so that each can write in a thread of its own while
// the training continues.
#ifndef MUSTER_TRAINER_CHECKPOINT_SHARDED_CHECKPOINT_H_
#define MUSTER_TRAINER_CHECKPOINT_SHARDED_CHECKPOINT_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/checkpoint_files.h"
#include "trainer/checkpoint/safetensors.h"

namespace muster::train {

// One attempt to write one checkpoint; the same on all ranks.
struct ShardedAttempt {
  std::string folder;  // CheckpointDirectory::UnfinishedPath; created by the first rank that writes
  // Differs from the ids of all other attempts, so that parts left by them are ignored.
  std::string id;
  uint32_t parts = 0;
};

// Tensors of one part; a file without tensors is not written.
struct PartTensors {
  absl::Span<const Tensor> model, optimizer, average;
};

// Writes part `index`, from 0. If this fails, removes the part's files, so that the report fits on
// a full disk, reports the error to the rank that publishes, and returns it: that of CheckFinite,
// or that of errno with the path.
absl::Status WritePart(const ShardedAttempt& attempt, uint32_t index, const PartTensors& tensors,
                       const ByteProgress& progress = {});

struct PartWait {
  // Longest time without a new or growing file in the folder.
  absl::Duration timeout = absl::Minutes(5);
  // Doubled after each poll, up to half a second: listing a folder of many parts costs the file
  // system a request per file.
  absl::Duration poll_interval = absl::Milliseconds(20);
  // Called after each poll that finds parts missing; an error ends the wait.
  std::function<absl::Status()> check = [] { return absl::OkStatus(); };
  // Receives the growth of the folder's files during the wait, at least 1 per new file.
  ByteProgress progress;
};

// Called by one rank. Waits until all parts are written and publishes the checkpoint of `state`.
// After an error the unfinished folder is discarded: DEADLINE_EXCEEDED with the missing parts; the
// error of a rank that could not write its part, with its exit code; the error of wait.check;
// INTERNAL if two parts have the same tensor; errors of CheckpointDirectory::Publish.
absl::StatusOr<CheckpointRef> PublishParts(const CheckpointDirectory& directory,
                                           const CheckpointState& state,
                                           const ShardedAttempt& attempt,
                                           const PartWait& wait = {});

}  // namespace muster::train

#endif  // MUSTER_TRAINER_CHECKPOINT_SHARDED_CHECKPOINT_H_
