#include "worker/agent/user_rights.h"

#include <sys/fsuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "common/status.h"
#include "glog/logging.h"

namespace muster::agent {
namespace {

// The system call sets the groups of this thread; glibc's function sets those of all threads.
bool SetGroups(const std::vector<gid_t>& groups) {
  return syscall(SYS_setgroups, groups.size(), groups.data()) == 0;
}

bool SetCapabilities(const __user_cap_data_struct* data) {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  return syscall(SYS_capset, &header, data) == 0;
}

// These functions return the former id, also on failure; an invalid id only returns it.
bool SetFsIds(uid_t uid, gid_t gid) {
  setfsgid(gid);
  setfsuid(uid);
  return static_cast<gid_t>(setfsgid(static_cast<gid_t>(-1))) == gid &&
         static_cast<uid_t>(setfsuid(static_cast<uid_t>(-1))) == uid;
}

}  // namespace

UserRights::UserRights(const std::optional<JobUser>& user) {
  if (!user.has_value()) return;
  status_ = Take(user->credentials);
  if (!status_.ok() && taken_) Restore();
}

UserRights::~UserRights() {
  if (status_.ok() && taken_) Restore();
}

absl::Status UserRights::Take(const shim::Credentials& user) {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  if (syscall(SYS_capget, &header, capabilities_) != 0) return ErrnoStatus(errno, "capget");
  const int count = getgroups(0, nullptr);
  groups_.resize(static_cast<size_t>(std::max(count, 0)));
  if (count < 0 || getgroups(count, groups_.data()) != count) {
    return ErrnoStatus(errno, "getgroups");
  }
  uid_ = static_cast<uid_t>(setfsuid(static_cast<uid_t>(-1)));
  gid_ = static_cast<gid_t>(setfsgid(static_cast<gid_t>(-1)));
  taken_ = true;
  if (!SetGroups(user.groups)) return ErrnoStatus(errno, "setgroups");
  if (!SetFsIds(user.uid, user.gid)) return absl::PermissionDeniedError("setfsuid is not allowed");
  // Permitted capabilities remain, for Restore.
  __user_cap_data_struct reduced[_LINUX_CAPABILITY_U32S_3];
  for (int i = 0; i < _LINUX_CAPABILITY_U32S_3; ++i) {
    reduced[i] = capabilities_[i];
    reduced[i].effective = 0;
  }
  if (!SetCapabilities(reduced)) return ErrnoStatus(errno, "capset");
  return absl::OkStatus();
}

void UserRights::Restore() {
  // A change of the file system uid changes capabilities, too.
  const bool restored = SetCapabilities(capabilities_) && SetFsIds(uid_, gid_) &&
                        SetGroups(groups_) && SetCapabilities(capabilities_);
  // The thread must not continue with a job's rights, and nothing can fail that was allowed before.
  if (!restored) LOG(FATAL) << "cannot restore the rights of a thread";
}

}  // namespace muster::agent
