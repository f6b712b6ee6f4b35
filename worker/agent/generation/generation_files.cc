// The part of Generation that makes the directories and files of its ranks.
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "worker/agent/generation/generation.h"
#include "worker/agent/generation/rank_launch.h"
#include "worker/agent/memory_directory.h"
#include "worker/agent/user_files.h"
#include "worker/agent/user_rights.h"

namespace muster::agent {

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
  RETURN_IF_ERROR(MakePassage(directory.Works(job_id())));
  RETURN_IF_ERROR(MakeUserDirectory(CacheDirectoryOf(node, user), user));
  RETURN_IF_ERROR(CheckReachable(CacheDirectoryOf(node, user), user));
  if (launch_.spec().has_train()) {
    const std::string memory = MemoryDirectoryOf(node.memory_dir, job_id());
    if (!memory.empty()) RETURN_IF_ERROR(MakeUserDirectory(memory, user));
  }
  if (launch_.checkpoint_dir().empty() && launch_.spec().train().checkpoint().dir().empty()) {
    RETURN_IF_ERROR(MakeUserDirectory(directory.Checkpoint(job_id()), user));
  }
  for (const auto& [rank, state] : ranks_) {
    RETURN_IF_ERROR(MakePassage(RankDirectory(rank)));
    const std::string files = directory.UserFiles(job_id(), number(), rank);
    RETURN_IF_ERROR(MakeUserDirectory(files, user));
    if (launch_.spec().workdir().empty() || !launch_.spec().files().empty()) {
      RETURN_IF_ERROR(MakeUserDirectory(directory.Work(job_id(), rank), user));
    }
    if (!launch_.spec().has_train()) continue;
    const UserRights rights(user);
    RETURN_IF_ERROR(rights.status());
    RETURN_IF_ERROR(WriteMessage(absl::StrCat(files, kUserLaunchFile), launch_, false));
  }
  return absl::OkStatus();
}

void Generation::OpenReports(const shim::Instructions& instructions, RankState& rank) const {
  if (launch_.spec().has_train()) return;
  if (instructions.user.has_value()) rank.uid = instructions.user->uid;
  // As this or an earlier worker has named them to the rank.
  rank.progress =
      std::make_unique<ProgressFile>(ValueIn(instructions, "MUSTER_PROGRESS"), rank.uid);
  rank.error_file = ValueIn(instructions, "TORCHELASTIC_ERROR_FILE");
}

}  // namespace muster::agent
