// Durations and sizes as people write them.
#ifndef MUSTER_SPEC_UNITS_H_
#define MUSTER_SPEC_UNITS_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace muster::spec {

// "90s", "10m", "1.5h", "500ms", "1h30m". INVALID_ARGUMENT without a unit, below zero or beyond
// 10,000 years (the range of google.protobuf.Duration).
absl::StatusOr<absl::Duration> ParseDuration(absl::string_view text);
std::string DurationText(absl::Duration duration);

// "25MiB", "1.5GiB", "100MB" (powers of ten), "4096". INVALID_ARGUMENT unless it is a whole number
// of bytes.
absl::StatusOr<uint64_t> ParseSize(absl::string_view text);
// In the largest binary unit that divides it.
std::string SizeText(uint64_t size_bytes);

}  // namespace muster::spec

#endif  // MUSTER_SPEC_UNITS_H_
