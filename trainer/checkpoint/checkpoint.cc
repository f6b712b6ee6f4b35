#include "trainer/checkpoint/checkpoint.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "common/status.h"
#include "glog/logging.h"
#include "trainer/checkpoint/durable_file.h"

namespace muster::train {
namespace {

namespace fs = std::filesystem;

constexpr absl::string_view kStepPrefix = "step-";
constexpr absl::string_view kUnfinishedPrefix = ".unfinished-";

std::optional<uint64_t> StepOfName(absl::string_view name) {
  uint64_t step = 0;
  if (!absl::ConsumePrefix(&name, kStepPrefix) || name.size() < 8 ||
      !absl::SimpleAtoi(name, &step)) {
    return std::nullopt;
  }
  return step;
}

std::vector<fs::path> Entries(const std::string& directory) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    entries.push_back(it->path());
  }
  return entries;
}

void RemoveTree(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) LOG(WARNING) << "cannot remove " << path.string() << ": " << error.message();
}

}  // namespace

CheckpointDirectory::CheckpointDirectory(const CheckpointOptions& options)
    : options_(options), fence_(options.path, options.job_id, options.generation) {}

absl::StatusOr<CheckpointDirectory> CheckpointDirectory::OpenForWriting(
    const CheckpointOptions& options) {
  std::error_code error;
  if (options.create_parents) {
    fs::create_directories(options.path, error);
  } else {
    fs::create_directory(options.path, error);
  }
  if (error) {
    return ErrnoStatus(
        error.value(),
        absl::StrCat("create checkpoint directory ", options.path,
                     options.create_parents ? "" : ", whose parent must exist on every node"));
  }
  CheckpointDirectory directory(options);
  RETURN_IF_ERROR(directory.fence_.Raise());
  directory.RemoveLeftovers();
  return directory;
}

absl::StatusOr<CheckpointDirectory> CheckpointDirectory::OpenForReading(
    const CheckpointOptions& options) {
  CheckpointDirectory directory(options);
  std::error_code error;
  if (!fs::is_directory(options.path, error)) return directory;
  const absl::Status raised = directory.fence_.Raise();
  if (absl::IsAborted(raised)) return raised;
  if (!raised.ok()) LOG(WARNING) << "cannot raise the checkpoint fence: " << raised.message();
  return directory;
}

CheckpointDirectory CheckpointDirectory::OpenUnfenced(const std::string& path) {
  return CheckpointDirectory(CheckpointOptions{.path = path});
}

std::string CheckpointDirectory::StepPath(uint64_t step) const {
  return absl::StrFormat("%s/%s%08d", options_.path, kStepPrefix, step);
}

std::string CheckpointDirectory::ModelPath(uint64_t step) const {
  return absl::StrCat(StepPath(step), "/", kModelFile);
}

std::string CheckpointDirectory::OptimizerPath(uint64_t step) const {
  return absl::StrCat(StepPath(step), "/", kOptimizerFile);
}

std::optional<std::string> CheckpointDirectory::AveragePath(uint64_t step) const {
  std::string path = absl::StrCat(StepPath(step), "/", kAverageFile);
  std::error_code error;
  if (!fs::exists(path, error)) return std::nullopt;
  return path;
}

std::vector<uint64_t> CheckpointDirectory::Steps() const {
  std::vector<uint64_t> steps;
  for (const fs::path& path : Entries(options_.path)) {
    if (const auto step = StepOfName(path.filename().string())) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end(), std::greater<>());
  return steps;
}

std::optional<CheckpointState> CheckpointDirectory::FindNewestValid() const {
  const std::vector<uint64_t> steps = Steps();
  for (const uint64_t step : steps) {
    auto state = Verify(step);
    if (state.ok()) return *std::move(state);
    LOG(WARNING) << "skipping invalid checkpoint, "
                 << (step == steps.back() ? "no earlier one exists: "
                                          : "falling back to the previous one: ")
                 << state.status().message();
  }
  return std::nullopt;
}

std::optional<CheckpointState> CheckpointDirectory::PeekNewest() const {
  for (const uint64_t step : Steps()) {
    auto state = ReadState(StepPath(step));
    if (state.ok() && state->step == step) return *std::move(state);
  }
  return std::nullopt;
}

absl::StatusOr<CheckpointState> CheckpointDirectory::Verify(uint64_t step) const {
  RETURN_IF_ERROR(VerifyManifest(StepPath(step)));
  ASSIGN_OR_RETURN(CheckpointState state, ReadState(StepPath(step)));
  if (state.step != step) {
    return absl::DataLossError(
        absl::StrCat(StepPath(step), " contains the state of step ", state.step));
  }
  return state;
}

absl::Status CheckpointDirectory::Write(const Checkpoint& checkpoint) const {
  const uint64_t step = checkpoint.state.step;
  const std::string unfinished =
      absl::StrCat(options_.path, "/", kUnfinishedPrefix, options_.generation, "-", step);
  RemoveTree(unfinished);
  absl::Status status = WriteFiles(unfinished, checkpoint);
  if (status.ok()) {
    status = fence_.Publish([&] { return MoveIntoPlace(unfinished, step); });
  }
  if (!status.ok()) {
    RemoveTree(unfinished);
    return Annotate(status, "write checkpoint");
  }
  RemoveOld(step);
  return absl::OkStatus();
}

absl::Status CheckpointDirectory::WriteFiles(const std::string& directory,
                                             const Checkpoint& checkpoint) const {
  std::error_code error;
  fs::create_directory(directory, error);
  if (error) return ErrnoStatus(error.value(), absl::StrCat("create ", directory));
  Manifest manifest;
  RETURN_IF_ERROR(WriteTensors(directory, kModelFile, checkpoint.model, manifest));
  RETURN_IF_ERROR(WriteTensors(directory, kOptimizerFile, checkpoint.optimizer, manifest));
  if (!checkpoint.average.empty()) {
    RETURN_IF_ERROR(WriteTensors(directory, kAverageFile, checkpoint.average, manifest));
  }
  RETURN_IF_ERROR(WriteState(directory, checkpoint.state, manifest));
  RETURN_IF_ERROR(WriteManifest(directory, manifest));
  return SyncDirectory(directory);
}

absl::Status CheckpointDirectory::MoveIntoPlace(const std::string& from, uint64_t step) const {
  const std::string target = StepPath(step);
  // Moves aside a damaged checkpoint of this step, which an earlier resume has skipped.
  const std::string replaced = from + "-replaced";
  const bool make_room = rename(target.c_str(), replaced.c_str()) == 0;
  if (rename(from.c_str(), target.c_str()) != 0) {
    return ErrnoStatus(errno, absl::StrCat("rename ", from, " to ", target));
  }
  RETURN_IF_ERROR(SyncDirectory(options_.path));
  if (make_room) RemoveTree(replaced);
  return absl::OkStatus();
}

void CheckpointDirectory::RemoveOld(uint64_t newest_step) const {
  uint32_t kept = 0;
  for (const uint64_t step : Steps()) {
    // Checkpoints of later steps are damaged; otherwise training would have resumed from them.
    if (step <= newest_step && kept++ < std::max(1u, options_.keep)) continue;
    RemoveTree(StepPath(step));
  }
}

void CheckpointDirectory::RemoveLeftovers() const {
  for (const fs::path& path : Entries(options_.path)) {
    if (absl::StartsWith(path.filename().string(), std::string(kUnfinishedPrefix))) {
      RemoveTree(path);
    }
  }
}

}  // namespace muster::train
