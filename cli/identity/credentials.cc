#include "cli/identity/credentials.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cli/identity/owned_files.h"
#include "common/security/certificate.h"
#include "common/security/local_token.h"
#include "common/security/private_file.h"
#include "common/security/text_file.h"
#include "common/status.h"

namespace muster::cli {

absl::StatusOr<MadeAuthority> MakeAuthority(const std::string& folder, absl::Time now) {
  const std::string key = folder + "/ca.key";
  const std::string certificate = folder + "/ca.pem";
  RETURN_IF_ERROR(MakeOwnedFolder(folder));
  if (std::filesystem::exists(key) || std::filesystem::exists(certificate)) {
    ASSIGN_OR_RETURN(security::Authority authority, security::Authority::Load(certificate, key));
    return MadeAuthority{std::move(authority), Made::kKept};
  }
  ASSIGN_OR_RETURN(
      security::Authority authority,
      security::Authority::Create("Muster CA", security::ValidFor(kAuthorityValidity, now)));
  RETURN_IF_ERROR(WriteOwnedFile(key, authority.key(), FileMode::kPrivate));
  RETURN_IF_ERROR(WriteOwnedFile(certificate, authority.certificate(), FileMode::kPublic));
  return MadeAuthority{std::move(authority), Made::kCreated};
}

absl::StatusOr<std::string> MakeKey(const std::string& folder, const std::string& name) {
  const std::string path = absl::StrCat(folder, "/", name, ".key");
  if (std::filesystem::exists(path)) return security::ReadPrivateFile(path);
  ASSIGN_OR_RETURN(std::string key, security::NewPrivateKey());
  RETURN_IF_ERROR(WriteOwnedFile(path, key, FileMode::kPrivate));
  return key;
}

absl::StatusOr<Made> MakeCertificate(const std::string& folder, const std::string& name,
                                     const security::Authority& authority,
                                     const security::CertificateSubject& subject, absl::Time now) {
  const std::string path = absl::StrCat(folder, "/", name, ".pem");
  if (std::filesystem::exists(path)) {
    ASSIGN_OR_RETURN(const std::string text, security::ReadTextFile(path));
    ASSIGN_OR_RETURN(const security::CertificateInfo info, security::ReadCertificate(text));
    if (!security::IsIssuedBy(text, authority.certificate())) {
      return absl::AlreadyExistsError(
          absl::StrCat(path, " belongs to another cluster; remove it, or use another folder"));
    }
    const bool complete =
        std::all_of(subject.hosts.begin(), subject.hosts.end(), [&info](const std::string& host) {
          return std::find(info.hosts.begin(), info.hosts.end(), host) != info.hosts.end();
        });
    if (complete && info.not_after > now) return Made::kKept;
  }
  ASSIGN_OR_RETURN(const std::string key, MakeKey(folder, name));
  ASSIGN_OR_RETURN(const std::string public_key, security::PublicKeyOf(key));
  ASSIGN_OR_RETURN(const std::string chain,
                   authority.Issue(public_key, subject, security::NewSerial(),
                                   security::ValidFor(kCertificateValidity, now)));
  const FileMode mode =
      subject.usage == security::Usage::kClient ? FileMode::kPrivate : FileMode::kPublic;
  RETURN_IF_ERROR(WriteOwnedFile(path, chain, mode));
  RETURN_IF_ERROR(WriteOwnedFile(folder + "/ca.pem", authority.certificate(), mode));
  return Made::kCreated;
}

absl::StatusOr<std::string> MakeToken(const std::string& tokens_file, const std::string& role,
                                      const std::string& user) {
  std::string text;
  if (std::filesystem::exists(tokens_file)) {
    ASSIGN_OR_RETURN(text, security::ReadPrivateFile(tokens_file));
  }
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    if (words.size() == 3 && words[2] == user) return words[1];
  }
  const std::string token = security::NewToken();
  absl::StrAppend(&text, role, " ", token, " ", user, "\n");
  RETURN_IF_ERROR(WriteOwnedFile(tokens_file, text, FileMode::kPrivate));
  return token;
}

}  // namespace muster::cli
