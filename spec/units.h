// Parses and prints human-readable durations and sizes.
#ifndef MUSTER_SPEC_UNITS_H_
#define MUSTER_SPEC_UNITS_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace muster::spec {

// Parses "90s", "10m", "1.5h", "500ms", "1h30m". INVALID_ARGUMENT if the unit is missing, or the
// duration is negative or exceeds 10,000 years (the range of google.protobuf.Duration).
absl::StatusOr<absl::Duration> ParseDuration(absl::string_view text);
std::string DurationText(absl::Duration duration);

// Parses "25MiB", "1.5GiB", "100MB" (powers of ten), "4096". INVALID_ARGUMENT unless the result is
// an integral number of bytes.
absl::StatusOr<uint64_t> ParseSize(absl::string_view text);
// The size in the largest binary unit that divides it.
std::string SizeText(uint64_t size_bytes);

}  // namespace muster::spec

#endif  // MUSTER_SPEC_UNITS_H_
