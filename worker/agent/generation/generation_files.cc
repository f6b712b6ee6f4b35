// The part of Generation that makes the directories and files of its ranks.
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/environment_value.h"
#include "common/status.h"
#include "worker/agent/generation/generation.h"
#include "worker/agent/generation/launcher.h"
#include "worker/agent/generation/rank_launch.h"
#include "worker/agent/user_files.h"

namespace muster::agent {
namespace {

// Makes DataDirectory::UserFiles. The directory is the user's only when it is complete: in one that
// already is, a process of the user could replace files while they are written.
absl::Status MakeReports(const std::string& path, const v1::Launch& launch, const JobUser& user) {
  std::error_code error;
  std::filesystem::remove_all(path, error);  // of a start that was not completed
  if (error) return ErrnoStatus(error.value(), absl::StrCat("delete ", path));
  RETURN_IF_ERROR(MakeDirectories(path));
  if (launch.spec().has_train()) {
    const std::string file = absl::StrCat(path, kUserLaunchFile);
    RETURN_IF_ERROR(WriteMessage(file, launch, false));
    if (lchown(file.c_str(), user.credentials.uid, user.credentials.gid) != 0) {
      return ErrnoStatus(errno, absl::StrCat("give ", file, " to ", user.name));
    }
  }
  return MakeUserDirectory(path, user);
}

}  // namespace

absl::Status Generation::MakeFiles() {
  ASSIGN_OR_RETURN(user_, context_.job_users.Of(launch_.owner()));
  RETURN_IF_ERROR(MakeDirectories(context_.directory->Logs(job_id(), number())));
  for (const auto& [number, rank] : ranks_) RETURN_IF_ERROR(MakeDirectories(RankDirectory(number)));
  if (user_.has_value()) {
    RETURN_IF_ERROR(MakeUserFiles(*user_));
  } else if (!launch_.spec().has_train() && launch_.checkpoint_dir().empty()) {
    RETURN_IF_ERROR(MakeDirectories(context_.directory->Checkpoint(job_id())));
  }
  RETURN_IF_ERROR(WriteMessage(context_.directory->NewestLaunchFile(job_id()), launch_, false));
  return WriteMessage(context_.directory->LaunchFile(job_id(), number()), launch_, false);
}

absl::Status Generation::MakeUserFiles(const JobUser& user) const {
  const DataDirectory& directory = *context_.directory;
  const NodeEnvironment& node = context_.environment;
  RETURN_IF_ERROR(MakePassage(directory.Job(job_id())));
  RETURN_IF_ERROR(MakePassage(directory.Generation(job_id(), number())));
  RETURN_IF_ERROR(MakePassage(directory.WorkDirectories(job_id())));
  RETURN_IF_ERROR(MakeUserDirectory(CacheDirectoryOf(node, user), user));
  RETURN_IF_ERROR(CheckReachable(CacheDirectoryOf(node, user), user));
  for (const std::string& shared : MakeLauncher(context_, launch_)->Directories()) {
    RETURN_IF_ERROR(MakeUserDirectory(shared, user));
  }
  if (launch_.checkpoint_dir().empty() && launch_.spec().train().checkpoint().dir().empty()) {
    RETURN_IF_ERROR(MakeUserDirectory(directory.Checkpoint(job_id()), user));
  }
  for (const auto& [rank, state] : ranks_) {
    RETURN_IF_ERROR(MakePassage(RankDirectory(rank)));
    if (launch_.spec().workdir().empty() || !launch_.spec().files().empty()) {
      RETURN_IF_ERROR(MakeUserDirectory(directory.Work(job_id(), rank), user));
    }
    RETURN_IF_ERROR(MakeReports(directory.UserFiles(job_id(), number(), rank), launch_, user));
  }
  return absl::OkStatus();
}

void Generation::OpenReports(const shim::Instructions& instructions, RankState& rank) const {
  if (launch_.spec().has_train()) return;
  if (instructions.user.has_value()) rank.uid = instructions.user->uid;
  // As this or an earlier worker has named them to the rank.
  rank.progress = std::make_unique<ProgressFile>(
      std::string(EnvironmentValue(instructions.environment, "MUSTER_PROGRESS")), rank.uid);
  rank.error_file =
      std::string(EnvironmentValue(instructions.environment, "TORCHELASTIC_ERROR_FILE"));
}

}  // namespace muster::agent
