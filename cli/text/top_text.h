// The text of `muster top`.
#ifndef MUSTER_CLI_TEXT_TOP_TEXT_H_
#define MUSTER_CLI_TEXT_TOP_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "proto/muster/v1/job.pb.h"

namespace muster::cli {

struct TopFacts {
  std::vector<v1::Job> jobs;  // running and starting ones, with their ranks
  uint32_t more_jobs = 0;     // such jobs that are not in `jobs`
  uint32_t queued = 0;
};

// A table with a row for each job and, below it, one for each rank. No line is longer than `width`
// columns, which is at least 60. Of a job with more than `max_ranks` ranks, the slowest and the
// first ones are shown.
std::string TopText(const TopFacts& facts, size_t width, size_t max_ranks);

}  // namespace muster::cli

#endif  // MUSTER_CLI_TEXT_TOP_TEXT_H_
