// The Unix user of a rank's processes, where it is not that of the worker and the shim.
#ifndef MUSTER_WORKER_SHIM_CREDENTIALS_H_
#define MUSTER_WORKER_SHIM_CREDENTIALS_H_

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace muster::shim {

struct Credentials {
  uid_t uid = 0;
  gid_t gid = 0;
  std::vector<gid_t> groups;  // supplementary
};

// `UID:GID:GROUP,GROUP,…`.
std::string EncodeCredentials(const Credentials& credentials);
// Returns nothing if the text is damaged or its user is root.
std::optional<Credentials> DecodeCredentials(std::string_view text);

// Makes this process one of the user, irrevocably: without capabilities, and with no_new_privs, so
// that programs with a set-user-ID bit or file capabilities do not raise its rights either. Keeps
// the parent-death signal. The process must have no other threads. Returns 0 or errno; after an
// error, the process must exit. EPERM for root.
int DropPrivileges(const Credentials& credentials);

// Gives the standard streams of this process that are pipes or terminals to the user, who could not
// open them as /dev/stdout otherwise. Before DropPrivileges.
void GiveStreams(const Credentials& credentials);

// The first argument of `muster-shim as CREDENTIALS COMMAND…`, which executes the command as the
// user.
inline constexpr char kRunAsWord[] = "as";

}  // namespace muster::shim

#endif  // MUSTER_WORKER_SHIM_CREDENTIALS_H_
