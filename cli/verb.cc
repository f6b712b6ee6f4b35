#include "cli/verb.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/output/words.h"
#include "common/process/exit_code.h"

namespace muster::cli {
namespace {

// Column of the explanations; after a longer name, the explanation starts on the next line.
constexpr size_t kColumn = 26;
// Columns before an example, and before and after its further lines.
constexpr size_t kCommandIndent = 2;
constexpr size_t kContinuationIndent = 4;
constexpr size_t kBackslashWidth = 2;

// The text in lines, each indented by `indent` blanks.
std::string Wrapped(const std::string& text, size_t indent) {
  std::string out;
  for (const std::string& line : WrappedLines(text, TextWidth() - indent)) {
    absl::StrAppend(&out, std::string(indent, ' '), line, "\n");
  }
  return out;
}

// "  NAME     explanation".
std::string Entry(const std::string& name, const std::string& explanation) {
  std::string out = absl::StrCat("  ", name);
  if (out.size() + 2 > kColumn) {
    absl::StrAppend(&out, "\n");
  } else {
    out.resize(kColumn, ' ');
  }
  const std::string text = Wrapped(explanation, kColumn);
  const bool same_line = out.back() == ' ';
  return absl::StrCat(out, same_line ? text.substr(std::min(kColumn, text.size())) : text,
                      text.empty() ? "\n" : "");
}

// An example's command line, indented by two blanks. If it is too long, it continues after
// backslashes; quoted text stays in one line.
std::string CommandLine(std::string command) {
  constexpr char kQuotedBlank = '\x1f';
  if (kCommandIndent + DisplayWidth(command) <= TextWidth()) {
    return absl::StrCat("  ", command, "\n");
  }
  char quote = 0;
  for (char& c : command) {
    if (quote == 0 ? c == '\'' || c == '"' : c == quote) quote = quote == 0 ? c : 0;
    if (quote != 0 && c == ' ') c = kQuotedBlank;
  }
  const size_t width = TextWidth() - kContinuationIndent - kBackslashWidth;
  std::string out =
      absl::StrCat("  ", absl::StrJoin(WrappedLines(command, width), " \\\n    "), "\n");
  std::replace(out.begin(), out.end(), kQuotedBlank, ' ');
  return out;
}

// "-f, --follow", "    --rank RANKS". Names that differ from another one only in '_' for '-' are
// accepted, but not shown.
std::string OptionName(const CLI::Option& option) {
  std::string name =
      option.get_snames().empty() ? "    " : absl::StrCat("-", option.get_snames().front(), ", ");
  std::vector<std::string> names;
  for (const std::string& long_name : option.get_lnames()) {
    if (!absl::StrContains(long_name, '_')) names.push_back(absl::StrCat("--", long_name));
  }
  absl::StrAppend(&name, absl::StrJoin(names, ", "));
  if (option.get_items_expected_max() != 0) absl::StrAppend(&name, " ", option.get_type_name());
  return name;
}

std::string OptionText(const CLI::Option& option) {
  std::string text = option.get_description();
  if (!option.get_default_str().empty()) {
    absl::StrAppend(&text, " (default: ", option.get_default_str(), ")");
  }
  return text;
}

std::string Options(const CLI::App& app) {
  std::string out;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional() || option->get_group().empty()) continue;
    if (app.get_parent() != nullptr && option == app.get_help_ptr()) continue;
    absl::StrAppend(&out, Entry(OptionName(*option), OptionText(*option)));
  }
  return out;
}

std::string Arguments(const CLI::App& app) {
  std::string out;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional()) {
      absl::StrAppend(&out, Entry(option->get_name(true, false), OptionText(*option)));
    }
  }
  return out;
}

// The verbs below `app`, by group.
std::string Verbs(const CLI::App& app) {
  std::vector<std::string> groups;
  for (const CLI::App* verb : app.get_subcommands({})) {
    if (std::find(groups.begin(), groups.end(), verb->get_group()) == groups.end()) {
      groups.push_back(verb->get_group());
    }
  }
  std::string out;
  for (const std::string& group : groups) {
    absl::StrAppend(&out, "\n", group, ":\n");
    for (const CLI::App* verb : app.get_subcommands({})) {
      if (verb->get_group() == group) {
        absl::StrAppend(&out, Entry(verb->get_name(), verb->get_description()));
      }
    }
  }
  return out;
}

