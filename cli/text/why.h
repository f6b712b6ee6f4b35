// Explains a job's current state, as text and as JSON.
#ifndef MUSTER_CLI_TEXT_WHY_H_
#define MUSTER_CLI_TEXT_WHY_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "nlohmann/json_fwd.hpp"
#include "proto/muster/v1/job.pb.h"

namespace muster::cli {

struct WhyFacts {
  v1::Job job;  // as returned by GetJob
  // The jobs that a queued job waits for, the head of the queue first.
  std::vector<v1::Job> ahead;
};

// The rank that the others probably wait for: the straggler with the highest slowdown; without
// stragglers, the rank that has finished the fewest collectives, then the fewest steps, then has
// the oldest report.
struct SlowestRank {
  const v1::RankStatus* rank = nullptr;  // points into the job
  enum class By { kCollectives, kStep, kSilence, kOwnTime } by = By::kSilence;
  const v1::Straggler* straggler = nullptr;  // points into the job; set with kOwnTime
  // Values of the rank that has progressed furthest.
  uint64_t collectives = 0;
  uint64_t step = 0;
};
// Returns nothing if fewer than two ranks are alive and, if any rank reports progress, report it.
std::optional<SlowestRank> FindSlowest(const v1::Job& job);
// The straggler entry of a rank that has not exited; null if it has none.
const v1::Straggler* FindStraggler(const v1::Job& job, const v1::RankStatus& rank);
// The rank's latest slowdown, or that when it was found.
double SlowdownOf(const v1::Straggler& straggler, const v1::RankStatus& rank);

std::string WhyText(const WhyFacts& facts, absl::Time now);
nlohmann::ordered_json WhyJson(const WhyFacts& facts, absl::Time now);

}  // namespace muster::cli

#endif  // MUSTER_CLI_TEXT_WHY_H_
