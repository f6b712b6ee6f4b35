#include "common/security/local_token.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pwd.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/http/address.h"
#include "common/random_id.h"
#include "common/status.h"

namespace muster::security {
namespace {

constexpr size_t kTokenBits = 256;
// Begins the line after the token.
constexpr absl::string_view kSecondLine = "# token of the coordinator at ";

std::string HostName() {
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  return name;
}

std::string HomeDirectory() {
  passwd entry;
  passwd* found = nullptr;
  char buffer[4096];
  getpwuid_r(geteuid(), &entry, buffer, sizeof(buffer), &found);
  return found == nullptr ? "" : found->pw_dir;
}

std::string OwnTemporaryDirectory() { return absl::StrCat("/tmp/muster-", geteuid()); }

// Token directories in order of preference.
std::vector<std::string> Directories() {
  if (const char* given = std::getenv("MUSTER_TOKEN_DIR"); given != nullptr && *given != '\0') {
    return {given};
  }
  std::vector<std::string> directories;
  const std::string home = HomeDirectory();
  std::error_code error;
  if (std::filesystem::is_directory(home, error)) {
    // Several machines may share a home directory.
    directories.push_back(absl::StrCat(home, "/.muster/tokens/", HostName()));
  }
  directories.push_back(OwnTemporaryDirectory() + "/tokens");
  return directories;
}

// Checks the parent directory, too, if it is /tmp/muster-UID, which another user may have created.
absl::Status MakeTokenDirectory(const std::string& directory) {
  const std::string above = std::filesystem::path(directory).parent_path().string();
  if (above == OwnTemporaryDirectory()) RETURN_IF_ERROR(MakePrivateDirectory(above));
  return MakePrivateDirectory(directory);
}

struct FreeAddresses {
  void operator()(addrinfo* info) const { freeaddrinfo(info); }
};

struct Endpoint {
  sockaddr_storage socket_address;
  socklen_t length;
  std::string file_name;  // ADDRESS:PORT
};

std::vector<Endpoint> Resolve(const Address& address) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* first = nullptr;
  if (getaddrinfo(address.host.c_str(), nullptr, &hints, &first) != 0) return {};
  const std::unique_ptr<addrinfo, FreeAddresses> owner(first);
  std::vector<Endpoint> endpoints;
  for (const addrinfo* info = first; info != nullptr; info = info->ai_next) {
    char number[NI_MAXHOST];
    if (getnameinfo(info->ai_addr, info->ai_addrlen, number, sizeof(number), nullptr, 0,
                    NI_NUMERICHOST) != 0) {
      continue;
    }
    Endpoint endpoint{{}, info->ai_addrlen, absl::StrCat(number, ":", address.port)};
    memcpy(&endpoint.socket_address, info->ai_addr, info->ai_addrlen);
    endpoints.push_back(std::move(endpoint));
  }
  return endpoints;
}

// Whether the address belongs to this machine, determined by a trial bind.
bool IsHere(Endpoint endpoint) {
  sockaddr* address = reinterpret_cast<sockaddr*>(&endpoint.socket_address);
  const OwnedFd socket_fd(socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return socket_fd.get() >= 0 && bind(socket_fd.get(), address, endpoint.length) == 0;
}

bool IsLocked(const OwnedFd& file) {
  return flock(file.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

// Whether a coordinator may have published a token under this name: ADDRESS:PORT, or what
// WritePrivateFile writes before it has that name.
bool IsTokenName(const std::string& name) {
  const size_t colon = name.rfind(':');
  if (colon == std::string::npos) return false;
  const std::string host = name.substr(0, std::min(colon, name.find('%')));
  const absl::string_view port = absl::string_view(name).substr(colon + 1);
  in6_addr address;
  return absl::c_all_of(port.substr(0, port.find('.')), absl::ascii_isdigit) &&
         (inet_pton(AF_INET, host.c_str(), &address) == 1 ||
          inet_pton(AF_INET6, host.c_str(), &address) == 1);
}

bool IsTokenText(absl::string_view text) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(text, absl::MaxSplits('\n', 1));
  return absl::c_all_of(parts.first, absl::ascii_isgraph) &&
         absl::StartsWith(parts.second, kSecondLine);
}

// Removes what dead coordinators left. The directory may contain files of others: MUSTER_TOKEN_DIR
// can name any.
void RemoveStale(const std::string& directory) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    const std::string path = entry.path().string();
    if (!IsTokenName(entry.path().filename().string())) continue;
    const absl::StatusOr<OwnedFd> file = OpenPrivateFile(path, O_NOFOLLOW);
    if (!file.ok() || IsLocked(*file) || !IsTokenText(ReadFrom(*file, path).value_or(""))) continue;
    struct stat opened;
    struct stat named;
    // Skip the file if it has just been replaced.
    if (fstat(file->get(), &opened) == 0 && opened.st_uid == geteuid() &&
        lstat(path.c_str(), &named) == 0 && opened.st_ino == named.st_ino) {
      unlink(path.c_str());
    }
  }
}

absl::StatusOr<std::string> TokenIn(absl::string_view text, const std::string& path) {
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || line[0] == '#') continue;
    if (!absl::c_all_of(line, absl::ascii_isgraph)) break;
    return std::string(line);
  }
  return absl::InvalidArgumentError(absl::StrCat(path, " contains no token"));
}

}  // namespace

