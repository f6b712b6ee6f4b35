// The command line of Muster. Data goes to stdout, everything else to stderr; exit statuses are in
// exit_code.h.
#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "cli/completion.h"
#include "cli/config.h"
#include "cli/context.h"
#include "cli/exit_code.h"
#include "cli/output/console.h"
#include "cli/verb.h"
#include "common/status.h"
#include "spec/nearest.h"

namespace muster::cli {
namespace {

// Each of them may also stand in the environment, as MUSTER_NAME, and in the configuration file.
void DeclareCommonOptions(CLI::App& program, Context& context, std::string& config) {
  program.add_option("--coordinator", context.coordinator, "Where the coordinator listens")
      ->type_name("HOST:PORT")
      ->default_val("127.0.0.1:7070");
  program
      .add_option_function<std::string>(
          "-o,--output",
          [&context](const std::string& name) { context.output = Outputs().at(name); },
          "What goes to stdout: table, wide, json, yaml, or name for names alone")
      ->type_name("FORMAT")
      ->default_str("table")
      ->check([](const std::string& name) {
        return Outputs().count(name) > 0
                   ? ""
                   : absl::StrCat(spec::Quoted(name), " is none of table, wide, json, yaml, name");
      });
  program
      .add_option("--token-file", context.security.token_file,
                  "The token to show; default: the one of MUSTER_TOKEN, else the one that a "
                  "coordinator of this user on this machine has left")
      ->type_name("FILE");
  program
      .add_option("--tls-ca", context.security.tls.ca,
                  "Use TLS, and believe a coordinator whose certificate this CA has signed")
      ->type_name("FILE");
  program
      .add_option("--tls-cert", context.security.tls.cert,
                  "The certificate to show to a coordinator that wants one")
      ->type_name("FILE");
  program.add_option("--tls-key", context.security.tls.key, "The certificate's private key")
      ->type_name("FILE");
  program.add_option("--config", config, "A file of these options, name=value a line")
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

std::string EnvironmentName(const std::string& option) {
  std::string name = absl::StrCat("MUSTER_", option);
  for (char& c : name) c = c == '-' ? '_' : absl::ascii_toupper(c);
  return name;
}

// The common options that the environment gives, as flags.
std::vector<std::string> FromEnvironment(const std::vector<std::string>& names) {
  std::vector<std::string> flags;
  for (const std::string& name : names) {
    const char* value = std::getenv(EnvironmentName(name).c_str());
    if (value != nullptr && *value != '\0') flags.push_back(absl::StrCat("--", name, "=", value));
  }
  return flags;
}

// The last value of --config; empty when it is not given.
std::string ConfigIn(const std::vector<std::string>& arguments) {
  std::string path;
  for (size_t i = 0; i < arguments.size(); ++i) {
    absl::string_view text = arguments[i];
    if (absl::ConsumePrefix(&text, "--config=")) {
      path = std::string(text);
    } else if (text == "--config" && i + 1 < arguments.size()) {
      path = arguments[i + 1];
    }
  }
  return path;
}

// Common options from the configuration file and the environment, before those of the command line:
// the last one counts. The file that is there by default need not be there.
absl::StatusOr<std::vector<std::string>> WithDefaults(const CLI::App& program,
                                                      const std::vector<std::string>& given) {
  // Help is to be had whatever the file says.
  for (const std::string& word : given) {
    if (word == "-h" || word == "--help") return given;
  }
  std::vector<std::string> names;
  for (const CLI::Option* option : program.get_options()) {
    if (IsCommonOption(program, *option)) names.push_back(option->get_lnames().front());
  }
  const std::vector<std::string> environment = FromEnvironment(names);
  std::string path = ConfigIn(given);
  if (path.empty()) path = ConfigIn(environment);
  const bool named = !path.empty();
  if (!named) path = DefaultConfigPath();

  std::vector<std::string> arguments;
  if (!path.empty()) {
    names.erase(std::remove(names.begin(), names.end(), "config"), names.end());
    absl::StatusOr<std::vector<std::string>> flags = ReadConfig(path, names);
    if (flags.ok()) {
      arguments = *std::move(flags);
    } else if (named || flags.status().code() != absl::StatusCode::kNotFound) {
      return flags.status();
    }
  }
  arguments.insert(arguments.end(), environment.begin(), environment.end());
  arguments.insert(arguments.end(), given.begin(), given.end());
  return arguments;
}

// Throws as CLI::App::parse does; a status for a wrong configuration file.
absl::Status Parse(CLI::App& program, const std::vector<std::string>& given) {
  ASSIGN_OR_RETURN(std::vector<std::string> arguments, WithDefaults(program, given));
  // CLI11 takes them from the back.
  std::reverse(arguments.begin(), arguments.end());
  program.parse(arguments);
  return absl::OkStatus();
}

// The verb that was recognised: the program itself when none was.
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
      const std::string nearest = spec::Nearest(name, options);
      const bool near = spec::EditDistance(name, nearest) <= name.size() / 2;
      return absl::StrCat(name, " is not an option",
                          near ? absl::StrCat("; did you mean ", nearest, "?") : "");
    }
    std::vector<std::string> verbs;
    for (const CLI::App* known : verb.get_subcommands([](const CLI::App*) { return true; })) {
      verbs.push_back(known->get_name());
    }
    if (verbs.empty()) return absl::StrCat(spec::Quoted(word), " is one argument too many");
    return absl::StrCat(spec::Quoted(word), " is not a verb; did you mean '",
                        spec::Nearest(word, verbs), "'?");
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
  console.Note(absl::StrCat("`", FullName(verb), " --help` says more"));
  return kUsage;
}

// What stands behind `--` is a command, and none of our words.
std::vector<std::string> BeforeSeparator(int argc, char** argv, std::vector<std::string>& behind) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  const auto separator = std::find(arguments.begin(), arguments.end(), "--");
  if (separator != arguments.end()) {
    behind.assign(separator + 1, arguments.end());
    arguments.erase(separator, arguments.end());
  }
  return arguments;
}

int Main(int argc, char** argv) {
  Console console(std::cout, std::cerr, Console::Probe());
  Context context(console);
  std::string config;
  const std::unique_ptr<Verb> program = MakeProgram(
      {.summary = "Submits training jobs to a Muster cluster and follows them.",
       .usage = "VERB [OPTIONS]",
       .paragraphs = {"A job trains a model on the cluster's nodes, or runs any program there once "
                      "per rank. `muster VERB --help` tells all about a verb.",
                      "Options may stand anywhere. Each option of the program can also be given in "
                      "the environment, as in MUSTER_COORDINATOR, and in the configuration file; a "
                      "flag overrules the environment, and the environment the file."},
       .examples = {{"muster spec init > job.yaml", "a commented spec to begin with"},
                    {"muster run job.yaml", "queue it, follow it, exit with its status"},
                    {"muster run -- python3 train.py", "any program, started once per rank"},
                    {"muster local job.yaml", "the same on this machine, without a cluster"}}});
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
    if (!parsed.ok()) return context.Fail(parsed, absl::IsNotFound(parsed) ? kNoInput : kUsage);
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