std::string Section(const std::string& head, const std::string& body) {
  return body.empty() ? "" : absl::StrCat("\n", head, ":\n", body);
}

std::string FullName(const CLI::App& app) {
  return app.get_parent() == nullptr
             ? app.get_name()
             : absl::StrCat(FullName(*app.get_parent()), " ", app.get_name());
}

const CLI::App& ProgramOf(const CLI::App& app) {
  const CLI::App* program = &app;
  while (program->get_parent() != nullptr) program = program->get_parent();
  return *program;
}

std::string Exits(const Verb& verb) {
  std::string out;
  for (const auto& [code, meaning] : verb.manual().exits) {
    absl::StrAppend(&out, Entry(code, meaning));
  }
  if (verb.get_parent() != nullptr) return out;
  for (const ExitCodeInfo& exit : kExitCodes) {
    absl::StrAppend(&out, Entry(exit.value, exit.meaning));
  }
  return out;
}

class ManualPage : public CLI::FormatterBase {
 public:
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override {
    const Verb& verb = dynamic_cast<const Verb&>(*app);
    const Manual& manual = verb.manual();
    std::string out = absl::StrCat(Wrapped(manual.summary, 0), "\nUsage: ", FullName(verb), " ",
                                   manual.usage, "\n");
    for (const std::string& paragraph : manual.paragraphs) {
      absl::StrAppend(&out, "\n", Wrapped(paragraph, 0));
    }
    absl::StrAppend(&out, Verbs(verb), Section("Arguments", Arguments(verb)),
                    Section("Options", Options(verb)));
    if (verb.get_parent() != nullptr) {
      absl::StrAppend(&out, Section("Global options", Options(ProgramOf(verb))));
    }
    absl::StrAppend(&out, Section("Exit status", Exits(verb)));
    std::string examples;
    for (const auto& [command, text] : manual.examples) {
      absl::StrAppend(&examples, CommandLine(command), Wrapped(text, 6));
    }
    return absl::StrCat(out, Section("Examples", examples));
  }
};

}  // namespace

Verb& AddVerb(CLI::App& parent, const std::string& name, const std::string& group, Manual manual) {
  auto verb = std::make_shared<Verb>(name, std::move(manual));
  verb->group(group);
  verb->formatter(parent.get_formatter());
  verb->set_help_flag("-h,--help", "Print this page");
  // Accept options of the program after the verb, too.
  verb->fallthrough();
  parent.add_subcommand(verb);
  return *verb;
}

std::unique_ptr<Verb> MakeProgram(Manual manual) {
  auto program = std::make_unique<Verb>("muster", std::move(manual));
  program->formatter(std::make_shared<ManualPage>());
  program->set_help_flag("-h,--help", "Print this page; after a verb, the verb's page");
  program->require_subcommand(1);
  program->fallthrough();
  // The last value wins: flags over the environment, the environment over the configuration file.
  program->option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  return program;
}

CLI::Option* Repeatable(CLI::Option* option) {
  return option->expected(1)->take_all()->allow_extra_args(false);
}

std::function<std::string(const std::string&)> OneOf(std::vector<std::string> words) {
  return [words = std::move(words)](const std::string& text) {
    if (std::find(words.begin(), words.end(), text) != words.end()) return std::string();
    return absl::StrCat("'", absl::Utf8SafeCHexEscape(text), "' is not one of ",
                        absl::StrJoin(words, ", "));
  };
}

std::string AboveZero(const std::string& text) {
  uint64_t number;
  if (absl::SimpleAtoi(text, &number) && number > 0) return "";
  return absl::StrCat("'", absl::Utf8SafeCHexEscape(text), "' is not a whole number above 0");
}

}  // namespace muster::cli
