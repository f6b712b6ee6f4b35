// Entry point of the `muster` command line. Data goes to stdout, everything else to stderr; exit
// codes are in exit_code.h.
#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/completion.h"
#include "cli/context.h"
#include "cli/exit_code.h"
#include "cli/output/console.h"
#include "cli/verb.h"
#include "common/flags/flags.h"
#include "common/nearest.h"

namespace muster::cli {
namespace {

// Each of these options can also be set in the environment, as MUSTER_NAME, and in the
// configuration file.
void DeclareCommonOptions(CLI::App& program, Context& context, std::string& config) {
  program.add_option("--coordinator", context.coordinator, "Coordinator address")
      ->type_name("HOST:PORT")
      ->default_val("127.0.0.1:7070");
  program
      .add_option_function<std::string>(
          "-o,--output",
          [&context](const std::string& name) { context.output = Outputs().at(name); },
          "Output format: table, wide, json, yaml, or name (names only)")
      ->type_name("FORMAT")
      ->default_str("table")
      ->check([](const std::string& name) {
        return Outputs().count(name) > 0
                   ? ""
                   : absl::StrCat(Quoted(name), " is not one of table, wide, json, yaml, name");
      });
  program
      .add_option("--token-file", context.security.token_file,
                  "File that contains the access token (default: MUSTER_TOKEN, then the token of "
                  "this user's coordinator on this machine)")
      ->type_name("FILE");
  program
      .add_option("--tls-ca", context.security.tls.ca,
                  "CA certificate used to verify the coordinator; enables TLS")
      ->type_name("FILE");
  program
      .add_option("--tls-cert", context.security.tls.cert,
                  "Client certificate, if the coordinator requires one")
      ->type_name("FILE");
  program
      .add_option("--tls-key", context.security.tls.key, "Private key of the client certificate")
      ->type_name("FILE");
  program.add_option("--config", config, "File that sets these options, one name=value per line")
      ->type_name("FILE")
      ->default_str("~/.config/muster/config");
}

void DeclareVerbs(CLI::App& program, Context& context) {
  AddSubmitVerbs(program, context);
  AddLocalVerb(program, context);
  AddJobVerbs(program, context);
  AddLogsVerb(program, context);
  AddWhyVerb(program, context);
  AddWaitVerb(program, context);
  AddControlVerbs(program, context);
  AddExperimentVerb(program, context);
  AddNodeVerbs(program, context);
  AddSpecVerbs(program, context);
  AddCompletionVerb(program, context);
  AddVersionVerb(program, context);
}

absl::Status Parse(CLI::App& program, const std::vector<std::string>& given) {
  return flags::Parse(program, given, flags::UserConfigPath());
}

// The innermost verb that was recognised, or the program itself if none was.
const CLI::App& Recognised(const CLI::App& app) {
  const std::vector<CLI::App*> verbs = app.get_subcommands();
  return verbs.empty() ? app : Recognised(*verbs.back());
}

std::string FullName(const CLI::App& app) {
  return app.get_parent() == nullptr
             ? app.get_name()
             : absl::StrCat(FullName(*app.get_parent()), " ", app.get_name());
}

// "'lst' is not a verb; did you mean 'list'?", "--grce is not an option; did you mean --grace?".
std::string Unexpected(const CLI::App& program, const CLI::App& verb) {
  for (const std::string& word : program.remaining(/*recurse=*/true)) {
    if (absl::StartsWith(word, "-")) {
      std::vector<std::string> options;
      for (const CLI::App* app = &verb; app != nullptr; app = app->get_parent()) {
        for (const CLI::Option* option : app->get_options()) {
          for (const std::string& name : option->get_lnames()) options.push_back("--" + name);
        }
      }
      const std::string name = word.substr(0, word.find('='));
      const std::string nearest = Nearest(name, options);
      const bool near = EditDistance(name, nearest) <= name.size() / 2;
      return absl::StrCat(name, " is not an option",
                          near ? absl::StrCat("; did you mean ", nearest, "?") : "");
    }
    std::vector<std::string> verbs;
    for (const CLI::App* known : verb.get_subcommands([](const CLI::App*) { return true; })) {
      verbs.push_back(known->get_name());
    }
    if (verbs.empty()) return absl::StrCat("unexpected argument ", Quoted(word));
    return absl::StrCat(Quoted(word), " is not a verb; did you mean '", Nearest(word, verbs), "'?");
  }
  return "";
}

int UsageError(const CLI::App& program, const CLI::ParseError& error, Console& console) {
  const CLI::App& verb = Recognised(program);
  std::string text = Unexpected(program, verb);
  if (text.empty()) {
    const bool group = !verb.get_subcommands([](const CLI::App*) { return true; }).empty();
    text = group && error.get_name() == "RequiredError" ? "a verb is missing" : error.what();
  }
  console.Note(absl::StrCat(FullName(verb), ": ", text));
  console.Note(absl::StrCat("see `", FullName(verb), " --help`"));
  return kExitUsage;
}

// Returns the arguments before `--`; those after it are a user's command and are stored in
// `trailing`.
std::vector<std::string> BeforeSeparator(int argc, char** argv,
                                         std::vector<std::string>& trailing) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  const auto separator = std::find(arguments.begin(), arguments.end(), "--");
  if (separator != arguments.end()) {
    trailing.assign(separator + 1, arguments.end());
    arguments.erase(separator, arguments.end());
  }
  return arguments;
}

int Main(int argc, char** argv) {
  Console console(std::cout, std::cerr, Console::Probe());
  Context context(console);
  std::string config;
  const std::unique_ptr<Verb> program = MakeProgram(
      {.summary = "Submit training jobs to a Muster cluster and follow them.",
       .usage = "VERB [OPTIONS]",
       .paragraphs = {"A job trains a model on the cluster's nodes, or runs any program there, "
                      "once per rank. `muster VERB --help` describes a verb.",
                      "Options may appear anywhere. Each global option can also be set in the "
                      "environment, as in MUSTER_COORDINATOR, or in the configuration file. A flag "
                      "overrides the environment, which overrides the file."},
       .examples = {{"muster spec init > job.yaml", "write a commented example spec"},
                    {"muster run job.yaml", "queue a job, follow it, exit with its status"},
                    {"muster run -- python3 train.py", "run any program, once per rank"},
                    {"muster local job.yaml", "run a job on this machine, without a cluster"}}});
  DeclareCommonOptions(*program, context, config);
  DeclareVerbs(*program, context);

  if (argc > 1 && absl::string_view(argv[1]) == kCompleteWord) {
    return Complete(*program, context, {argv + 2, argv + argc}, [&program](const auto& arguments) {
      try {
        return Parse(*program, arguments).ok();
      } catch (const CLI::Error&) {
        return false;
      }
    });
  }
  try {
    const absl::Status parsed = Parse(*program, BeforeSeparator(argc, argv, context.trailing));
    if (!parsed.ok())
      return context.Fail(parsed, absl::IsNotFound(parsed) ? kExitNoInput : kExitUsage);
  } catch (const CLI::CallForHelp& help) {
    return program->exit(help, std::cout, std::cerr);
  } catch (const CLI::ParseError& error) {
    return UsageError(*program, error, console);
  }
  return context.action();
}

}  // namespace
}  // namespace muster::cli

int main(int argc, char** argv) { return muster::cli::Main(argc, argv); }
