// Phases and steps that a rank of a train job has recorded (trainer/loop/step_trace.h).
#ifndef MUSTER_CLI_TRACE_RANK_TRACE_H_
#define MUSTER_CLI_TRACE_RANK_TRACE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace muster::cli {

// Times are Unix seconds of the node's clock.
struct RankTrace {
  struct Phase {
    std::string name;
    double start = 0;
  };
  struct Part {  // of a step, in order
    std::string name;
    double seconds = 0;
  };
  struct Step {
    uint64_t number = 0;  // completed steps at its end
    double end = 0;
    double seconds = 0;
    std::vector<Part> parts;
  };

  uint64_t generation = 0;
  uint32_t rank = 0;
  std::string node;
  std::vector<Phase> phases;
  std::vector<Step> steps;
};

// The path of a generation's file in the working directory of a rank.
std::string RankTracePath(uint64_t generation);

// Reads a file of JSON lines. Ignores a last line without an end, and lines that are not
// understood: a newer trainer may write more. INVALID_ARGUMENT if the first line is not that of a
// trace.
absl::StatusOr<RankTrace> ParseRankTrace(absl::string_view text);

// The contents of the first file of a tar archive. INVALID_ARGUMENT if there is none.
absl::StatusOr<std::string> FirstFileOf(absl::string_view archive);

}  // namespace muster::cli

#endif  // MUSTER_CLI_TRACE_RANK_TRACE_H_
