#include "cli/identity/cluster_init.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <unistd.h>

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/identity/credentials.h"
#include "cli/identity/owned_files.h"
#include "cli/identity/settings_file.h"
#include "common/http/address.h"
#include "common/limits.h"
#include "common/random_id.h"
#include "common/sha256.h"
#include "common/status.h"

namespace muster::cli {
namespace {

constexpr absl::Duration kFirstTokenValidity = absl::Hours(24);
constexpr char kAdmin[] = "admin";

std::string Says(Made made, const std::string& what) {
  return absl::StrCat(made == Made::kCreated ? "created " : "kept    ", what);
}

// The coordinator's settings, checked against those that are there.
absl::Status AddSettings(const ClusterInit& options, const std::string& data_dir,
                         SettingsFile& settings) {
  const std::string identity = data_dir + "/identity";
  RETURN_IF_ERROR(settings.Add("data-dir", data_dir));
  if (settings.Get("listen").empty()) RETURN_IF_ERROR(settings.Add("listen", options.listen));
  RETURN_IF_ERROR(settings.Add("tokens", identity + "/tokens"));
  RETURN_IF_ERROR(settings.Add("tls-cert", identity + "/coordinator.pem"));
  RETURN_IF_ERROR(settings.Add("tls-key", identity + "/coordinator.key"));
  RETURN_IF_ERROR(settings.Add("tls-ca", identity + "/ca.pem"));
  RETURN_IF_ERROR(settings.Add("ca-key", identity + "/ca.key"));
  return settings.Add("first-join-token", identity + "/join-token");
}

absl::Status AddAdminSettings(const std::string& folder, const std::string& address,
                              SettingsFile& settings) {
  RETURN_IF_ERROR(settings.Add("coordinator", address));
  for (const auto& [name, file] : {std::pair("token-file", "admin.token"),
                                   {"tls-ca", "ca.pem"},
                                   {"tls-cert", "admin.pem"},
                                   {"tls-key", "admin.key"}}) {
    // Older versions wrote absolute paths.
    if (settings.Get(name) == absl::StrCat(folder, "/", file)) continue;
    RETURN_IF_ERROR(settings.Add(name, file));
  }
  return absl::OkStatus();
}

// Writes a token for the coordinator to take at its start, as only its digest; returns the token.
absl::StatusOr<std::string> WriteFirstToken(const std::string& path, absl::Time now) {
  static constexpr char kAlphabet[] = "0123456789abcdefghjkmnpqrstvwxyz";
  std::string token = RandomId(26, kAlphabet);
  RETURN_IF_ERROR(WriteOwnedFile(path,
                                 absl::StrCat(RandomId(6, kAlphabet), " ", Sha256Hex(token), " ",
                                              absl::ToUnixSeconds(now + kFirstTokenValidity), " ",
                                              limits::kJoinTokenUses, "\n"),
                                 FileMode::kPrivate));
  return token;
}

}  // namespace

std::vector<std::string> OwnNames() {
  std::vector<std::string> names;
  char host[256] = {};
  if (gethostname(host, sizeof(host) - 1) == 0 && host[0] != '\0') names.emplace_back(host);
  names.emplace_back("localhost");
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return names;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(first, freeifaddrs);
  for (const ifaddrs* at = first; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr) continue;
    char text[INET6_ADDRSTRLEN] = {};
    if (at->ifa_addr->sa_family == AF_INET) {
      const auto* v4 = reinterpret_cast<const sockaddr_in*>(at->ifa_addr);
      inet_ntop(AF_INET, &v4->sin_addr, text, sizeof(text));
    } else if (at->ifa_addr->sa_family == AF_INET6) {
      const auto* v6 = reinterpret_cast<const sockaddr_in6*>(at->ifa_addr);
      // Link-local addresses are valid only with an interface.
      if (IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr)) continue;
      inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof(text));
    }
    if (text[0] != '\0') names.emplace_back(text);
  }
  return names;
}

absl::StatusOr<ClusterInitResult> InitCluster(const ClusterInit& options, absl::Time now) {
  ClusterInitResult result;
  ASSIGN_OR_RETURN(SettingsFile settings, SettingsFile::Read(options.config));
  result.data_dir = options.data_dir;
  if (result.data_dir.empty()) result.data_dir = settings.Get("data-dir");
  if (result.data_dir.empty()) result.data_dir = options.default_data_dir;
  RETURN_IF_ERROR(AddSettings(options, result.data_dir, settings));
  ASSIGN_OR_RETURN(const Address listen, ParseAddress(settings.Get("listen")));
  result.address = Address{options.names.front(), listen.port}.ToString();
  const std::string admin_config = options.admin_dir + "/config";
  ASSIGN_OR_RETURN(SettingsFile admin, SettingsFile::Read(admin_config));
  const absl::Status same = AddAdminSettings(options.admin_dir, result.address, admin);
  if (!same.ok()) {
    return absl::Status(same.code(),
                        absl::StrCat(same.message(), ", or pass another folder with --admin-dir"));
  }

  const std::string identity = result.data_dir + "/identity";
  ASSIGN_OR_RETURN(const MadeAuthority made, MakeAuthority(identity, now));
  result.ca_pin = made.authority.pin();
  result.lines.push_back(Says(made.made, identity + "/ca.key and ca.pem, the authority"));
  ASSIGN_OR_RETURN(
      const Made certificate,
      MakeCertificate(identity, "coordinator", made.authority,
                      {options.names.front(), options.names, "", security::Usage::kServer}, now));
  result.lines.push_back(Says(certificate, absl::StrCat(identity, "/coordinator.pem for ",
                                                        absl::StrJoin(options.names, ", "))));
  ASSIGN_OR_RETURN(const std::string token, MakeToken(identity + "/tokens", "admin", kAdmin));
  RETURN_IF_ERROR(MakeOwnedFolder(options.admin_dir));
  ASSIGN_OR_RETURN(
      const Made admin_certificate,
      MakeCertificate(options.admin_dir, kAdmin, made.authority, {.common_name = kAdmin}, now));
  RETURN_IF_ERROR(
      WriteOwnedFile(options.admin_dir + "/admin.token", token + "\n", FileMode::kPrivate));
  RETURN_IF_ERROR(admin.Write(FileMode::kPrivate));
  result.lines.push_back(Says(admin_certificate, admin_config + ", for the administrator"));
  if (made.made == Made::kCreated) {
    ASSIGN_OR_RETURN(result.join_token, WriteFirstToken(identity + "/join-token", now));
  }
  RETURN_IF_ERROR(settings.Write());
  result.lines.push_back(Says(settings.changed() ? Made::kCreated : Made::kKept,
                              options.config + ", the coordinator's settings"));
  return result;
}

}  // namespace muster::cli
