#include "cli/identity/identity_files.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/security/certificate.h"
#include "common/security/local_token.h"
#include "common/security/private_file.h"
#include "common/security/text_file.h"
#include "common/status.h"

namespace muster::cli {
namespace {

std::string ParentOf(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path();
  return parent.empty() ? "." : parent;
}

// Creates the folder if it is missing.
absl::Status MakeFolder(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) == 0) return absl::OkStatus();
  const std::string parent = ParentOf(path);
  RETURN_IF_ERROR(MakeFolder(parent));
  if (stat(parent.c_str(), &info) != 0 || mkdir(path.c_str(), 0700) != 0) {
    return ErrnoStatus(errno, absl::StrCat("create ", path));
  }
  if (geteuid() != 0 || lchown(path.c_str(), info.st_uid, info.st_gid) == 0) {
    return absl::OkStatus();
  }
  return ErrnoStatus(errno, absl::StrCat("change the owner of ", path));
}

}  // namespace

absl::Status MakeOwnedFolder(const std::string& path) {
  RETURN_IF_ERROR(MakeFolder(path));
  struct stat info;
  if (lstat(path.c_str(), &info) != 0) return ErrnoStatus(errno, absl::StrCat("open ", path));
  return security::MakePrivateDirectory(path, {.owner = geteuid() == 0 ? info.st_uid : geteuid(),
                                               .contents = {"ca.key", "node.key", "config"}});
}

absl::Status WriteOwnedFile(const std::string& path, absl::string_view text, FileMode mode) {
  const std::string folder = ParentOf(path);
  RETURN_IF_ERROR(MakeFolder(folder));
  struct stat model;
  if (lstat(path.c_str(), &model) != 0 && stat(folder.c_str(), &model) != 0) {
    return ErrnoStatus(errno, absl::StrCat("write ", path));
  }
  ASSIGN_OR_RETURN(const security::OwnedFd file,
                   security::WritePrivateFile(path, text, /*lock=*/false));
  // By descriptor: the folder's owner could replace the file by a link.
  if (fchmod(file.get(), static_cast<mode_t>(mode)) != 0 ||
      (geteuid() == 0 && fchown(file.get(), model.st_uid, model.st_gid) != 0)) {
    return ErrnoStatus(errno, absl::StrCat("change the owner and mode of ", path));
  }
  return absl::OkStatus();
}

absl::StatusOr<SettingsFile> SettingsFile::Read(std::string path) {
  SettingsFile file(std::move(path));
  absl::StatusOr<std::string> text = security::ReadTextFile(file.path_);
  if (absl::IsNotFound(text.status())) return file;
  if (!text.ok()) return text.status();
  file.text_ = *std::move(text);
  for (absl::string_view line : absl::StrSplit(file.text_, '\n')) {
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || line[0] == '#' || line[0] == ';') continue;
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(line, absl::MaxSplits('=', 1));
    file.settings_.emplace_back(absl::StripAsciiWhitespace(parts.first),
                                absl::StripAsciiWhitespace(parts.second));
  }
  return file;
}

std::string SettingsFile::Get(absl::string_view name) const {
  std::string value;
  for (const auto& [known, text] : settings_) {
    if (known == name) value = text;
  }
  return value;
}

absl::Status SettingsFile::Add(const std::string& name, const std::string& value) {
  const std::string present = Get(name);
  if (present == value) return absl::OkStatus();
  if (!present.empty()) {
    return absl::AlreadyExistsError(absl::StrCat(path_, " sets ", name, "=", present, ", not ",
                                                 value, "; remove the line to replace it"));
  }
  if (!text_.empty() && !absl::EndsWith(text_, "\n")) text_ += '\n';
  absl::StrAppend(&text_, name, "=", value, "\n");
  settings_.emplace_back(name, value);
  changed_ = true;
  return absl::OkStatus();
}

void SettingsFile::Replace(const std::string& name, const std::string& value) {
  if (Get(name) == value) return;
  std::vector<std::string> lines = absl::StrSplit(text_, '\n');
  std::erase_if(lines, [&name](absl::string_view line) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(line, absl::MaxSplits('=', 1));
    return absl::StripAsciiWhitespace(parts.first) == name;
  });
  text_ = absl::StrJoin(lines, "\n");
  std::erase_if(settings_, [&name](const auto& setting) { return setting.first == name; });
  // There is no other value any more.
  (void)Add(name, value);
}

absl::Status SettingsFile::Write(FileMode mode) const {
  if (!changed_) return absl::OkStatus();
  return WriteOwnedFile(path_, text_, mode);
}

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
