// A verb of the command line and its manual page, which `--help` prints.
#ifndef MUSTER_CLI_VERB_H_
#define MUSTER_CLI_VERB_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"

namespace muster::cli {

// What a verb's options do not say themselves.
struct Manual {
  std::string summary;                       // one line, as it stands in the list of verbs
  std::string usage;                         // what stands behind the verb: "JOB [OPTIONS]"
  std::vector<std::string> paragraphs = {};  // the description; wrapped when printed
  // Only where a verb's differ from the list that `muster --help` prints.
  std::vector<std::pair<std::string, std::string>> exits = {};
  std::vector<std::pair<std::string, std::string>> examples = {};  // command line, what it does
};

// The order of the groups in `muster --help` is that of their first verbs.
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

// Owned by `parent`. A verb with verbs of its own gets them the same way.
Verb& AddVerb(CLI::App& parent, const std::string& name, const std::string& group, Manual manual);

// The program itself, without its options: what every verb stands under.
std::unique_ptr<Verb> MakeProgram(Manual manual);

// Options of the program, not of a verb: shown with every verb, and readable from the environment
// and the configuration file.
bool IsCommonOption(const CLI::App& program, const CLI::Option& option);

// Checks of an option's value, with words of their own.
std::function<std::string(const std::string&)> OneOf(std::vector<std::string> words);
std::string AboveZero(const std::string& text);

}  // namespace muster::cli

#endif  // MUSTER_CLI_VERB_H_
