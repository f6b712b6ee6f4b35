// Identity of a checkpoint's training: the spec fields on which the training state depends.
//
// A checkpoint contains these fields as text, so that a resume can name those that differ. Settings
// that may change on resume are not among them, e.g. the number of steps, the learning rate and the
// location of the data.
#ifndef MUSTER_TRAINER_CHECKPOINT_TRAINING_IDENTITY_H_
#define MUSTER_TRAINER_CHECKPOINT_TRAINING_IDENTITY_H_

#include <cstdint>
#include <string>

#include "proto/muster/v1/job.pb.h"
#include "trainer/checkpoint/checkpoint_files.h"

namespace muster::train {

struct TrainingIdentity {
  TrainingFields fields;
  std::string digest;  // CheckpointState::training_digest in checkpoints of earlier releases
};

// `spec` has its defaults filled in. `shares`: slices of a global batch, on which the state depends
// with deterministic: elastic.
TrainingIdentity TrainingIdentityOf(const v1::TrainSpec& spec, uint32_t shares);

// How the training of a checkpoint with this state differs: "train.global_batch: 256, now 512; …".
// Empty if it is the same. A field that only one side has equals its default, because a later
// release may have added it.
std::string TrainingDifferences(const CheckpointState& state, const TrainingIdentity& training);

}  // namespace muster::train

#endif  // MUSTER_TRAINER_CHECKPOINT_TRAINING_IDENTITY_H_
