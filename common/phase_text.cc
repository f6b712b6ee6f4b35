#include "common/phase_text.h"

#include "absl/strings/str_cat.h"

namespace muster {

std::string PhaseText(const v1::Progress& progress) {
  const bool counts = !progress.phase_unit().empty() && progress.phase_progress() > 0;
  if (progress.phase().empty() || !counts) return progress.phase();
  std::string count = absl::StrCat(progress.phase_progress());
  for (size_t end = count.size(); end > 3; end -= 3) count.insert(end - 3, ",");
  return absl::StrCat(progress.phase(), ": ", count, " ", progress.phase_unit());
}

}  // namespace muster
