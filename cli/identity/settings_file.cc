#include "cli/identity/settings_file.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/security/text_file.h"
#include "common/status.h"

namespace muster::cli {

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

}  // namespace muster::cli
