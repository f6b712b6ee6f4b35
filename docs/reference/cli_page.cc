#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "docs/reference/markdown.h"
#include "docs/reference/pages.h"
#include "docs/reference/programs.h"

namespace muster::reference {
namespace {

// Default and description of an option. Where the default is not a value, the description ends with
// " (default: …)".
Row DefaultAndText(const CLI::Option& option) {
  std::string text = option.get_description();
  std::string value = option.get_required() ? "required" : Code(option.get_default_str());
  constexpr char kDefault[] = " (default: ";
  const size_t found = text.rfind(kDefault);
  if (found != std::string::npos && absl::EndsWith(text, ")")) {
    value = text.substr(found + sizeof(kDefault) - 1);
    value.pop_back();
    text.resize(found);
  }
  return {value, text};
}

// The table of the arguments or of the options of `app`. The pages of verbs leave out --help.
std::string OptionTable(const CLI::App& app, bool positional) {
  std::vector<Row> rows;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional() != positional || option->get_group().empty()) continue;
    if (app.get_parent() != nullptr && option == app.get_help_ptr()) continue;
    const Row rest = DefaultAndText(*option);
    if (positional) {
      rows.push_back({Code(option->get_name(true, false)), rest[0], rest[1]});
      continue;
    }
    const bool has_value = option->get_items_expected_max() != 0;
    const std::string names = absl::StrReplaceAll(option->get_name(false, true), {{",", "`, `"}});
    rows.push_back({Code(names), has_value ? Code(option->get_type_name()) : "", rest[0], rest[1]});
  }
  return positional ? Table({"argument", "default", "description"}, rows)
                    : Table({"option", "argument", "default", "description"}, rows);
}

std::string FullName(const CLI::App& app) {
  return app.get_parent() == nullptr
             ? app.get_name()
             : absl::StrCat(FullName(*app.get_parent()), " ", app.get_name());
}

std::string ManualText(const cli::Verb& verb) {
  const cli::Manual& manual = verb.manual();
  std::string text =
      absl::StrCat(manual.summary, absl::EndsWith(manual.summary, ".") ? "" : ".", "\n\n```\n",
                   FullName(verb), manual.usage.empty() ? "" : " ", manual.usage, "\n```\n\n");
  for (const std::string& paragraph : manual.paragraphs) absl::StrAppend(&text, paragraph, "\n\n");
  absl::StrAppend(&text, OptionTable(verb, /*positional=*/true),
                  OptionTable(verb, /*positional=*/false));
  std::vector<Row> exits;
  for (const auto& [code, meaning] : manual.exits) exits.push_back({code, meaning});
  absl::StrAppend(&text, Table({"exit code", "meaning"}, exits));
  std::vector<Row> examples;
  for (const auto& [command, effect] : manual.examples) examples.push_back({Code(command), effect});
  absl::StrAppend(&text, Table({"example", "effect"}, examples));
  return text;
}

// Fills `list` with a row per verb below `app`, and returns their sections.
std::string VerbSections(const CLI::App& app, std::vector<Row>& list) {
  std::string sections;
  for (const CLI::App* below : app.get_subcommands({})) {
    if (!below->get_subcommands({}).empty()) {
      absl::StrAppend(&sections, VerbSections(*below, list));
      continue;
    }
    const auto& verb = dynamic_cast<const cli::Verb&>(*below);
    const std::string name = FullName(verb);
    const std::string anchor = absl::StrReplaceAll(name, {{" ", "-"}});
    list.push_back({absl::StrCat("[`", name, "`](#", anchor, ")"), verb.manual().summary});
    absl::StrAppend(&sections, "### ", name, "\n\n", ManualText(verb));
  }
  return sections;
}

std::string DaemonSection(const CLI::App& app) {
  return absl::StrCat("## ", app.get_name(), "\n\n", app.get_description(), "\n\n",
                      OptionTable(app, /*positional=*/false));
}

}  // namespace

std::string CliPage() {
  const Programs programs;
  std::vector<Row> verbs;
  const std::string sections = VerbSections(*programs.muster, verbs);
  return absl::StrCat(
      "# Command-line reference\n\n"
      "For users and operators: the command lines of `muster`, `muster-coordinator` and "
      "`muster-worker`. ",
      GeneratedFrom("the declarations that `--help` prints"),
      "[Exit codes](exit_codes.md) and [environment variables](environment.md) have pages of their "
      "own.\n\n## muster\n\n",
      ManualText(*programs.muster), Table({"verb", "description"}, verbs), sections,
      DaemonSection(*programs.coordinator), DaemonSection(*programs.worker));
}

}  // namespace muster::reference
