#include "trainer/checkpoint/checkpoint.h"

#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "glog/logging.h"
#include "trainer/checkpoint/finite.h"
#include "trainer/checkpoint/tensor_set.h"

namespace muster::train {
namespace {

namespace fs = std::filesystem;

// Scans of a directory whose folders are claimed or removed in the meantime.
constexpr int kMaxScans = 100;

bool IsGone(int error) { return error == ENOENT || error == ESTALE; }
bool IsOccupied(int error) { return error == ENOTEMPTY || error == EEXIST; }
bool IsDenied(int error) { return error == EROFS || error == EACCES || error == EPERM; }

}  // namespace

CheckpointDirectory::CheckpointDirectory(const CheckpointOptions& options, bool read_only)
    : options_(options), owner_{options.job_id, options.generation}, read_only_(read_only) {}

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
  // A checkpoint that cannot be written later may be tolerated; a wrong directory is not.
  if (access(options.path.c_str(), W_OK | X_OK) != 0) {
    return ErrnoStatus(errno, absl::StrCat("write to checkpoint directory ", options.path));
  }
  CheckpointDirectory directory(options, /*read_only=*/false);
  ASSIGN_OR_RETURN(const Listing listing, directory.List());
  RETURN_IF_ERROR(directory.CheckGeneration(listing));
  RETURN_IF_ERROR(directory.DeleteLeftovers());
  return directory;
}

CheckpointDirectory CheckpointDirectory::OpenForReading(const CheckpointOptions& options) {
  return CheckpointDirectory(options, /*read_only=*/false);
}

CheckpointDirectory CheckpointDirectory::OpenReadOnly(const std::string& path) {
  return CheckpointDirectory(CheckpointOptions{.path = path}, /*read_only=*/true);
}

std::string CheckpointDirectory::FolderPath(const std::string& name) const {
  return absl::StrCat(options_.path, "/", name);
}

std::string CheckpointDirectory::ModelPath(const std::string& name) const {
  return absl::StrCat(FolderPath(name), "/", kModelFile);
}

std::string CheckpointDirectory::OptimizerPath(const std::string& name) const {
  return absl::StrCat(FolderPath(name), "/", kOptimizerFile);
}

std::optional<std::string> CheckpointDirectory::AveragePath(const std::string& name) const {
  std::string path = absl::StrCat(FolderPath(name), "/", kAverageFile);
  if (!TensorsExist(path)) return std::nullopt;
  return path;
}

absl::StatusOr<CheckpointDirectory::Listing> CheckpointDirectory::List(
    const std::function<void()>& on_progress) const {
  Listing listing;
  bool complete = false;
  for (int scan = 0; scan < kMaxScans && !complete; ++scan) {
    ASSIGN_OR_RETURN(const auto names, options_.operations->List(options_.path));
    listing = {};
    complete = true;
    for (const std::string& name : names) {
      const auto parsed = ParseFolderName(name);
      if (!parsed.has_value()) continue;
      auto state = options_.operations->ReadState(FolderPath(name));
      if (on_progress != nullptr) on_progress();
      if (absl::IsNotFound(state.status())) {
        complete = false;  // claimed, with a name that may not be in `names`, or removed
        continue;
      }
      if (state.ok() && state->step != parsed->step) {
        state = absl::DataLossError(
            absl::StrCat(FolderPath(name), " contains the state of step ", state->step));
      }
      Folder folder{name, parsed->step, parsed->generation, std::nullopt, {}, {}};
      if (state.ok()) {
        folder.job_id = state->job_id;
        folder.test_accuracy = state->test_accuracy;
        folder.test_loss = state->test_loss;
      }
      listing.folders.push_back(std::move(folder));
      listing.states.emplace(name, std::move(state));
    }
  }
  SortNewestFirst(listing.folders, owner_.job_id);
  return listing;
}

absl::Status CheckpointDirectory::CheckGeneration(const Listing& listing) const {
  if (read_only_) return absl::OkStatus();
  const auto newer = NewerGeneration(listing.folders, owner_);
  if (!newer.has_value()) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat(options_.path, " now belongs to generation ", *newer,
                                         " of the job; generation ", owner_.generation,
                                         " must not use it"));
}

absl::Status CheckpointDirectory::Explain(const absl::Status& status) const {
  if (status.ok()) return status;
  RETURN_IF_ERROR(CheckGeneration());
  return status;
}