std::string NewToken() { return RandomHexId(kTokenBits); }

absl::StatusOr<std::string> ReadTokenFile(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadPrivateFile(path));
  return TokenIn(text, path);
}

absl::StatusOr<std::string> KeepToken(const std::string& path) {
  absl::StatusOr<std::string> kept = ReadTokenFile(path);
  if (!absl::IsNotFound(kept.status())) return kept;
  const std::string token = NewToken();
  RETURN_IF_ERROR(WritePrivateFile(path, absl::StrCat(token, "\n"), /*lock=*/false).status());
  return token;
}

absl::StatusOr<PublishedToken> PublishedToken::Publish(const std::string& address,
                                                       const std::string& token) {
  ASSIGN_OR_RETURN(const Address parsed, ParseAddress(address));
  const std::string text =
      absl::StrCat(token, "\n", kSecondLine, address, ", pid ", getpid(), "\n");
  absl::Status status;
  for (const std::string& directory : Directories()) {
    PublishedToken published;
    status = MakeTokenDirectory(directory);
    if (status.ok()) RemoveStale(directory);
    for (const Endpoint& endpoint : Resolve(parsed)) {
      if (!status.ok()) break;
      const std::string path = absl::StrCat(directory, "/", endpoint.file_name);
      absl::StatusOr<OwnedFd> file = WritePrivateFile(path, text, /*lock=*/true);
      status = file.status();
      if (!status.ok()) break;
      published.paths_.push_back(path);
      published.files_.push_back(*std::move(file));
    }
    if (status.ok()) return published;
  }
  return status;
}

PublishedToken::~PublishedToken() {
  for (const std::string& path : paths_) unlink(path.c_str());
}

absl::StatusOr<FoundToken> FindLocalToken(const std::string& target) {
  ASSIGN_OR_RETURN(const Address address, ParseAddress(target));
  std::vector<std::string> names;
  for (const Endpoint& endpoint : Resolve(address)) {
    if (IsHere(endpoint)) names.push_back(endpoint.file_name);
  }
  if (names.empty()) {
    return absl::NotFoundError(
        absl::StrCat(address.host, " is not this machine, so it has no local token here"));
  }
  // Files of a coordinator that listens on all addresses.
  names.push_back(absl::StrCat("0.0.0.0:", address.port));
  names.push_back(absl::StrCat(":::", address.port));
  const std::vector<std::string> directories = Directories();
  for (const std::string& directory : directories) {
    for (const std::string& name : names) {
      const std::string path = absl::StrCat(directory, "/", name);
      const absl::StatusOr<OwnedFd> file = OpenPrivateFile(path, O_NOFOLLOW);
      if (absl::IsNotFound(file.status())) continue;
      RETURN_IF_ERROR(file.status());
      if (!IsLocked(*file)) continue;
      ASSIGN_OR_RETURN(const std::string text, ReadFrom(*file, path));
      ASSIGN_OR_RETURN(std::string token, TokenIn(text, path));
      return FoundToken{std::move(token), path};
    }
  }
  return absl::NotFoundError(absl::StrCat("no token of a running coordinator at port ",
                                          address.port, " in ",
                                          absl::StrJoin(directories, " or ")));
}

}  // namespace muster::security
