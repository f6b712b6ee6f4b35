// The streams of server-sent events behind the views of the status page. Each function runs on the
// thread of one stream, sends the whole state at first and then what changes, at most once per
// kPageInterval, until the client or the coordinator ends.
#ifndef MUSTER_COORDINATOR_SERVICE_HTTP_STREAMS_STREAMS_H_
#define MUSTER_COORDINATOR_SERVICE_HTTP_STREAMS_STREAMS_H_

#include <string>

#include "coordinator/core/actor.h"
#include "coordinator/service/http/streams/event_writer.h"
#include "coordinator/service/http/streams/page_sources.h"
#include "proto/muster/v1/cluster.pb.h"

namespace muster::service {

// Events "jobs" (a window of the list), "nodes" and "queue".
void StreamOverview(PageSources& sources, const JobIndex::Query& query, EventWriter& out);
// Events "spec", "job", "curves", "events" and "environment".
void StreamJob(PageSources& sources, const core::Actor& viewer, const std::string& job,
               EventWriter& out);
// Event "node".
void StreamNode(PageSources& sources, const core::Actor& viewer, const std::string& node,
                EventWriter& out);
// Event "comparison". `jobs`: ids, separated by commas; `array`: instead, the tasks of an array.
void StreamComparison(PageSources& sources, const core::Actor& viewer, const std::string& jobs,
                      const std::string& array, EventWriter& out);
// Events "log" and, when the rank has exited and its log is complete, "end".
void StreamLog(PageSources& sources, const core::Actor& viewer, v1::ReadLogRequest request,
               EventWriter& out);

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_HTTP_STREAMS_STREAMS_H_
