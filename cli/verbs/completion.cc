// `muster completion`: scripts with which a shell calls `muster __complete`.
#include <map>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "cli/context.h"
#include "cli/exit_code.h"
#include "cli/verb.h"
#include "nlohmann/json.hpp"

namespace muster::cli {
namespace {

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
  if (context.structured()) {
    nlohmann::ordered_json json;
    json["shell"] = shell;
    json["script"] = scripts.at(shell);
    context.Print(json);
  } else {
    context.console.Out(context.output == Output::kName ? absl::StrCat(shell, "\n")
                                                        : scripts.at(shell));
  }
  return kExitSuccess;
}

}  // namespace

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
  verb.callback([&context, shell] {
    context.action = [&context, shell] { return Completion(context, *shell); };
  });
}

}  // namespace muster::cli
