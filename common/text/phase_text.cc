#include "common/text/phase_text.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace muster {
namespace {

std::string Grouped(uint64_t number) {
  std::string text = absl::StrCat(number);
  for (size_t end = text.size(); end > 3; end -= 3) text.insert(end - 3, ",");
  return text;
}

}  // namespace

std::string PhaseText(const v1::Progress& progress) {
  const bool counts = !progress.phase_unit().empty() && progress.phase_progress() > 0;
  if (progress.phase().empty() || !counts) return progress.phase();
  std::string count = Grouped(progress.phase_progress());
  if (progress.phase_total() > 0) {
    absl::StrAppend(&count, " of ", Grouped(progress.phase_total()));
  }
  return absl::StrCat(progress.phase(), ": ", count, " ", progress.phase_unit());
}

}  // namespace muster
