#include "spec/command_target.h"

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"

namespace muster::spec {
namespace {

using Words = absl::Span<const std::string>;

struct Interpreter {
  absl::string_view name;        // without a version
  absl::string_view with_value;  // short options whose value is the next argument
  absl::string_view programs;    // short options that replace the script
  absl::string_view module;      // short option whose value is a module
};

constexpr Interpreter kInterpreters[] = {
    {"python", "WX", "c", "m"}, {"sh", "oO", "cs", ""},  {"bash", "oO", "cs", ""},
    {"dash", "oO", "cs", ""},   {"zsh", "o", "cs", ""},  {"perl", "", "eE", ""},
    {"ruby", "r", "e", ""},     {"node", "r", "ep", ""}, {"Rscript", "", "e", ""},
    {"julia", "", "eE", ""},
};

absl::string_view FileName(absl::string_view path) { return path.substr(path.rfind('/') + 1); }

// Null if the program is not a known interpreter.
const Interpreter* InterpreterOf(absl::string_view program) {
  absl::string_view name = FileName(program);
  while (!name.empty() && (absl::ascii_isdigit(name.back()) || name.back() == '.')) {
    name.remove_suffix(1);
  }
  const auto* const found = absl::c_find_if(
      kInterpreters, [name](const Interpreter& known) { return known.name == name; });
  return found == std::end(kInterpreters) ? nullptr : found;
}

// Whether the program or module starts a script with options of its own in between.
bool IsLauncher(absl::string_view program) {
  constexpr absl::string_view kLaunchers[] = {
      "accelerate", "accelerate.commands.launch", "deepspeed",
      "mpirun",     "torch.distributed.launch",   "torch.distributed.run",
      "torchrun"};
  return absl::c_linear_search(kLaunchers, program);
}

// The words after `env`, its options and assignments; all words if the program is not `env`.
Words WithoutEnv(Words words) {
  if (words.empty() || FileName(words[0]) != "env") return words;
  constexpr absl::string_view kWithValue[] = {"-u", "--unset", "-C", "--chdir"};
  size_t i = 1;
  for (; i < words.size(); ++i) {
    if (absl::c_linear_search(kWithValue, words[i])) {
      ++i;
    } else if (!absl::StartsWith(words[i], "-") && !absl::StrContains(words[i], '=')) {
      break;
    }
  }
  // `env` alone prints the environment.
  return i < words.size() ? words.subspan(i) : words.first(1);
}

// `words` are a launcher's arguments. The values of its options cannot be told from a program, but
// a script has a name that ends with .py.
void FindLaunched(Words words, CommandTarget& target) {
  for (size_t i = 0; i < words.size(); ++i) {
    if ((words[i] == "-m" || words[i] == "--module") && i + 1 < words.size()) {
      target.module = words[i + 1];
      return;
    }
    if (absl::EndsWith(words[i], ".py") && !absl::StartsWith(words[i], "-")) {
      target.script = words[i];
      return;
    }
  }
}

void UseModule(absl::string_view module, Words arguments, CommandTarget& target) {
  if (IsLauncher(module)) {
    FindLaunched(arguments, target);
  } else {
    target.module = std::string(module);
  }
}

// `words` are an interpreter's arguments.
void FindInterpreted(const Interpreter& interpreter, Words words, CommandTarget& target) {
  for (size_t i = 0; i < words.size(); ++i) {
    absl::string_view option = words[i];
    if (option == "--") {
      if (i + 1 < words.size()) target.script = words[i + 1];
      return;
    }
    if (!absl::ConsumePrefix(&option, "-")) {
      target.script = words[i];
      return;
    }
    if (option.empty()) return;  // standard input
    if (option[0] == '-') continue;
    if (option.size() == 1 && absl::StrContains(interpreter.with_value, option)) {
      ++i;
      continue;
    }
    if (absl::StrContains(interpreter.with_value, option.substr(0, 1))) continue;
    // The letters after one that takes a value are the value: -mtrain, -c'import x'.
    const size_t letter =
        option.find_first_of(absl::StrCat(interpreter.programs, interpreter.module));
    if (letter == absl::string_view::npos) continue;
    if (absl::StrContains(interpreter.programs, option[letter])) return;
    if (letter + 1 < option.size()) {
      return UseModule(option.substr(letter + 1), words.subspan(i + 1), target);
    }
    if (i + 1 < words.size()) UseModule(words[i + 1], words.subspan(i + 2), target);
    return;
  }
}

}  // namespace

CommandTarget TargetOf(const std::vector<std::string>& command) {
  CommandTarget target;
  const Words words = WithoutEnv(command);
  if (words.empty()) return target;
  target.program = words[0];
  const Interpreter* const interpreter = InterpreterOf(target.program);
  if (interpreter != nullptr) {
    FindInterpreted(*interpreter, words.subspan(1), target);
  } else if (IsLauncher(FileName(target.program))) {
    FindLaunched(words.subspan(1), target);
  } else {
    target.script = target.program;
  }
  return target;
}

}  // namespace muster::spec