absl::StatusOr<std::optional<FoundCheckpoint>> CheckpointDirectory::FindNewestValid(
    const Verifier& verifier, const Accept& accept) const {
  std::set<std::string> skipped;
  const auto skip = [&](const std::string& name, absl::string_view message) {
    if (skipped.insert(name).second) LOG(WARNING) << message;
  };
  for (int scan = 0; scan < kMaxScans; ++scan) {
    ASSIGN_OR_RETURN(const Listing listing, List());
    RETURN_IF_ERROR(CheckGeneration(listing));
    bool changed = false;  // a folder of the listing is gone
    for (const Folder& folder : listing.folders) {
      if (skipped.contains(folder.name)) continue;
      const absl::StatusOr<CheckpointState>& state = listing.states.at(folder.name);
      if (!state.ok()) {
        skip(folder.name, absl::StrCat("skipping checkpoint without a valid state, which will not "
                                       "be removed: ",
                                       state.status().message()));
        continue;
      }
      if (accept) RETURN_IF_ERROR(accept(*state));
      ASSIGN_OR_RETURN(const auto name, Claim(folder));
      changed = !name.has_value();
      if (changed) break;
      auto verified = Verify(*name, verifier);
      if (verified.ok()) return FoundCheckpoint{*name, *std::move(verified)};
      if (absl::IsAborted(verified.status())) return verified.status();
      changed = absl::IsNotFound(options_.operations->ReadState(FolderPath(*name)).status());
      if (changed) break;
      skip(*name, absl::StrCat("skipping invalid checkpoint: ", verified.status().message()));
    }
    if (!changed) return std::nullopt;
  }
  return absl::UnavailableError(absl::StrCat(
      options_.path, ": checkpoints were removed during each of ", kMaxScans, " scans"));
}

absl::StatusOr<std::optional<CheckpointRef>> CheckpointDirectory::FindBest(
    const std::function<void()>& on_progress) const {
  if (options_.keep_best.empty()) return std::nullopt;
  ASSIGN_OR_RETURN(const Listing listing, List(on_progress));
  const Folder* const best = BestFolder(listing.folders, owner_, options_.keep_best);
  if (best == nullptr) return std::nullopt;
  return CheckpointRef{best->name, best->step};
}

absl::StatusOr<std::optional<std::string>> CheckpointDirectory::Claim(const Folder& folder) const {
  if (read_only_ || !MustClaim(folder, owner_)) return folder.name;
  for (const std::string& job : JobsInNames()) {
    const std::string name = FormatFolderName({folder.step, owner_.generation, job});
    const int error = options_.operations->Rename(FolderPath(folder.name), FolderPath(name));
    if (error == 0) return name;
    if (IsGone(error)) return std::nullopt;
    if (IsDenied(error)) return folder.name;
    if (!IsOccupied(error)) {
      return ErrnoStatus(error, absl::StrCat("rename ", FolderPath(folder.name), " to ", name));
    }
  }
  return folder.name;
}

absl::StatusOr<CheckpointState> CheckpointDirectory::Verify(const std::string& name,
                                                            const Verifier& verifier) const {
  const absl::Status verified = verifier.Verify(FolderPath(name));
  if (!verified.ok()) return Explain(verified);
  auto state = options_.operations->ReadState(FolderPath(name));
  if (!state.ok()) return Explain(state.status());
  return state;
}

absl::StatusOr<CheckpointRef> CheckpointDirectory::Write(const Checkpoint& checkpoint,
                                                         const ByteProgress& progress) const {
  const uint64_t step = checkpoint.state.step;
  RETURN_IF_ERROR(CheckFinite(kModelFile, checkpoint.model));
  RETURN_IF_ERROR(CheckFinite(kOptimizerFile, checkpoint.optimizer));
  RETURN_IF_ERROR(CheckFinite(kAverageFile, checkpoint.average));
  ASSIGN_OR_RETURN(const std::string unfinished, CreateUnfinished(step));
  const absl::Status written = WriteFiles(unfinished, checkpoint, progress);
  if (!written.ok()) {
    Discard(step);
    return Annotate(Explain(written), "write checkpoint");
  }
  return Publish(step);
}

absl::Status CheckpointDirectory::WriteFiles(const std::string& directory,
                                             const Checkpoint& checkpoint,
                                             const ByteProgress& progress) const {
  Manifest manifest;
  RETURN_IF_ERROR(WriteTensors(directory, kModelFile, checkpoint.model, progress, manifest));
  RETURN_IF_ERROR(
      WriteTensors(directory, kOptimizerFile, checkpoint.optimizer, progress, manifest));
  if (!checkpoint.average.empty()) {
    RETURN_IF_ERROR(WriteTensors(directory, kAverageFile, checkpoint.average, progress, manifest));
  }
  RETURN_IF_ERROR(WriteState(directory, checkpoint.state, manifest));
  return WriteManifest(directory, manifest);
}

std::string CheckpointDirectory::UnfinishedPath(uint64_t step) const {
  return FolderPath(UnfinishedFolderName({step, owner_.generation, owner_.job_id}));
}

