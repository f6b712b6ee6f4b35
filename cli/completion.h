// What a shell offers behind what was typed so far: verbs, options, their values, and the names of
// jobs and nodes as the coordinator has them.
#ifndef MUSTER_CLI_COMPLETION_H_
#define MUSTER_CLI_COMPLETION_H_

#include <functional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "cli/context.h"

namespace muster::cli {

// The scripts of `muster completion` call `muster __complete WORD…`: the words behind `muster` up
// to the cursor, the last of them unfinished and perhaps empty.
inline constexpr char kCompleteWord[] = "__complete";

struct Candidate {
  std::string text;
  std::string description;
};
// Stands alone for "whatever files there are".
inline constexpr char kFileCandidate[] = ":file";

// What the cluster knows; empty where it does not answer. `common` are the options of the program
// that the words hold.
using NameLister = std::function<std::vector<Candidate>(const std::string& kind,
                                                        const std::vector<std::string>& common)>;

// Options and arguments tell what they take by their type's name: JOB, NODE, FIELD, FIELD=VALUE,
// FORMAT, STATE, FILE, DIR, or the choices themselves, as in bash|zsh|fish.
std::vector<Candidate> Candidates(const CLI::App& program, const std::vector<std::string>& words,
                                  const NameLister& list_names);

// Prints them, `text TAB description` a line. Always exits 0. `parse` fills the context from a
// whole command line; false when it is wrong.
int Complete(const CLI::App& program, Context& context, const std::vector<std::string>& words,
             const std::function<bool(const std::vector<std::string>& arguments)>& parse);

}  // namespace muster::cli

#endif  // MUSTER_CLI_COMPLETION_H_
