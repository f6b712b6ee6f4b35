// Numbers of waits by their length, in powers of two seconds.
#ifndef MUSTER_COORDINATOR_CORE_OWNERS_WAIT_HISTOGRAM_H_
#define MUSTER_COORDINATOR_CORE_OWNERS_WAIT_HISTOGRAM_H_

#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "google/protobuf/repeated_field.h"

namespace muster::core {

// The stored form: element 0 counts waits below 1 s, element i those below 2^i s, and the last one
// all that are longer. Missing elements at the end are 0.
using WaitCounts = google::protobuf::RepeatedField<uint32_t>;

void AddWait(absl::Duration wait, WaitCounts& counts);
void MergeWaits(const WaitCounts& from, WaitCounts& to);
// The smallest power of two seconds that `share` (0 to 1) of the waits do not exceed; nullopt
// without waits.
std::optional<absl::Duration> WaitPercentile(const WaitCounts& counts, double share);

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_OWNERS_WAIT_HISTOGRAM_H_