absl::Status CheckpointDirectory::CheckGeneration(const std::function<void()>& on_progress) const {
  ASSIGN_OR_RETURN(const Listing listing, List(on_progress));
  return CheckGeneration(listing);
}

absl::StatusOr<std::string> CheckpointDirectory::CreateUnfinished(
    uint64_t step, const std::function<void()>& on_progress) const {
  RETURN_IF_ERROR(CheckGeneration(on_progress));
  std::string path = UnfinishedPath(step);
  RETURN_IF_ERROR(options_.operations->Delete(path));
  RETURN_IF_ERROR(options_.operations->Create(path));
  return path;
}

absl::StatusOr<CheckpointRef> CheckpointDirectory::Publish(uint64_t step) const {
  const absl::StatusOr<std::string> name = MoveIntoPlace(step);
  if (!name.ok()) {
    Discard(step);
    return Annotate(Explain(name.status()), "publish checkpoint");
  }
  ASSIGN_OR_RETURN(Listing listing, List());
  RETURN_IF_ERROR(CheckGeneration(listing));
  RemoveOld(listing, step);
  // Those of later steps have been removed.
  std::erase_if(listing.folders, [&](const Folder& folder) { return folder.step > step; });
  CheckpointRef published = {.name = *name, .step = step};
  const Folder* const best = BestFolder(listing.folders, owner_, options_.keep_best);
  if (best != nullptr) {
    published.best_name = best->name;
    published.best_step = best->step;
  }
  return published;
}

void CheckpointDirectory::Discard(uint64_t step) const {
  const absl::Status deleted = options_.operations->Delete(UnfinishedPath(step));
  LOG_IF(WARNING, !deleted.ok()) << deleted.message();
}

absl::StatusOr<std::string> CheckpointDirectory::MoveIntoPlace(uint64_t step) const {
  const std::string unfinished = UnfinishedPath(step);
  RETURN_IF_ERROR(options_.operations->Sync(unfinished));
  int error = 0;
  for (const std::string& job : JobsInNames()) {
    std::string name = FormatFolderName({step, owner_.generation, job});
    error = options_.operations->Rename(unfinished, FolderPath(name));
    if (IsOccupied(error) && IsOwn(name)) {
      RETURN_IF_ERROR(RemoveFolder(name));
      error = options_.operations->Rename(unfinished, FolderPath(name));
    }
    if (error == 0) {
      RETURN_IF_ERROR(options_.operations->Sync(options_.path));
      return name;
    }
    if (!IsOccupied(error)) break;
  }
  return ErrnoStatus(error, absl::StrCat("rename ", unfinished));
}

std::vector<std::string> CheckpointDirectory::JobsInNames() const {
  if (options_.shared) return {owner_.job_id};
  return {"", owner_.job_id};
}

// Only this job's folders have its ID in the name.
bool CheckpointDirectory::IsOwn(const std::string& name) const {
  const auto parsed = ParseFolderName(name);
  if (parsed.has_value() && !parsed->job_id.empty()) return parsed->job_id == owner_.job_id;
  const auto state = options_.operations->ReadState(FolderPath(name));
  return state.ok() && state->job_id == owner_.job_id;
}

absl::Status CheckpointDirectory::RemoveFolder(const std::string& name) const {
  FolderName parsed = *ParseFolderName(name);
  parsed.job_id = owner_.job_id;
  const std::string removed = FolderPath(RemovedFolderName(parsed));
  RETURN_IF_ERROR(options_.operations->Delete(removed));
  const int error = options_.operations->Rename(FolderPath(name), removed);
  if (IsGone(error)) return absl::OkStatus();  // claimed or removed by another process
  if (error != 0) return ErrnoStatus(error, absl::StrCat("remove ", FolderPath(name)));
  return options_.operations->Delete(removed);
}

void CheckpointDirectory::RemoveOld(const Listing& listing, uint64_t newest_step) const {
  for (const std::string& name :
       FoldersToRemove(listing.folders, owner_, newest_step,
                       {.keep = options_.keep, .keep_best = options_.keep_best})) {
    const absl::Status removed = RemoveFolder(name);
    LOG_IF(WARNING, !removed.ok()) << removed.message();
  }
}

absl::Status CheckpointDirectory::DeleteLeftovers() const {
  ASSIGN_OR_RETURN(const auto names, options_.operations->List(options_.path));
  for (const std::string& name : names) {
    if (!IsLeftover(name, owner_)) continue;
    const absl::Status deleted = options_.operations->Delete(FolderPath(name));
    LOG_IF(WARNING, !deleted.ok()) << deleted.message();
  }
  return absl::OkStatus();
}

}  // namespace muster::train
