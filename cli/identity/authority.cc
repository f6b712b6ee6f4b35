#include "cli/identity/authority.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/identity/identity_files.h"
#include "common/http/address.h"
#include "common/limits.h"
#include "common/random_id.h"
#include "common/security/certificate.h"
#include "common/security/text_file.h"
#include "common/sha256.h"
#include "common/status.h"

namespace muster::cli {
namespace {

constexpr absl::Duration kFirstTokenValidity = absl::Hours(24);
constexpr char kAdmin[] = "admin";

std::string MadeLine(Made made, const std::string& what) {
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

using Settings = std::vector<std::pair<std::string, std::string>>;

// The folder in which the files lie on the machine that they are for.
constexpr char kInstalled[] = "/etc/muster/";
// On which a coordinator listens unless it is configured otherwise.
constexpr uint16_t kPort = 7070;

absl::Status AddSettings(const std::string& path, const Settings& added,
                         FileMode mode = FileMode::kPublic) {
  ASSIGN_OR_RETURN(SettingsFile settings, SettingsFile::Read(path));
  for (const auto& [name, value] : added) {
    // An operator's changes stay.
    if (settings.Get(name).empty()) RETURN_IF_ERROR(settings.Add(name, value));
  }
  return settings.Write(mode);
}

// The address by which other machines call the coordinator whose certificate is in `folder`.
std::string CoordinatorAddress(const std::string& folder) {
  for (const char* const file : {"/coordinator.pem", "/coordinator/coordinator.pem"}) {
    const absl::StatusOr<security::CertificateInfo> info =
        security::ReadCertificate(security::ReadTextFile(folder + file).value_or(""));
    if (info.ok() && !info->hosts.empty()) return Address{info->hosts.front(), kPort}.ToString();
  }
  return Address{"127.0.0.1", kPort}.ToString();
}

absl::Status IssueCoordinator(const OfflineIssue& issue, const security::Authority& authority,
                              const std::string& out, absl::Time now) {
  const std::vector<std::string> hosts =
      issue.hosts.empty() ? std::vector<std::string>{issue.name} : issue.hosts;
  RETURN_IF_ERROR(MakeCertificate(out, "coordinator", authority,
                                  {issue.name, hosts, "", security::Usage::kServer}, now)
                      .status());
  if (!std::filesystem::exists(out + "/tokens")) {
    RETURN_IF_ERROR(WriteOwnedFile(out + "/tokens", "# ROLE TOKEN NAME\n", FileMode::kPrivate));
  }
  return AddSettings(out + "/coordinator",
                     {{"listen", "0.0.0.0:7070"},
                      {"data-dir", "/var/lib/muster/coordinator"},
                      {"tokens", absl::StrCat(kInstalled, "tokens")},
                      {"tls-cert", absl::StrCat(kInstalled, "coordinator.pem")},
                      {"tls-key", absl::StrCat(kInstalled, "coordinator.key")},
                      {"tls-ca", absl::StrCat(kInstalled, "ca.pem")}});
}

absl::Status IssueNode(const OfflineIssue& issue, const security::Authority& authority,
                       const std::string& out, absl::Time now) {
  RETURN_IF_ERROR(MakeCertificate(out, "node", authority,
                                  {issue.name,
                                   {security::kNodeHost},
                                   security::NodeUri(issue.name, issue.machine_id),
                                   security::Usage::kBoth},
                                  now)
                      .status());
  return AddSettings(out + "/worker", {{"coordinator", issue.coordinator},
                                       {"name", issue.name},
                                       {"data-dir", "/var/lib/muster-worker"},
                                       {"tls-ca", absl::StrCat(kInstalled, "ca.pem")},
                                       {"tls-cert", absl::StrCat(kInstalled, "node.pem")},
                                       {"tls-key", absl::StrCat(kInstalled, "node.key")}});
}

absl::Status IssueUser(const OfflineIssue& issue, const security::Authority& authority,
                       const std::string& out, absl::Time now) {
  // In the folder of `muster cluster init`, the coordinator reads the tokens where they are.
  std::string tokens = issue.folder + "/tokens";
  if (!std::filesystem::exists(tokens)) tokens = issue.folder + "/coordinator/tokens";
  ASSIGN_OR_RETURN(const std::string token, MakeToken(tokens, issue.role, issue.name));
  RETURN_IF_ERROR(
      MakeCertificate(out, "user", authority, {.common_name = issue.name}, now).status());
  RETURN_IF_ERROR(WriteOwnedFile(out + "/token", token + "\n", FileMode::kPrivate));
  return AddSettings(out + "/config",
                     {{"coordinator", issue.coordinator},
                      {"token-file", "token"},
                      {"tls-ca", "ca.pem"},
                      {"tls-cert", "user.pem"},
                      {"tls-key", "user.key"}},
                     FileMode::kPrivate);
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
  result.lines.push_back(MadeLine(made.made, identity + "/ca.key and ca.pem, the authority"));
  ASSIGN_OR_RETURN(
      const Made certificate,
      MakeCertificate(identity, "coordinator", made.authority,
                      {options.names.front(), options.names, "", security::Usage::kServer}, now));
  result.lines.push_back(MadeLine(certificate, absl::StrCat(identity, "/coordinator.pem for ",
                                                            absl::StrJoin(options.names, ", "))));
  ASSIGN_OR_RETURN(const std::string token, MakeToken(identity + "/tokens", "admin", kAdmin));
  RETURN_IF_ERROR(MakeOwnedFolder(options.admin_dir));
  ASSIGN_OR_RETURN(
      const Made admin_certificate,
      MakeCertificate(options.admin_dir, kAdmin, made.authority, {.common_name = kAdmin}, now));
  RETURN_IF_ERROR(
      WriteOwnedFile(options.admin_dir + "/admin.token", token + "\n", FileMode::kPrivate));
  RETURN_IF_ERROR(admin.Write(FileMode::kPrivate));
  result.lines.push_back(MadeLine(admin_certificate, admin_config + ", for the administrator"));
  if (made.made == Made::kCreated) {
    ASSIGN_OR_RETURN(result.join_token, WriteFirstToken(identity + "/join-token", now));
  }
  RETURN_IF_ERROR(settings.Write());
  result.lines.push_back(MadeLine(settings.changed() ? Made::kCreated : Made::kKept,
                                  options.config + ", the coordinator's settings"));
  return result;
}

absl::StatusOr<std::vector<std::string>> InitOffline(const std::string& folder, absl::Time now) {
  RETURN_IF_ERROR(MakeAuthority(folder, now).status());
  return std::vector<std::string>{folder + "/ca.key", folder + "/ca.pem"};
}

absl::StatusOr<std::vector<std::string>> IssueOffline(OfflineIssue issue, absl::Time now) {
  if (issue.coordinator.empty()) issue.coordinator = CoordinatorAddress(issue.folder);
  ASSIGN_OR_RETURN(const security::Authority authority,
                   security::Authority::Load(issue.folder + "/ca.pem", issue.folder + "/ca.key"));
  std::string out = issue.folder + "/coordinator";
  if (issue.kind == "coordinator") {
    RETURN_IF_ERROR(IssueCoordinator(issue, authority, out, now));
  } else if (issue.kind == "node") {
    out = absl::StrCat(issue.folder, "/nodes/", issue.name);
    RETURN_IF_ERROR(IssueNode(issue, authority, out, now));
  } else {
    out = absl::StrCat(issue.folder, "/users/", issue.name);
    RETURN_IF_ERROR(IssueUser(issue, authority, out, now));
  }
  return std::vector<std::string>{out};
}

absl::StatusOr<std::vector<std::string>> RenewOffline(const std::string& folder,
                                                      const std::vector<std::string>& files,
                                                      absl::Time now) {
  ASSIGN_OR_RETURN(const security::Authority authority,
                   security::Authority::Load(folder + "/ca.pem", folder + "/ca.key"));
  for (const std::string& file : files) {
    ASSIGN_OR_RETURN(const std::string text, security::ReadTextFile(file));
    ASSIGN_OR_RETURN(const security::CertificateInfo info, security::ReadCertificate(text));
    if (!security::IsIssuedBy(text, authority.certificate())) {
      return absl::AlreadyExistsError(
          absl::StrCat(file, " was not issued by the authority in ", folder));
    }
    ASSIGN_OR_RETURN(
        const std::string renewed,
        authority.Issue(
            info.public_key,
            {info.common_name, info.hosts, info.uris.empty() ? "" : info.uris.front(), info.usage},
            security::NewSerial(), security::ValidFor(kCertificateValidity, now)));
    RETURN_IF_ERROR(WriteOwnedFile(
        file, renewed,
        info.usage == security::Usage::kClient ? FileMode::kPrivate : FileMode::kPublic));
  }
  return files;
}

}  // namespace muster::cli
