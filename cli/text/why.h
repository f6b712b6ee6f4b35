// Why a job is where it is, as an answer to a person and as data.
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
  v1::Job job;                 // as GetJob answers
  std::vector<v1::Job> ahead;  // of a queued job: those before it in the queue, the head first
};

// The rank that keeps the others waiting, if any does: it has finished the fewest collectives, or
// of equals the fewest steps, or of equals it has been silent for longest.
struct SlowestRank {
  const v1::RankStatus* rank = nullptr;  // within the job
  enum class By { kCollectives, kStep, kSilence } by = By::kSilence;
  // The furthest rank's.
  uint64_t collectives = 0;
  uint64_t step = 0;
};
// Nothing where there is no other rank to compare it with.
std::optional<SlowestRank> FindSlowest(const v1::Job& job);

std::string WhyText(const WhyFacts& facts, absl::Time now);
nlohmann::ordered_json WhyJson(const WhyFacts& facts, absl::Time now);

}  // namespace muster::cli

#endif  // MUSTER_CLI_TEXT_WHY_H_
