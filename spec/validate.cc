#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "spec/array.h"
#include "spec/check_fields.h"
#include "spec/problems.h"
#include "spec/rules.h"
#include "spec/spec.h"

namespace muster::spec {

void CheckSpec(const v1::JobSpec& spec, Problems& problems) {
  CheckFields(spec, "", problems);
  CheckJobRules(spec, problems);
  if (spec.has_train()) CheckTrainRules(spec, problems);
}

absl::Status Validate(const v1::JobSpec& spec) {
  if (spec.has_array()) return ExpandArray(spec).status();
  return ValidateJob(spec);
}

absl::Status ValidateJob(const v1::JobSpec& spec) {
  if (spec.ByteSizeLong() > limits::kSpecBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the spec is ", spec.ByteSizeLong(), " bytes long; the limit is ", limits::kSpecBytes));
  }
  Problems problems;
  CheckSpec(spec, problems);
  return problems.status();
}

}  // namespace muster::spec
