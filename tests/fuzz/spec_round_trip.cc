#include "tests/fuzz/spec_round_trip.h"

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/util/field_comparator.h"
#include "google/protobuf/util/message_differencer.h"
#include "spec/array.h"
#include "spec/files.h"
#include "spec/spec.h"
#include "tests/fuzz/check.h"

namespace muster::fuzz {
namespace {

constexpr uint64_t kExpandedTasks = 16;

void CheckEqual(const v1::JobSpec& a, const v1::JobSpec& b, absl::string_view property) {
  std::string differences;
  google::protobuf::util::DefaultFieldComparator comparator;
  comparator.set_treat_nan_as_equal(true);
  google::protobuf::util::MessageDifferencer differencer;
  differencer.set_field_comparator(&comparator);
  differencer.ReportDifferencesToString(&differences);
  const bool equal = differencer.Compare(a, b);
  Check(equal, property, differences);
}

}  // namespace

void CheckSpec(v1::JobSpec spec) {
  const v1::JobSpec submitted = spec;
  spec::ApplyDefaults(spec);
  v1::JobSpec again = spec;
  spec::ApplyDefaults(again);
  CheckEqual(spec, again, "defaults are complete");
  const std::string yaml = spec::ToYaml(spec);
  spec::CheckPlaceholders(spec).IgnoreError();
  spec::CheckUploadedFiles(spec).IgnoreError();
  if (!spec::Validate(spec).ok()) return;
  if (spec.has_array() && spec::CountTasks(spec.array()) <= kExpandedTasks) {
    spec::ExpandArray(submitted).IgnoreError();
  }
  absl::StatusOr<v1::JobSpec> parsed = spec::Parse(yaml, "yaml");
  Check(parsed.ok(), "a valid spec prints as YAML that parses",
        absl::StrCat(parsed.status().ToString(), "\n", yaml));
  spec::ApplyDefaults(*parsed);
  CheckEqual(spec, *parsed, "a valid spec prints as YAML of the same spec");
}

}  // namespace muster::fuzz
