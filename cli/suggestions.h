// Suggestions for an unknown verb: by the names that other tools use, and by spelling.
#ifndef MUSTER_CLI_SUGGESTIONS_H_
#define MUSTER_CLI_SUGGESTIONS_H_

#include <string>

#include "CLI/CLI.hpp"

namespace muster::cli {

// "'kill' is not a verb; did you mean 'cancel'?" for a word that is not a verb of `app`, the
// program or a group of verbs. Without a suggestion if no verb is close in meaning or spelling.
std::string UnknownVerb(const CLI::App& app, const std::string& word);

}  // namespace muster::cli

#endif  // MUSTER_CLI_SUGGESTIONS_H_
