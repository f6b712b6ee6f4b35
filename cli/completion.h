// Shell completion: candidates for verbs, options, option values, and the names of jobs and nodes,
// which the coordinator provides.
#ifndef MUSTER_CLI_COMPLETION_H_
#define MUSTER_CLI_COMPLETION_H_

#include <functional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "cli/context.h"

namespace muster::cli {

// The scripts of `muster completion` call `muster __complete WORD…` with the words after `muster`
// up to the cursor; the last one is unfinished and may be empty.
inline constexpr char kCompleteWord[] = "__complete";

struct Candidate {
  std::string text;
  std::string description;
};
// A candidate's text that means "complete file names".
inline constexpr char kFileCandidate[] = ":file";

// Lists the cluster's names of `kind` (JOB or NODE); empty if the coordinator does not answer.
// `common` holds the global options among the words.
using NameLister = std::function<std::vector<Candidate>(const std::string& kind,
                                                        const std::vector<std::string>& common)>;

// Candidates for the last of `words`. The kind of a value is the type name of its option or the
// name of its argument: JOB, NODE, FIELD, FIELD=VALUE, FORMAT, STATE, FILE, DIR, SOURCE (JOB:PATH), DEST, or the choices
// themselves, as in bash|zsh|fish.
std::vector<Candidate> Candidates(const CLI::App& program, const std::vector<std::string>& words,
                                  const NameLister& list_names);

// Prints the candidates, one `text TAB description` per line. Always returns 0. `parse` fills the
// context from a command line and returns false if the command line is invalid.
int Complete(const CLI::App& program, Context& context, const std::vector<std::string>& words,
             const std::function<bool(const std::vector<std::string>& arguments)>& parse);

}  // namespace muster::cli

#endif  // MUSTER_CLI_COMPLETION_H_
