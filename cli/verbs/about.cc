// `muster help`, `version` and `completion`: the last prints scripts with which a shell calls
// `muster
// __complete`.
#include <map>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "cli/context.h"
#include "cli/exit_code.h"
#include "cli/output/json.h"
#include "cli/suggestions.h"
#include "cli/verb.h"
#include "common/version.h"
#include "nlohmann/json.hpp"

namespace muster::cli {
namespace {

int Help(Context& context, const CLI::App& program, const std::vector<std::string>& words) {
  const CLI::App* verb = &program;
  for (const std::string& word : words) {
    const auto is_meant = [&word](const CLI::App* app) { return app->get_name() == word; };
    const std::vector<const CLI::App*> found = verb->get_subcommands(is_meant);
    if (found.empty()) {
      context.console.Note("muster help: ", UnknownVerb(*verb, word));
      context.console.Note("see `muster help`");
      return kExitUsage;
    }
    verb = found.front();
  }
  context.console.Out(
      program.get_formatter()->make_help(verb, verb->get_name(), CLI::AppFormatMode::Normal));
  return kExitSuccess;
}

int Version(Context& context, bool server) {
  v1::GetVersionResponse own;
  own.set_software_version(kSoftwareVersion);
  own.set_protocol_version(kProtocolVersion);
  nlohmann::ordered_json json = ToJson(own);
  std::string text =
      absl::StrCat("muster ", own.software_version(), " (protocol ", own.protocol_version(), ")\n");
  if (server) {
    ClusterClient client(context.client_options());
    const absl::StatusOr<v1::GetVersionResponse> theirs =
        client.Call<v1::GetVersionResponse>(v1::GetVersionRequest());
    if (!theirs.ok()) return context.Fail(theirs.status());
    json["coordinator"] = ToJson(*theirs);
    absl::StrAppend(&text, "coordinator ", theirs->software_version(), " (protocol ",
                    theirs->protocol_version(), "), cluster ", theirs->cluster_id(), ", commit ",
                    theirs->commit_index(), "\n");
  }
  context.Show(own.software_version(), json, text);
  return kExitSuccess;
}

constexpr char kBash[] = R"(# Completion of muster for bash: source <(muster completion bash)
_muster() {
  local line=${COMP_LINE:0:COMP_POINT} words candidate
  read -ra words <<<"$line"
  [[ $line == *[[:space:]] ]] && words+=("")
  local current=${words[${#words[@]} - 1]}
  # bash replaces only the text after the last '=' or ':'.
  local kept=${current%"${current##*[=:]}"}
  COMPREPLY=()
  while IFS=$'\t' read -r candidate _; do
    case $candidate in
      :file) compopt -o default ;;
      *=) compopt -o nospace; COMPREPLY+=("${candidate#"$kept"}") ;;
      *) COMPREPLY+=("${candidate#"$kept"}") ;;
    esac
  done < <("${words[0]}" __complete "${words[@]:1}" 2>/dev/null)
}
complete -F _muster muster
)";

constexpr char kZsh[] = R"(#compdef muster
# Completion of muster for zsh: source <(muster completion zsh)
_muster() {
  local line text
  local -a plain open shown
  while IFS= read -r line; do
    text=${line%%$'\t'*}
    case $text in
      :file) _files ;;
      *=) open+=("$text") ;;
      *) plain+=("$text"); shown+=("$text  ${line#*$'\t'}") ;;
    esac
  done < <("${words[1]}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)
  (( ${#plain} )) && compadd -l -d shown -a plain
  (( ${#open} )) && compadd -S '' -a open
  return 0
}
compdef _muster muster
)";

constexpr char kFish[] = R"(# Completion of muster for fish: muster completion fish | source
function __muster_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    for line in ($words[1] __complete $words[2..-1] "$current" 2>/dev/null)
        if string match -q ':file*' -- $line
            __fish_complete_path "$current"
        else
            echo $line
        end
    end
end
complete -c muster -f -a '(__muster_complete)'
)";

int Completion(Context& context, const std::string& shell) {
  const std::map<std::string, std::string> scripts = {
      {"bash", kBash}, {"zsh", kZsh}, {"fish", kFish}};
  context.Show(shell, {{"shell", shell}, {"script", scripts.at(shell)}}, scripts.at(shell));
  return kExitSuccess;
}

}  // namespace

void AddHelpVerb(CLI::App& app, Context& context) {
  Verb& verb = AddVerb(
      app, "help", kOtherVerbs,
      {.summary = "Print the page of a verb, or of the program",
       .usage = "[VERB...]",
       .paragraphs = {"`muster help VERB` prints the same page as `muster VERB --help`. Text is "
                      "wrapped to COLUMNS, else to the width of the terminal, else to 80 columns; "
                      "to at least 60."},
       .examples = {{"muster help run", "the page of `muster run`"},
                    {"muster help node drain", "the page of a verb in a group"}}});
  auto words = std::make_shared<std::vector<std::string>>();
  verb.add_option("VERB", *words, "Verb, with its group");
  SetAction(verb, context, words, [&app](Context& context, const std::vector<std::string>& words) {
    return Help(context, app, words);
  });
}

void AddVersionVerb(CLI::App& app, Context& context) {
  Verb& verb = AddVerb(app, "version", kOtherVerbs,
                       {.summary = "Print the version",
                        .usage = "[OPTIONS]",
                        .examples = {{"muster version --server",
                                      "also print the coordinator's version and cluster"}}});
  auto server = std::make_shared<bool>(false);
  verb.add_flag("--server", *server, "Also print the coordinator's version and cluster");
  SetAction(verb, context, server, Version);
}

void AddCompletionVerb(CLI::App& app, Context& context) {
  Verb& verb = AddVerb(
      app, "completion", kOtherVerbs,
      {.summary = "Print a shell completion script",
       .usage = "bash|zsh|fish",
       .paragraphs =
           {"Completes verbs, options and their values, fields of the spec, and names of jobs and "
            "nodes, which it requests from the coordinator with a short timeout."},
       .examples = {{"source <(muster completion bash)", "in ~/.bashrc"},
                    {"source <(muster completion zsh)", "in ~/.zshrc, after compinit"},
                    {"muster completion fish | source", "in ~/.config/fish/config.fish"}}});
  auto shell = std::make_shared<std::string>();
  verb.add_option("SHELL", *shell, "bash, zsh or fish")
      ->required()
      ->type_name("bash|zsh|fish")
      ->check(OneOf({"bash", "zsh", "fish"}));
  SetAction(verb, context, shell, Completion);
}

}  // namespace muster::cli
