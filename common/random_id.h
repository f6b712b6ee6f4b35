// Random ids and tokens from the kernel's random source: unpredictable, and unique without
// coordination. coordinator/core does not use it: its ids arrive as part of events.
//
// Thread-safe. No errors: on a kernel without getrandom the process aborts.
#ifndef MUSTER_COMMON_RANDOM_ID_H_
#define MUSTER_COMMON_RANDOM_ID_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace muster {

// A uniformly distributed number, never 0.
uint64_t RandomId();

// `length` characters, each chosen uniformly from `alphabet`, which has 1 to 256 characters.
std::string RandomId(size_t length, absl::string_view alphabet);

// `bits` random bits, a multiple of 4, as lower-case hexadecimal digits.
std::string RandomHexId(size_t bits);

}  // namespace muster

#endif  // MUSTER_COMMON_RANDOM_ID_H_
