// `muster help`.
#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "cli/context.h"
#include "cli/exit_code.h"
#include "cli/suggestions.h"
#include "cli/verb.h"

namespace muster::cli {
namespace {

int Help(Context& context, const CLI::App& program, const std::vector<std::string>& words) {
  const CLI::App* verb = &program;
  for (const std::string& word : words) {
    const auto is_meant = [&word](const CLI::App* app) { return app->get_name() == word; };
    const std::vector<const CLI::App*> found = verb->get_subcommands(is_meant);
    if (found.empty()) {
      context.console.Note(absl::StrCat("muster help: ", UnknownVerb(*verb, word)));
      context.console.Note("see `muster help`");
      return kExitUsage;
    }
    verb = found.front();
  }
  context.console.Out(
      program.get_formatter()->make_help(verb, verb->get_name(), CLI::AppFormatMode::Normal));
  return kExitSuccess;
}

}  // namespace

void AddHelpVerb(CLI::App& app, Context& context) {
  Verb& verb = AddVerb(
      app, "help", kOtherVerbs,
      {.summary = "Print the page of a verb, or of the program",
       .usage = "[VERB...]",
       .paragraphs = {"`muster help VERB` prints the same page as `muster VERB --help`. Text is "
                      "wrapped to COLUMNS, else to the width of the terminal, else to 80 columns; "
                      "to at least 60."},
       .examples = {{"muster help run", "the page of `muster run`"},
                    {"muster help node drain", "the page of a verb in a group"}}});
  auto words = std::make_shared<std::vector<std::string>>();
  verb.add_option("VERB", *words, "Verb, with its group");
  verb.callback([&app, &context, words] {
    context.action = [&app, &context, words] { return Help(context, app, *words); };
  });
}

}  // namespace muster::cli
