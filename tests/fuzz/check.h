// Checks of fuzz targets, and the bytes of an input as text.
#ifndef MUSTER_TESTS_FUZZ_CHECK_H_
#define MUSTER_TESTS_FUZZ_CHECK_H_

#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace muster::fuzz {

inline std::string Text(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Ends the process, which libFuzzer and the replay report as a crash, unless `holds`.
inline void Check(bool holds, absl::string_view property, absl::string_view found = "") {
  if (holds) return;
  constexpr size_t kShownBytes = 4096;
  fprintf(stderr, "violated: %s\n%s\n", std::string(property).c_str(),
          std::string(found.substr(0, kShownBytes)).c_str());
  abort();
}

inline void CheckOk(const absl::Status& status, absl::string_view property) {
  Check(status.ok(), property, status.ToString());
}

}  // namespace muster::fuzz

#endif  // MUSTER_TESTS_FUZZ_CHECK_H_
