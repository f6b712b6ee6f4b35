#include "worker/agent/generation/secrets.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/limits.h"
#include "common/secret_name.h"
#include "common/security/private_file.h"
#include "common/status.h"

namespace muster::agent {
namespace {

// Whether the owner can be the name of a folder.
bool IsFileName(absl::string_view owner) {
  return !owner.empty() && owner != "." && owner != ".." &&
         owner.find_first_of(absl::string_view("/\0", 2)) == absl::string_view::npos;
}

std::vector<std::string> FilesOf(const std::string& name, const std::string& owner,
                                 const std::string& directory) {
  std::vector<std::string> files;
  if (directory.empty()) return files;
  if (IsFileName(owner)) files.push_back(absl::StrCat(directory, "/", owner, "/", name));
  files.push_back(absl::StrCat(directory, "/", name));
  return files;
}

absl::StatusOr<std::string> ReadSecret(const std::string& path) {
  ASSIGN_OR_RETURN(std::string value, security::ReadPrivateFile(path));
  absl::string_view text = value;
  if (absl::ConsumeSuffix(&text, "\n")) absl::ConsumeSuffix(&text, "\r");
  if (text.size() > limits::kSecretBytes) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, " has ", text.size(), " bytes; the limit of a secret is ", limits::kSecretBytes));
  }
  if (text.find('\0') != absl::string_view::npos) {
    return absl::FailedPreconditionError(absl::StrCat(
        path,
        " contains a zero byte, which no environment variable can hold; encode the value, "
        "for example as base64"));
  }
  return std::string(text);
}

absl::StatusOr<std::string> FindSecret(const std::string& variable, const std::string& name,
                                       const std::string& owner, const SecretValues& sent,
                                       const std::string& directory) {
  RETURN_IF_ERROR(CheckSecretName(name));
  const auto known = sent.find(name);
  if (known != sent.end()) return known->second;
  const std::vector<std::string> files = FilesOf(name, owner, directory);
  for (const std::string& file : files) {
    absl::StatusOr<std::string> value = ReadSecret(file);
    if (!absl::IsNotFound(value.status())) return value;
  }
  const std::string of_owner = owner.empty() ? "" : absl::StrCat(" of ", owner);
  return absl::FailedPreconditionError(
      absl::StrCat("secret ", name, " (variable ", variable,
                   ") is missing: the coordinator has no such secret", of_owner, ", and this node ",
                   files.empty() ? "has no folder of secrets (--secrets-dir)"
                                 : absl::StrCat("has no file ", absl::StrJoin(files, " or ")),
                   "; set it with: muster secret set ", name));
}

}  // namespace

absl::Status CheckSecretsFolder(const std::string& directory) {
  struct stat info;
  if (directory.empty()) return absl::OkStatus();
  if (stat(directory.c_str(), &info) != 0) {
    if (errno == ENOENT) return absl::OkStatus();
    return ErrnoStatus(errno, absl::StrCat("--secrets-dir: open ", directory));
  }
  const bool is_roots = info.st_uid == 0 && geteuid() != 0;
  if (is_roots && (info.st_mode & 022) == 0) return absl::OkStatus();
  return Annotate(security::MakePrivateDirectory(directory), "--secrets-dir");
}

SecretValues TakeSecrets(v1::Launch& launch) {
  SecretValues values(launch.secrets().begin(), launch.secrets().end());
  launch.clear_secrets();
  return values;
}

absl::StatusOr<std::vector<std::string>> ResolveSecrets(const v1::Launch& launch,
                                                        const SecretValues& sent,
                                                        const std::string& directory) {
  std::vector<std::string> variables;
  for (const auto& [variable, name] : launch.spec().secret_env()) {
    const absl::StatusOr<std::string> value =
        FindSecret(variable, name, launch.owner(), sent, directory);
    // A repetition would fail in the same way.
    if (!value.ok()) return absl::FailedPreconditionError(value.status().message());
    variables.push_back(absl::StrCat(variable, "=", *value));
  }
  return variables;
}

}  // namespace muster::agent
