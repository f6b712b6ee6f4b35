// JSON of jobs for the status page. Fields whose value is empty or 0 are left out; times are
// seconds since 1970. They contain what the messages do: callers remove what is private first (see
// core/owners/visibility.h).
#ifndef MUSTER_COORDINATOR_SERVICE_HTTP_JSON_JOB_JSON_H_
#define MUSTER_COORDINATOR_SERVICE_HTTP_JSON_JOB_JSON_H_

#include <string>

#include "proto/muster/v1/job.pb.h"

namespace muster::service {

// The row of a list, without what is private.
std::string JobRowJson(const v1::Job& job);
// All that the page of a job shows, except for ranks, events and curves.
std::string JobJson(const v1::Job& job);
// {"total": number, "slowest": rank, "ranks": [...]}. Of more than 256 ranks, those that have
// failed, are slow or are behind in their phase come first.
std::string RanksJson(const v1::Job& job);
// [step, seconds, loss, training accuracy, test accuracy, images/s]; null for values that were not
// reported.
std::string CurvePointJson(const v1::CurvePoint& point);
std::string EventJson(const v1::JobEvent& event);
// The spec without its files.
std::string SpecJson(const v1::JobSpec& spec);
// The software and hardware that ran the newest generation.
std::string EnvironmentJson(const v1::JobHistory& history);

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_HTTP_JSON_JOB_JSON_H_
