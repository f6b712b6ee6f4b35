// A verb of the command line and its manual page, which `--help` prints.
#ifndef MUSTER_CLI_VERB_H_
#define MUSTER_CLI_VERB_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "cli/context.h"
#include "spec/units.h"

namespace muster::cli {

// The text of a verb's manual page that does not come from its options.
struct Manual {
  std::string summary;                       // one line, shown in the list of verbs
  std::string usage;                         // follows the verb: "JOB [OPTIONS]"
  std::vector<std::string> paragraphs = {};  // the description; wrapped when printed
  // Exit codes (code, meaning), where they differ from the list that `muster --help` prints.
  std::vector<std::pair<std::string, std::string>> exits = {};
  std::vector<std::pair<std::string, std::string>> examples = {};  // (command line, what it does)
};

// Groups of verbs. `muster --help` prints them in the order of their first verbs.
inline constexpr char kJobVerbs[] = "Jobs";
inline constexpr char kNodeVerbs[] = "Nodes";
inline constexpr char kSpecVerbs[] = "Specs";
inline constexpr char kOtherVerbs[] = "Other";

class Verb : public CLI::App {
 public:
  Verb(std::string name, Manual manual)
      : CLI::App(manual.summary, std::move(name)), manual_(std::move(manual)) {}

  const Manual& manual() const { return manual_; }

 private:
  const Manual manual_;
};

// Adds a verb, owned by `parent`: the program, or a verb that has verbs of its own.
Verb& AddVerb(CLI::App& parent, const std::string& name, const std::string& group, Manual manual);

// Lets a command line that names `verb` call `action(context, *flags)`, which returns the exit
// code. `flags` are the values of the verb's options.
template <typename Flags, typename Action>
void SetAction(CLI::App& verb, Context& context, std::shared_ptr<Flags> flags, Action action) {
  verb.callback([&context, flags, action] {
    context.action = [&context, flags, action] { return action(context, *flags); };
  });
}

// Creates the program, without its options; every verb is added below it.
std::unique_ptr<Verb> MakeProgram(Manual manual);

// Lets `option` be repeated, with one value each time: what follows the value is not part of it.
CLI::Option* Repeatable(CLI::Option* option);

// Validators for CLI11 with Muster's error messages. OneOf accepts the given words, AboveZero whole
// numbers above 0.
std::function<std::string(const std::string&)> OneOf(std::vector<std::string> words);
std::string AboveZero(const std::string& text);

// Adds an option that accepts durations such as 90s, 10m or 1.5h; other values are usage errors.
// `value`, an absl::Duration or an optional one, must outlive parsing.
template <typename Value>
CLI::Option* AddDurationOption(CLI::App& app, const std::string& name, Value& value,
                               const std::string& description) {
  return app
      .add_option_function<std::string>(
          name, [&value](const std::string& text) { value = *spec::ParseDuration(text); },
          description)
      ->type_name("DURATION")
      ->check([](const std::string& text) {
        return std::string(spec::ParseDuration(text).status().message());
      });
}

}  // namespace muster::cli

#endif  // MUSTER_CLI_VERB_H_
