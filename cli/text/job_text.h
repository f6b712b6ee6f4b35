// Formats jobs as text: tables, progress, and failures.
#ifndef MUSTER_CLI_TEXT_JOB_TEXT_H_
#define MUSTER_CLI_TEXT_JOB_TEXT_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "cli/output/console.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::cli {

// The table of `muster list`, with arrays of jobs, "sweep-x7k2q[12]", in place of their tasks. Both
// lists are newest first; `wide` adds columns.
std::string JobTable(absl::Span<const v1::Job> jobs, absl::Span<const v1::JobArray> arrays,
                     bool wide, absl::Time now);

// "5/12 done", "5/12 done, 1 not successful".
std::string ArrayProgress(const v1::JobArray& array);

// One row per rank of the newest generation; `wide` adds columns.
std::string RankTable(const v1::Job& job, bool wide = false);

// "4", or "1-4" for an elastic job.
std::string NodesText(const v1::NodeCount& nodes);

// Job.world_size, or the most that it can be if the coordinator is too old to report it.
uint32_t WorldSize(const v1::Job& job);

// Time from the job's first start until it finished, or until now; empty if it has not started.
std::string DurationText(const v1::Job& job, absl::Time now);

// "step 1175/5875  epoch 1.00/5  loss 0.4213  41,234 images/s  1m52s left".
std::string ProgressText(const v1::Job& job);

// "RankFailed: rank 1 on node-2 exited with code 7".
std::string FailureText(const v1::FirstFailure& failure);

// The error that the rank reported and the last lines of its output, indented, each ending with a
// newline; empty if there is neither. Leaves out output that only repeats the error.
// `with_output`: false if the reader has seen the output.
std::string FailureDetailText(const v1::FirstFailure& failure, bool with_output = true);

// "12 more failures, between these, are no longer kept"; empty if none was omitted.
std::string OmittedFailuresText(const v1::Job& job);

// "7 other ranks were stopped because of it." Empty if there was no other rank. Ranks that failed
// by themselves after the first failure are counted as its consequences.
std::string ConsequencesText(const v1::Job& job);

// The waits of the job: "resources (node-1: 0 of 1 slots free)". Empty if it waits for nothing.
std::string WaitsText(const v1::Job& job);

// "5,875 steps, 5 epochs, 41,234 images/s, first step after 0.31 s, final loss 0.2134, peak memory
// 210 MiB".
std::string SummaryText(const v1::TrainSummary& summary);

// "succeeded", "failed".
std::string StateWord(v1::JobState state);
Color StateColor(v1::JobState state);

}  // namespace muster::cli

#endif  // MUSTER_CLI_TEXT_JOB_TEXT_H_
