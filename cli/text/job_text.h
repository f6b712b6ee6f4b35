// A job in words: its rows, its description, its progress, its failure.
#ifndef MUSTER_CLI_TEXT_JOB_TEXT_H_
#define MUSTER_CLI_TEXT_JOB_TEXT_H_

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "cli/output/console.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::cli {

// `muster list`; more columns when wide.
std::string JobTable(absl::Span<const v1::Job> jobs, bool wide, absl::Time now);

// One row per rank of the newest generation; more columns when wide.
std::string RankTable(const v1::Job& job, bool wide = false);

std::string EventTable(absl::Span<const v1::JobEvent> events, absl::Time now);

// `muster describe`: everything but ranks and events, `key: value` by line.
std::string Description(const v1::Job& job, absl::Time now);

// "step 1175/5875  epoch 1.00/5  loss 0.4213  41,234 images/s  1m52s left".
std::string ProgressText(const v1::Job& job);

// "RankFailed: rank 1 on node-2 exited with code 7".
std::string FailureText(const v1::FirstFailure& failure);

// What the rank itself said of its failure and the last lines of its stderr, indented, each with a
// newline at its end; empty when there is neither.
std::string FailureDetailText(const v1::FirstFailure& failure);

// "The other 7 ranks were stopped because of it." Empty when nobody else was there. Ranks that
// ended by themselves after the first failure are counted as its consequences.
std::string ConsequencesText(const v1::Job& job);

// Whom the job waits for: "resources (node-1: 0 of 1 slots free)". Empty when it waits for nothing.
std::string WaitsText(const v1::Job& job);

// "5,875 steps, 5 epochs, 41,234 images/s, first step after 0.31 s, final loss 0.2134, peak memory
// 210 MiB".
std::string SummaryText(const v1::TrainSummary& summary);

// "succeeded", "failed".
std::string StateWord(v1::JobState state);
Color StateColor(v1::JobState state);

}  // namespace muster::cli

#endif  // MUSTER_CLI_TEXT_JOB_TEXT_H_
