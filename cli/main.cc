// Entry point of the `muster` command line. Data goes to stdout, everything else to stderr; exit
// codes are in exit_code.h.
#include <algorithm>
#include <cstdlib>
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
#include "cli/program.h"
#include "cli/suggestions.h"
#include "cli/verb.h"
#include "common/flags/flags.h"
#include "common/text/nearest.h"

namespace muster::cli {
namespace {

absl::Status Parse(CLI::App& program, const std::vector<std::string>& given) {
  return flags::Parse(program, given, flags::UserConfigPath(),
                      {"token-file", "tls-ca", "tls-cert", "tls-key"});
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

// "unexpected argument 'train.py'", with a remedy for a verb that takes a command.
std::string UnexpectedArgument(const CLI::App& verb, const std::string& word) {
  const auto* const described = dynamic_cast<const Verb*>(&verb);
  const bool takes_command =
      described != nullptr && absl::StrContains(described->manual().usage, "-- CMD");
  return absl::StrCat("unexpected argument ", Quoted(word),
                      takes_command ? "; a command starts after `--`" : "");
}

// "'kill' is not a verb; did you mean 'cancel'?", "--grce is not an option; did you mean --grace?".
std::string Unexpected(const CLI::App& program, const CLI::App& verb) {
  for (const std::string& word : program.remaining(/*recurse=*/true)) {
    if (!absl::StartsWith(word, "-")) {
      const bool group = !verb.get_subcommands([](const CLI::App*) { return true; }).empty();
      return group ? UnknownVerb(verb, word) : UnexpectedArgument(verb, word);
    }
    std::vector<std::string> options;
    for (const CLI::App* app = &verb; app != nullptr; app = app->get_parent()) {
      for (const CLI::Option* option : app->get_options()) {
        for (const std::string& name : option->get_lnames()) options.push_back("--" + name);
      }
    }
    const std::string name = word.substr(0, word.find('='));
    const std::string nearest = Nearest(name, options);
    return absl::StrCat(name, " is not an option",
                        nearest.empty() ? "" : absl::StrCat("; did you mean ", nearest, "?"));
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
  console.Note(FullName(verb), ": ", text);
  console.Note("see `", FullName(verb), " --help`");
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
  const std::unique_ptr<Verb> program = MusterProgram(context, config);

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
  } catch (const CLI::Success& answer) {  // --help or --version
    return program->exit(answer, std::cout, std::cerr);
  } catch (const CLI::ParseError& error) {
    return UsageError(*program, error, console);
  }
  return context.action();
}

}  // namespace
}  // namespace muster::cli

int main(int argc, char** argv) {
  const int exit_code = muster::cli::Main(argc, argv);
  std::cout.flush();
  std::cerr.flush();
  // Destructors of static objects would only take time, several milliseconds with gRPC.
  std::_Exit(exit_code);
}
