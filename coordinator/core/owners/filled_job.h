// A job for tests of what is private.
#ifndef MUSTER_COORDINATOR_CORE_OWNERS_FILLED_JOB_H_
#define MUSTER_COORDINATOR_CORE_OWNERS_FILLED_JOB_H_

#include <string>

#include "proto/muster/v1/job.pb.h"

namespace muster::core {

// Returns a job in which every text field is set, also of all messages in it: those of PublicTexts
// to "public", the others to `text`. Numbers are 1.
v1::Job FilledJob(const std::string& text);

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_OWNERS_FILLED_JOB_H_
