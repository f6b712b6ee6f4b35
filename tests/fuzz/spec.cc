// Job specs as text, YAML and JSON.
#include "spec/spec.h"

#include <string>

#include "absl/status/statusor.h"
#include "tests/fuzz/check.h"
#include "tests/fuzz/spec_round_trip.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster;
  const std::string text = fuzz::Text(data, size);
  const absl::StatusOr<v1::JobSpec> parsed = spec::Parse(text, "job.yaml");
  const absl::StatusOr<v1::JobSpec> reported = spec::ParseReportingAll(text, "job.yaml");
  fuzz::Check(parsed.ok() == reported.ok(), "both functions accept the same specs",
              reported.status().ToString());
  if (parsed.ok()) fuzz::CheckSpec(*parsed);
  return 0;
}
