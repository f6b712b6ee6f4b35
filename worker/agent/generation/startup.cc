#include "worker/agent/generation/startup.h"

#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "glog/logging.h"
#include "spec/hosted_store.h"
#include "worker/agent/generation/launcher.h"
#include "worker/agent/generation/rank_launch.h"
#include "worker/agent/generation/ranks/exit_info.h"
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

Startup::Startup(const GenerationContext& context, const v1::Launch& launch, SecretValues secrets,
                 std::map<uint32_t, Rank>& ranks, MasterPort& master, JobStore& store,
                 Outside outside)
    : context_(context),
      launch_(launch),
      secrets_(std::move(secrets)),
      ranks_(ranks),
      master_(master),
      store_(store),
      outside_(std::move(outside)) {}

void Startup::Start() {
  const absl::Status made = MakeFiles();
  if (!made.ok()) return LaunchRanks(made);
  if (launch_.spec().has_train()) return PlaceFiles(MasterEndpoint());
  if (launch_.node_rank() != 0) {
    return master_.Await([this, self = self_](const absl::StatusOr<MasterEndpoint>& endpoint) {
      if (*self == nullptr || outside_.is_stopping()) return;
      if (endpoint.ok()) store_.Connect(endpoint->address);
      PlaceFiles(endpoint);
    });
  }
  const absl::StatusOr<MasterEndpoint> endpoint = master_.Hold();
  if (!endpoint.ok()) return LaunchRanks(endpoint);
  if (spec::RequestsHostedStore(launch_.spec())) {
    endpoint_ = *endpoint;
    const absl::Status started = store_.Start(endpoint->address, user_);
    if (!started.ok()) LaunchRanks(started);
    return;
  }
  master_.Publish(*endpoint);
  PlaceFiles(endpoint);
}

void Startup::OnStoreReady(const absl::Status& status) {
  if (outside_.is_stopping()) return store_.EndIfOver();
  if (!status.ok()) return LaunchRanks(status);
  master_.Publish(endpoint_);
  PlaceFiles(endpoint_);
}

void Startup::PlaceFiles(const absl::StatusOr<MasterEndpoint>& master) {
  if (!master.ok() || launch_.spec().files().empty()) return LaunchRanks(master);
  std::vector<std::string> directories;
  for (const auto& [number, rank] : ranks_) {
    directories.push_back(context_.directory->Work(launch_.job_id(), number));
  }
  context_.place_files(launch_.spec(), std::move(directories), user_,
                       [this, self = self_, master = *master](const absl::Status& placed) {
                         if (*self == nullptr || outside_.is_stopping()) return;
                         if (!placed.ok()) return LaunchRanks(placed);
                         LaunchRanks(master);
                       });
}

void Startup::LaunchRanks(const absl::StatusOr<MasterEndpoint>& master) {
  const absl::StatusOr<std::vector<std::string>> secrets =
      ResolveSecrets(launch_, std::exchange(secrets_, {}), context_.secrets_dir);
  for (auto& [number, rank] : ranks_) {
    if (rank.record().exited()) continue;
    const absl::Status status = !master.ok()    ? master.status()
                                : !secrets.ok() ? secrets.status()
                                                : rank.Start(master->address, user_, *secrets);
    if (status.ok()) continue;
    LOG(ERROR) << launch_.job_id() << " rank " << number << ": " << status;
    rank.record().SetExited(LaunchFailure(status));
  }
  outside_.on_done();
}

absl::Status Startup::MakeFiles() {
  const DataDirectory& directory = *context_.directory;
  const std::string& job = launch_.job_id();
  ASSIGN_OR_RETURN(user_, context_.job_users.Of(launch_.owner()));
  RETURN_IF_ERROR(MakeDirectories(directory.Logs(job, launch_.generation())));
  for (const auto& [number, rank] : ranks_) {
    RETURN_IF_ERROR(MakeDirectories(directory.Rank(job, launch_.generation(), number)));
  }
  if (user_.has_value()) {
    RETURN_IF_ERROR(MakeUserFiles(*user_));
  } else if (!launch_.spec().has_train() && launch_.checkpoint_dir().empty()) {
    RETURN_IF_ERROR(MakeDirectories(directory.Checkpoint(job)));
  }
  RETURN_IF_ERROR(WriteMessage(directory.NewestLaunchFile(job), launch_, false));
  return WriteMessage(directory.LaunchFile(job, launch_.generation()), launch_, false);
}

absl::Status Startup::MakeUserFiles(const JobUser& user) const {
  const DataDirectory& directory = *context_.directory;
  const std::string& job = launch_.job_id();
  const uint64_t generation = launch_.generation();
  const std::string cache = CacheDirectoryOf(context_.environment, user);
  RETURN_IF_ERROR(MakePassage(directory.Job(job)));
  RETURN_IF_ERROR(MakePassage(directory.Generation(job, generation)));
  RETURN_IF_ERROR(MakePassage(directory.WorkDirectories(job)));
  RETURN_IF_ERROR(MakeUserDirectory(cache, user));
  RETURN_IF_ERROR(CheckReachable(cache, user));
  for (const std::string& shared : MakeLauncher(context_, launch_)->Directories()) {
    RETURN_IF_ERROR(MakeUserDirectory(shared, user));
  }
  if (launch_.checkpoint_dir().empty() && launch_.spec().train().checkpoint().dir().empty()) {
    RETURN_IF_ERROR(MakeUserDirectory(directory.Checkpoint(job), user));
  }
  for (const auto& [number, rank] : ranks_) {
    RETURN_IF_ERROR(MakePassage(directory.Rank(job, generation, number)));
    if (launch_.spec().workdir().empty() || !launch_.spec().files().empty()) {
      RETURN_IF_ERROR(MakeUserDirectory(directory.Work(job, number), user));
    }
    RETURN_IF_ERROR(MakeReports(directory.UserFiles(job, generation, number), launch_, user));
  }
  return absl::OkStatus();
}

}  // namespace muster::agent
