#include "cli/suggestions.h"

#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "cli/files/script.h"
#include "common/text/nearest.h"

namespace muster::cli {
namespace {

struct Synonym {
  const char* word;
  const char* verb;  // with its group
};

// A word may have several verbs; the first one that exists in the group counts.
constexpr Synonym kSynonyms[] = {
    {"abort", "cancel"},
    {"apply", "submit"},
    {"attach", "logs"},
    {"bash", "exec"},
    {"copy", "cp"},
    {"create", "submit"},
    {"del", "rm"},
    {"delete", "rm"},
    {"delete", "node remove"},
    {"disable", "node cordon"},
    {"download", "cp"},
    {"enable", "node uncordon"},
    {"follow", "logs"},
    {"grid", "experiment"},
    {"info", "describe"},
    {"inspect", "describe"},
    {"jobs", "list"},
    {"kill", "cancel"},
    {"ls", "list"},
    {"ls", "node list"},
    {"nodes", "node list"},
    {"output", "logs"},
    {"pause", "hold"},
    {"ps", "list"},
    {"remove", "rm"},
    {"restart", "requeue"},
    {"resubmit", "rerun"},
    {"resume", "release"},
    {"retry", "rerun"},
    {"rm", "node remove"},
    {"save", "checkpoint"},
    {"sbatch", "submit"},
    {"scancel", "cancel"},
    {"shell", "exec"},
    {"show", "describe"},
    {"show", "node describe"},
    {"sinfo", "node list"},
    {"snapshot", "checkpoint"},
    {"squeue", "queue"},
    {"sreport", "report"},
    {"srun", "run"},
    {"ssh", "exec"},
    {"start", "run"},
    {"stat", "describe"},
    {"status", "describe"},
    {"status", "node describe"},
    {"stop", "cancel"},
    {"suspend", "hold"},
    {"sweep", "experiment"},
    {"tail", "logs"},
    {"workers", "node list"},
};

const CLI::App* Find(const CLI::App& app, absl::string_view name) {
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (verb->get_name() == name) return verb;
  }
  return nullptr;
}

// Whether `path`, such as "node list", is a verb below `app`.
bool Exists(const CLI::App& app, absl::string_view path) {
  const size_t space = path.find(' ');
  const CLI::App* verb = Find(app, path.substr(0, space));
  if (verb == nullptr || space == absl::string_view::npos) return verb != nullptr;
  return Exists(*verb, path.substr(space + 1));
}

// The verb that `word` means, as it would be typed after `app`; empty if there is none.
std::string BySynonym(const CLI::App& app, const std::string& word) {
  const std::string group = app.get_parent() == nullptr ? "" : absl::StrCat(app.get_name(), " ");
  for (const Synonym& synonym : kSynonyms) {
    absl::string_view verb = synonym.verb;
    if (word == synonym.word && absl::ConsumePrefix(&verb, group) && Exists(app, verb)) {
      return std::string(verb);
    }
  }
  return "";
}

// "spec validate" for `validate`: the verb of that name in a group below `app`.
std::string InGroup(const CLI::App& app, const std::string& word) {
  for (const CLI::App* group : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (Find(*group, word) != nullptr) return absl::StrCat(group->get_name(), " ", word);
  }
  return "";
}

}  // namespace

std::string UnknownVerb(const CLI::App& app, const std::string& word) {
  if (const std::string command = CommandFor(word); !command.empty()) {
    return absl::StrCat(Quoted(word), " is not a verb; to run it, use `muster local -- ", command,
                        "`");
  }
  const std::string lower = absl::AsciiStrToLower(word);
  std::string meant = BySynonym(app, lower);
  if (meant.empty()) meant = InGroup(app, lower);
  if (!meant.empty()) {
    return absl::StrCat(Quoted(word), " is not a verb; did you mean '", meant, "'?");
  }
  std::vector<std::string> verbs;
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
    verbs.push_back(verb->get_name());
  }
  return absl::StrCat(Quoted(word), " is not a verb", DidYouMean(word, verbs));
}

}  // namespace muster::cli
