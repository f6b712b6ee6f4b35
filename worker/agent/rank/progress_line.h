// Parses a line of MUSTER_PROGRESS.
#ifndef MUSTER_WORKER_AGENT_RANK_PROGRESS_LINE_H_
#define MUSTER_WORKER_AGENT_RANK_PROGRESS_LINE_H_

#include <string>

#include "absl/strings/string_view.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::agent {

struct ProgressLine {
  bool applied = false;  // at least one value was taken
  std::string problem;   // predicate of "line 3", with the remedy; empty: the line is understood
};

// Applies a line of words of the form KEY=VALUE, or a JSON object, with the keys step, total_steps,
// samples, epoch, loss, learning_rate, images_per_second, test_accuracy and phase. Other keys are
// ignored if the line has one of these; so are other words and JSON nulls. A blank line is
// understood. `line` may contain any bytes: the user's program writes it.
ProgressLine ApplyProgressLine(absl::string_view line, v1::Progress& progress);

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_RANK_PROGRESS_LINE_H_
