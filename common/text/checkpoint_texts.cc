#include "common/text/checkpoint_texts.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace muster {

std::string NewestCheckpointPath(const v1::CheckpointStatus& status) {
  if (!status.name().empty()) return absl::StrCat(status.dir(), "/", status.name());
  // Trainers of earlier versions do not report the name.
  return status.step() == 0 ? "" : absl::StrFormat("%s/step-%08d", status.dir(), status.step());
}

std::string BestCheckpointPath(const v1::CheckpointStatus& status) {
  return status.best_name().empty() ? "" : absl::StrCat(status.dir(), "/", status.best_name());
}

std::string CheckpointFailures(const v1::CheckpointStatus& status) {
  if (status.failures() == 0) return "";
  return absl::StrCat(status.failures(), " failed in this generation, the latest at step ",
                      status.failed_step(), ": ", status.failure());
}

}  // namespace muster
