#include "cli/files/script.h"

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace muster::cli {
namespace {

struct Interpreter {
  absl::string_view name;        // without a version
  absl::string_view with_value;  // short options whose value is the next argument
  absl::string_view programs;    // short options that replace the script
};

constexpr Interpreter kInterpreters[] = {
    {"python", "WX", "cm"}, {"sh", "oO", "cs"},  {"bash", "oO", "cs"}, {"dash", "oO", "cs"},
    {"zsh", "o", "cs"},     {"perl", "", "eE"},  {"ruby", "r", "e"},   {"node", "r", "ep"},
    {"Rscript", "", "e"},   {"julia", "", "eE"},
};

// Null if the program is not a known interpreter.
const Interpreter* InterpreterOf(absl::string_view program) {
  absl::string_view name = program.substr(program.rfind('/') + 1);
  while (!name.empty() && (absl::ascii_isdigit(name.back()) || name.back() == '.')) {
    name.remove_suffix(1);
  }
  const auto* const found = absl::c_find_if(
      kInterpreters, [name](const Interpreter& known) { return known.name == name; });
  return found == std::end(kInterpreters) ? nullptr : found;
}

std::string FirstArgument(const Interpreter& interpreter, const std::vector<std::string>& command) {
  for (size_t i = 1; i < command.size(); ++i) {
    absl::string_view option = command[i];
    if (option == "--") return i + 1 < command.size() ? command[i + 1] : "";
    if (!absl::ConsumePrefix(&option, "-")) return command[i];
    if (option.empty()) return "";  // standard input
    if (option[0] == '-') continue;
    const auto has = [option](absl::string_view letters) {
      return option.find_first_of(letters) != absl::string_view::npos;
    };
    if (option.size() == 1 && absl::StrContains(interpreter.with_value, option)) {
      ++i;
    } else if (!absl::StrContains(interpreter.with_value, option.substr(0, 1)) &&
               has(interpreter.programs)) {
      return "";
    }
  }
  return "";
}

}  // namespace

std::string ScriptOf(const std::vector<std::string>& command) {
  if (command.empty()) return "";
  const Interpreter* const interpreter = InterpreterOf(command[0]);
  std::string script;
  if (interpreter != nullptr) {
    script = FirstArgument(*interpreter, command);
  } else if (absl::StrContains(command[0], '/')) {
    script = command[0];
  }
  return absl::StartsWith(script, "/") ? "" : script;
}

std::string CommandFor(const std::string& path) {
  if (absl::EndsWith(path, ".py")) return absl::StrCat("python3 ", path);
  return absl::EndsWith(path, ".sh") ? absl::StrCat("bash ", path) : "";
}

}  // namespace muster::cli
