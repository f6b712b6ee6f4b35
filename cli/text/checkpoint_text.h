// Texts about a train job's checkpoints.
#ifndef MUSTER_CLI_TEXT_CHECKPOINT_TEXT_H_
#define MUSTER_CLI_TEXT_CHECKPOINT_TEXT_H_

#include <string>

#include "proto/muster/v1/job.pb.h"

namespace muster::cli {

// Where the job's newest checkpoint is: "checkpoint: /c/step-00000080 on node-1", or, unless the
// job has succeeded, "newest checkpoint: step 60, /c/step-00000060.g2 on node-1". Empty if there is
// none.
std::string CheckpointText(const v1::Job& job);

// "best checkpoint by test_loss: step 40, /c/step-00000040.g1 on node-1". Empty if there is none.
std::string BestCheckpointText(const v1::Job& job);

// A warning about checkpoints that could not be written in the newest generation; otherwise empty.
std::string CheckpointFailureText(const v1::Job& job);

// The checkpoint that the newest generation resumed from: "resumes from step 60 of job mnist-x7k2,
// /c/step-00000060", or, if the job wrote it itself, "resumes from step 60". If there is none: that
// a restarted job begins at step 0; otherwise empty.
std::string ResumeText(const v1::Job& job);

// Which other job this one has continued: "continued job mnist-x7k2 from /c/step-00000060". Empty
// if there is none.
std::string ContinuedText(const v1::Job& job);

// A warning if a job of several nodes has its checkpoints on one of them; otherwise empty.
std::string CheckpointWarning(const v1::Job& job);

}  // namespace muster::cli

#endif  // MUSTER_CLI_TEXT_CHECKPOINT_TEXT_H_
