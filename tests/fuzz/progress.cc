// Lines that a program appends to MUSTER_PROGRESS, read while it writes them.
#include <cmath>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "common/report_bounds.h"
#include "proto/muster/v1/worker.pb.h"
#include "tests/fuzz/check.h"
#include "tests/fuzz/temporary_folder.h"
#include "worker/agent/rank/progress_file.h"

namespace muster {
namespace {

const Time kNow = {SteadyTime(absl::Hours(1)), absl::UnixEpoch()};

// The file's progress after it has been read at this length, and at its end.
v1::Progress ReadTwice(const std::string& text, size_t length, std::string& warning) {
  const fuzz::TemporaryFolder folder;
  agent::ProgressFile file(folder.Write("progress", text.substr(0, length)));
  v1::Progress progress = file.Read(kNow).value_or(v1::Progress());
  folder.Write("progress", text);
  if (std::optional<v1::Progress> later = file.Read(kNow); later.has_value()) progress = *later;
  warning = file.TakeWarning();
  // These depend on the steps that earlier reads have seen.
  progress.clear_time_left();
  progress.clear_first_step_time();
  if (progress.phase() == "training") progress.clear_phase();
  return progress;
}

}  // namespace
}  // namespace muster

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster;
  const std::string text = fuzz::Text(data, size);
  std::string warning;
  std::string other_warning;
  const v1::Progress progress = ReadTwice(text, text.size(), warning);
  const v1::Progress in_pieces = ReadTwice(text, text.size() / 2, other_warning);
  fuzz::Check(warning == other_warning, "pieces of the file give the same warning",
              warning + "\n" + other_warning);
  fuzz::Check(progress.SerializeAsString() == in_pieces.SerializeAsString(),
              "pieces of the file give the same progress",
              progress.ShortDebugString() + "\n" + in_pieces.ShortDebugString());
  fuzz::Check(std::isfinite(progress.learning_rate()) && progress.learning_rate() >= 0,
              "rates are finite");
  v1::RankReport report;
  *report.mutable_progress() = progress;
  Clamp(report);
  return 0;
}
