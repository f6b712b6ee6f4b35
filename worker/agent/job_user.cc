#include "worker/agent/job_user.h"

#include <grp.h>
#include <linux/capability.h>
#include <pwd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status.h"

namespace muster::agent {
namespace {

constexpr size_t kMostEntryBytes = 1 << 20;
constexpr int kFewGroups = 64;
constexpr int kMostGroups = 65536;  // NGROUPS_MAX

struct Capability {
  int number;
  const char* name;
};

// Capabilities with which the worker and its shims manage processes and files of other users.
constexpr Capability kNeeded[] = {
    {CAP_CHOWN, "CAP_CHOWN"},           {CAP_DAC_OVERRIDE, "CAP_DAC_OVERRIDE"},
    {CAP_FOWNER, "CAP_FOWNER"},         {CAP_KILL, "CAP_KILL"},
    {CAP_SETGID, "CAP_SETGID"},         {CAP_SETUID, "CAP_SETUID"},
    {CAP_SYS_PTRACE, "CAP_SYS_PTRACE"},
};

bool IsEffective(const __user_cap_data_struct* data, int capability) {
  return (data[CAP_TO_INDEX(capability)].effective & CAP_TO_MASK(capability)) != 0;
}

absl::Status CheckCapabilities() {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {};
  if (syscall(SYS_capget, &header, data) != 0) return ErrnoStatus(errno, "--job-user: capget");
  std::vector<std::string> missing;
  for (const Capability& needed : kNeeded) {
    // The shims of a worker that is not root inherit ambient capabilities only.
    const bool inherited =
        geteuid() == 0 || prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, needed.number, 0, 0) == 1;
    if (!IsEffective(data, needed.number) || !inherited) missing.push_back(needed.name);
  }
  if (missing.empty()) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(
      "--job-user: the worker may not run ranks as other users: start it as root, or with the "
      "ambient capabilities that it lacks: ",
      absl::StrJoin(missing, " ")));
}

// Nothing if there is no such user.
absl::StatusOr<std::optional<JobUser>> Find(const std::string& name) {
  passwd entry = {};
  passwd* found = nullptr;
  std::string buffer(4096, '\0');
  int error = 0;
  while ((error = getpwnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found)) ==
             ERANGE &&
         buffer.size() < kMostEntryBytes) {
    buffer.resize(2 * buffer.size());
  }
  if (found == nullptr) {
    // All of these mean that there is no such user.
    if (error == 0 || error == ENOENT || error == ESRCH || error == EBADF || error == EPERM) {
      return std::nullopt;
    }
    return ErrnoStatus(error, absl::StrCat("look up the user '", name, "'"));
  }
  // A directory may ignore case, but owners with different names are different owners.
  if (name != entry.pw_name) return std::nullopt;
  JobUser user;
  user.name = entry.pw_name;
  user.home = entry.pw_dir;
  user.shell = entry.pw_shell;
  user.credentials.uid = entry.pw_uid;
  user.credentials.gid = entry.pw_gid;
  std::vector<gid_t>& groups = user.credentials.groups;
  groups.resize(kFewGroups);
  int count = kFewGroups;
  if (getgrouplist(entry.pw_name, entry.pw_gid, groups.data(), &count) < 0) {
    groups.resize(static_cast<size_t>(std::clamp(count, kFewGroups, kMostGroups)));
    count = static_cast<int>(groups.size());
    if (getgrouplist(entry.pw_name, entry.pw_gid, groups.data(), &count) < 0) {
      return absl::FailedPreconditionError(
          absl::StrCat("user '", name, "' is in more than ", kMostGroups, " groups"));
    }
  }
  groups.resize(static_cast<size_t>(count));
  return user;
}

bool IsOwn(const JobUser& user) {
  return user.credentials.uid == getuid() || user.credentials.uid == geteuid();
}

}  // namespace

absl::StatusOr<JobUsers> JobUsers::Open(std::string flag, uid_t min_uid, std::string node_name) {
  JobUsers users(std::move(flag), min_uid, std::move(node_name));
  if (!users.enabled()) return users;
  if (users.flag_ != kOwner) {
    ASSIGN_OR_RETURN(std::optional<JobUser> user, Find(users.flag_));
    if (!user.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--job-user: this machine has no user '", users.flag_, "'"));
    }
    if (user->credentials.uid == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("--job-user: '", users.flag_, "' is root; name a user without privileges"));
    }
    if (IsOwn(*user)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--job-user: '", users.flag_, "' is the worker's own user; name another user"));
    }
    users.example_ = *std::move(user);
  }
  RETURN_IF_ERROR(CheckCapabilities());
  return users;
}

absl::StatusOr<std::optional<JobUser>> JobUsers::Of(const std::string& owner) const {
  if (!enabled()) return std::nullopt;
  const bool by_owner = flag_ == kOwner;
  const std::string& name = by_owner ? owner : flag_;
  const auto refuse = [&](absl::string_view why) {
    return absl::FailedPreconditionError(
        absl::StrCat("node ", node_name_, " cannot run ranks of owner '", owner, "': ", why));
  };
  if (name.empty()) return refuse("the coordinator names no owner, as --job-user={owner} requires");
  ASSIGN_OR_RETURN(std::optional<JobUser> user, Find(name));
  if (!user.has_value()) {
    return refuse(absl::StrCat("it has no Unix user '", name, "' (--job-user=", flag_, ")"));
  }
  const uid_t uid = user->credentials.uid;
  if (uid == 0) return refuse(absl::StrCat("its Unix user '", name, "' is root"));
  if (IsOwn(*user)) return refuse(absl::StrCat("its Unix user '", name, "' is the worker's own"));
  if (by_owner && uid < min_uid_) {
    return refuse(absl::StrCat("its Unix user '", name, "' has uid ", uid, "; the minimum is ",
                               min_uid_, " (--job-user-min-uid)"));
  }
  return user;
}

}  // namespace muster::agent
