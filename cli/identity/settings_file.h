// A configuration file of NAME=VALUE lines to which settings are added.
#ifndef MUSTER_CLI_IDENTITY_SETTINGS_FILE_H_
#define MUSTER_CLI_IDENTITY_SETTINGS_FILE_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "cli/identity/owned_files.h"

namespace muster::cli {

class SettingsFile {
 public:
  // Reads the file; one that does not exist is empty.
  static absl::StatusOr<SettingsFile> Read(std::string path);

  const std::string& path() const { return path_; }
  // The value of a setting; "" if the file does not set it.
  std::string Get(absl::string_view name) const;
  // Sets what the file does not set. Errors: ALREADY_EXISTS if it has another value.
  absl::Status Add(const std::string& name, const std::string& value);
  // Sets a value in place of another one.
  void Replace(const std::string& name, const std::string& value);
  // Writes the file if settings were added, with everything else that was in it. Creates its
  // folder.
  absl::Status Write(FileMode mode = FileMode::kPublic) const;
  bool changed() const { return changed_; }

 private:
  explicit SettingsFile(std::string path) : path_(std::move(path)) {}

  std::string path_;
  std::string text_;
  std::vector<std::pair<std::string, std::string>> settings_;
  bool changed_ = false;
};

}  // namespace muster::cli

#endif  // MUSTER_CLI_IDENTITY_SETTINGS_FILE_H_
