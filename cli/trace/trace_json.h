// A job's life as a trace that Perfetto and chrome://tracing open.
#ifndef MUSTER_CLI_TRACE_TRACE_JSON_H_
#define MUSTER_CLI_TRACE_TRACE_JSON_H_

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "cli/trace/rank_trace.h"
#include "nlohmann/json.hpp"
#include "proto/muster/v1/job.pb.h"

namespace muster::cli {

// The trace in Chrome's trace event format, in microseconds since the submission. Process 1 is the
// coordinator's view of the job; each node is a process with a thread per rank.
//
// The coordinator's clock is the reference. Times of ranks are those of their nodes, shifted by the
// least amount with which a rank starts after it was placed and connects before all ranks have
// joined; `otherData` has the shifts.
//
// `now` ends the spans of a job that has not ended.
nlohmann::ordered_json TraceJson(const v1::Job& job, absl::Span<const v1::JobEvent> events,
                                 absl::Span<const RankTrace> ranks, absl::Time now);

}  // namespace muster::cli

#endif  // MUSTER_CLI_TRACE_TRACE_JSON_H_
