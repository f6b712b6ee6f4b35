// The command line of Muster. Data goes to stdout, everything else to stderr; exit statuses are in
// exit_code.h.
#include <algorithm>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "cli/context.h"
#include "cli/exit_code.h"
#include "cli/output/console.h"
#include "common/spec/nearest.h"

namespace muster::cli {
namespace {

const std::map<std::string, Output> kOutputs = {{"table", Output::kTable},
                                                {"wide", Output::kWide},
                                                {"json", Output::kJson},
                                                {"yaml", Output::kYaml},
                                                {"name", Output::kName}};

void Declare(CLI::App& app, Context& context) {
  app.require_subcommand(1);
  // Options of the program may also stand behind the verb.
  app.fallthrough();
  app.add_option("--coordinator", context.coordinator, "HOST:PORT of the coordinator")
      ->envname("MUSTER_COORDINATOR")
      ->default_val("127.0.0.1:7070");
  app.add_option_function<std::string>(
         "-o,--output", [&context](const std::string& name) { context.output = kOutputs.at(name); },
         "table, wide, json, yaml or name")
      ->check(CLI::IsMember(kOutputs));
  AddSubmitVerbs(app, context);
  AddJobVerbs(app, context);
  AddControlVerbs(app, context);
  AddWaitVerb(app, context);
  AddLogsVerb(app, context);
  AddNodeVerbs(app, context);
  AddSpecVerbs(app, context);
  AddVersionVerb(app, context);
}

// "lst is not a verb; did you mean 'list'?", when that is what is wrong.
std::string UnknownVerb(const CLI::App& app) {
  for (const std::string& word : app.remaining()) {
    if (word.empty() || word[0] == '-') continue;
    std::vector<std::string> verbs;
    for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
      verbs.push_back(verb->get_name());
    }
    return absl::StrCat(spec::Quoted(word), " is not a verb; did you mean '",
                        spec::Nearest(word, verbs), "'?");
  }
  return "";
}

int Main(int argc, char** argv) {
  Console console(std::cout, std::cerr, Console::Probe());
  Context context(console);
  CLI::App app("Submits training jobs to a Muster cluster and follows them.", "muster");
  Declare(app, context);

  std::vector<std::string> arguments(argv + 1, argv + argc);
  const auto separator = std::find(arguments.begin(), arguments.end(), "--");
  if (separator != arguments.end()) {
    context.trailing.assign(separator + 1, arguments.end());
    arguments.erase(separator, arguments.end());
  }
  // CLI11 takes them from the back.
  std::reverse(arguments.begin(), arguments.end());
  try {
    app.parse(arguments);
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help, std::cout, std::cerr);
  } catch (const CLI::ParseError& error) {
    const std::string unknown = app.get_subcommands().empty() ? UnknownVerb(app) : "";
    if (unknown.empty()) {
      app.exit(error, std::cerr, std::cerr);
    } else {
      console.Note(absl::StrCat("muster: ", unknown));
    }
    return kUsage;
  }
  return context.action();
}

}  // namespace
}  // namespace muster::cli

int main(int argc, char** argv) { return muster::cli::Main(argc, argv); }
