#include "cli/identity/offline_authority.h"

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/identity/credentials.h"
#include "cli/identity/owned_files.h"
#include "cli/identity/settings_file.h"
#include "common/http/address.h"
#include "common/security/certificate.h"
#include "common/security/text_file.h"
#include "common/status.h"

namespace muster::cli {
namespace {

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
