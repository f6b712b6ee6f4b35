#include "worker/shim/credentials.h"

#include <grp.h>
#include <linux/capability.h>
#include <linux/keyctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>

namespace muster::shim {
namespace {

// Consumes a number and the separator after it, which the last number does not have.
bool Consume(std::string_view& text, char separator, uint32_t& number) {
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return false;
  text.remove_prefix(static_cast<size_t>(stop - text.data()));
  if (text.empty()) return separator == ',';
  if (text[0] != separator) return false;
  text.remove_prefix(1);
  return true;
}

bool HasIds(const Credentials& credentials) {
  uid_t uids[3];
  gid_t gids[3];
  if (getresuid(&uids[0], &uids[1], &uids[2]) != 0) return false;
  if (getresgid(&gids[0], &gids[1], &gids[2]) != 0) return false;
  for (const uid_t uid : uids) {
    if (uid != credentials.uid) return false;
  }
  for (const gid_t gid : gids) {
    if (gid != credentials.gid) return false;
  }
  return getgroups(0, nullptr) == static_cast<int>(credentials.groups.size());
}

// A worker that is not root keeps its capabilities when the user changes.
bool DropCapabilities() {
  prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {};
  return syscall(SYS_capset, &header, none) == 0;
}

}  // namespace

std::string EncodeCredentials(const Credentials& credentials) {
  std::string text = std::to_string(credentials.uid) + ":" + std::to_string(credentials.gid) + ":";
  for (size_t i = 0; i < credentials.groups.size(); ++i) {
    text += (i == 0 ? "" : ",") + std::to_string(credentials.groups[i]);
  }
  return text;
}

std::optional<Credentials> DecodeCredentials(std::string_view text) {
  Credentials credentials;
  if (!Consume(text, ':', credentials.uid) || !Consume(text, ':', credentials.gid)) {
    return std::nullopt;
  }
  while (!text.empty()) {
    if (!Consume(text, ',', credentials.groups.emplace_back())) return std::nullopt;
  }
  if (credentials.uid == 0) return std::nullopt;
  return credentials;
}

int DropPrivileges(const Credentials& credentials) {
  if (credentials.uid == 0) return EPERM;
  const pid_t parent = getppid();
  int death_signal = 0;
  prctl(PR_GET_PDEATHSIG, &death_signal);
  if (setgroups(credentials.groups.size(), credentials.groups.data()) != 0 ||
      setresgid(credentials.gid, credentials.gid, credentials.gid) != 0 ||
      setresuid(credentials.uid, credentials.uid, credentials.uid) != 0) {
    return errno;
  }
  // Otherwise the rank would possess the keys of the worker's session. Without the kernel's support
  // for keys there are none.
  syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, nullptr);
  if (!DropCapabilities() || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return errno;
  if (!HasIds(credentials) || setuid(0) == 0) return EPERM;
  // The change of the user has cleared it.
  if (death_signal != 0) prctl(PR_SET_PDEATHSIG, death_signal);
  return getppid() == parent ? 0 : ESRCH;
}

void GiveStreams(const Credentials& credentials) {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    struct stat status = {};
    if (fstat(fd, &status) != 0) continue;
    // /dev/null must keep its owner.
    if (!S_ISFIFO(status.st_mode) && isatty(fd) == 0) continue;
    [[maybe_unused]] const int failed = fchown(fd, credentials.uid, credentials.gid);
  }
}

}  // namespace muster::shim
