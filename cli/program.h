// The `muster` program with all its options and verbs.
#ifndef MUSTER_CLI_PROGRAM_H_
#define MUSTER_CLI_PROGRAM_H_

#include <memory>
#include <string>

#include "cli/context.h"
#include "cli/verb.h"

namespace muster::cli {

// Parsing a command line with the program fills `context`, and `config` with the path given by
// --config; both must outlive it.
std::unique_ptr<Verb> MusterProgram(Context& context, std::string& config);

}  // namespace muster::cli

#endif  // MUSTER_CLI_PROGRAM_H_
