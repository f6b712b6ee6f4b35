#include "common/flags/flags.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "CLI/CLI.hpp"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/process/exit_code.h"
#include "common/status.h"
#include "common/text/nearest.h"

namespace muster::flags {
namespace {

using Arguments = std::vector<std::string>;

constexpr char kConfig[] = "config";

std::string Environment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? "" : value;
}

Arguments FromEnvironment(const std::vector<std::string>& names) {
  Arguments arguments;
  for (const std::string& name : names) {
    const std::string value = Environment(EnvironmentName(name));
    if (!value.empty()) arguments.push_back(absl::StrCat("--", name, "=", value));
  }
  return arguments;
}

// The name of a long flag, as in --name or --name=value; empty for other arguments.
absl::string_view FlagName(absl::string_view argument) {
  if (!absl::ConsumePrefix(&argument, "--")) return "";
  return argument.substr(0, argument.find('='));
}

// The last value of --config; empty if it is not given.
std::string ConfigIn(const Arguments& arguments) {
  std::string path;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (FlagName(arguments[i]) != kConfig) continue;
    const size_t equals = arguments[i].find('=');
    if (equals != std::string::npos) {
      path = arguments[i].substr(equals + 1);
    } else if (i + 1 < arguments.size()) {
      path = arguments[i + 1];
    }
  }
  return path;
}

// Prepends the arguments of `lower` whose options `higher` does not set. Options that `higher` sets
// by a short flag are kept, too: the last value of an option counts.
Arguments Merged(const Arguments& lower, const Arguments& higher) {
  Arguments merged;
  for (const std::string& argument : lower) {
    const auto same = [&](const std::string& other) {
      return FlagName(other) == FlagName(argument);
    };
    if (std::none_of(higher.begin(), higher.end(), same)) merged.push_back(argument);
  }
  merged.insert(merged.end(), higher.begin(), higher.end());
  return merged;
}

absl::string_view Unquoted(absl::string_view value) {
  const bool quoted = value.size() >= 2 && (value.front() == '"' || value.front() == '\'') &&
                      value.back() == value.front();
  return quoted ? value.substr(1, value.size() - 2) : value;
}

// Prepends the folder of `file`, from which the arguments are, to relative values of `paths`.
void ResolvePaths(const std::string& file, const std::vector<std::string>& paths,
                  Arguments& arguments) {
  const std::filesystem::path folder = std::filesystem::path(file).parent_path();
  for (std::string& argument : arguments) {
    const std::string name(FlagName(argument));
    if (std::find(paths.begin(), paths.end(), name) == paths.end()) continue;
    const std::string value = argument.substr(argument.find('=') + 1);
    // An empty value unsets the option.
    if (!value.empty()) argument = absl::StrCat("--", name, "=", (folder / value).string());
  }
}

// The arguments from all sources, in increasing order of precedence.
absl::StatusOr<Arguments> Gather(const CLI::App& app, const Arguments& given,
                                 const std::string& default_config,
                                 const std::vector<std::string>& paths) {
  for (const std::string& word : given) {
    if (word == "-h" || word == "--help") return given;
  }
  std::vector<std::string> names = OptionNames(app);
  const Arguments arguments = Merged(FromEnvironment(names), given);
  std::string path = ConfigIn(arguments);
  const bool named = !path.empty();
  if (!named) path = default_config;
  if (path.empty()) return arguments;
  names.erase(std::remove(names.begin(), names.end(), kConfig), names.end());
  absl::StatusOr<Arguments> file = ReadConfig(path, names);
  if (file.ok()) {
    ResolvePaths(path, paths, *file);
    return Merged(*file, arguments);
  }
  if (!named && absl::IsNotFound(file.status())) return arguments;
  return file.status();
}

}  // namespace

std::vector<std::string> OptionNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    const bool about = option == app.get_help_ptr() || option == app.get_version_ptr();
    if (!about && !option->get_lnames().empty()) names.push_back(option->get_lnames().front());
  }
  return names;
}

std::string EnvironmentName(absl::string_view option) {
  std::string name = absl::StrCat("MUSTER_", option);
  for (char& c : name) c = c == '-' ? '_' : absl::ascii_toupper(c);
  return name;
}

std::string UserConfigPath() {
  if (const std::string home = Environment("XDG_CONFIG_HOME"); !home.empty()) {
    return home + "/muster/config";
  }
  if (const std::string home = Environment("HOME"); !home.empty()) {
    return home + "/.config/muster/config";
  }
  return "";
}

absl::StatusOr<std::vector<std::string>> ReadConfig(const std::string& path,
                                                    const std::vector<std::string>& names) {
  std::ifstream file(path);
  // Opening a directory succeeds; only reading from it fails.
  if (!file || file.peek() == std::ifstream::traits_type::eof()) {
    const int error = errno;
    if (!file.is_open() || file.bad()) {
      return absl::NotFoundError(ErrnoStatus(error, absl::StrCat("read ", path)).message());
    }
  }
  Arguments flags;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    const absl::string_view text = absl::StripAsciiWhitespace(line);
    if (text.empty() || text[0] == '#' || text[0] == ';') continue;
    const std::vector<absl::string_view> parts = absl::StrSplit(text, absl::MaxSplits('=', 1));
    const std::string name(absl::StripAsciiWhitespace(parts[0]));
    const std::string where = absl::StrCat(path, ":", number, ": ");
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, Quoted(name), " is not an option", DidYouMean(name, names)));
    }
    if (parts.size() != 2) {
      return absl::InvalidArgumentError(absl::StrCat(where, "expected ", name, "=VALUE"));
    }
    flags.push_back(absl::StrCat("--", name, "=", Unquoted(absl::StripAsciiWhitespace(parts[1]))));
  }
  return flags;
}

absl::Status Parse(CLI::App& app, const std::vector<std::string>& given,
                   const std::string& default_config, const std::vector<std::string>& paths) {
  ASSIGN_OR_RETURN(Arguments arguments, Gather(app, given, default_config, paths));
  // CLI11 consumes the vector from the back.
  std::reverse(arguments.begin(), arguments.end());
  app.parse(arguments);
  return absl::OkStatus();
}

int ParseOrExit(CLI::App& app, int argc, const char* const* argv) {
  try {
    const absl::Status parsed = Parse(app, {argv + 1, argv + argc});
    if (parsed.ok()) return -1;
    std::cerr << app.get_name() << ": " << parsed.message() << "\n";
    return kExitUsage;
  } catch (const CLI::Error& error) {
    return app.exit(error) == 0 ? kExitSuccess : kExitUsage;
  }
}

}  // namespace muster::flags
