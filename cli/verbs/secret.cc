// `muster secret`.
#include <poll.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <iostream>

#include "CLI/CLI.hpp"
#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/context.h"
#include "cli/exit_code.h"
#include "cli/follow/signals.h"
#include "cli/output/json.h"
#include "cli/output/table.h"
#include "cli/verb.h"
#include "common/limits.h"
#include "common/status.h"
#include "nlohmann/json.hpp"

namespace muster::cli {
namespace {

struct SetFlags {
  std::string name;
  std::string file = "-";
};

// Reads a line from the terminal, which does not show it.
absl::StatusOr<std::string> ReadHidden(Context& context) {
  termios shown;
  if (tcgetattr(STDIN_FILENO, &shown) != 0) return ErrnoStatus(errno, "terminal");
  const auto show = [&shown] { tcsetattr(STDIN_FILENO, TCSAFLUSH, &shown); };
  const SignalWatcher watcher([&show](int) {
    show();
    _exit(kExitInterrupted);
  });
  const absl::Cleanup show_at_end = show;
  termios hidden = shown;
  hidden.c_lflag &= ~ECHO;
  tcsetattr(STDIN_FILENO, TCSAFLUSH, &hidden);
  context.console.Note("enter the value, which is not shown:");
  std::string value;
  std::getline(std::cin, value);
  pollfd more = {STDIN_FILENO, POLLIN, 0};
  if (std::cin.good() && poll(&more, 1, 0) > 0) {
    return absl::InvalidArgumentError(
        "the value has more than one line; give its file with --file FILE");
  }
  return value;
}

// Reads at most one byte more than a secret may have, so that too long a value is an error of the
// coordinator and not cut off.
absl::StatusOr<std::string> ReadValue(Context& context, const std::string& path) {
  if (path == "-" && context.console.interactive()) return ReadHidden(context);
  std::ifstream file;
  if (path != "-") {
    file.open(path, std::ios::binary);
    if (!file) return absl::NotFoundError(absl::StrCat(path, ": cannot be read"));
  }
  std::istream& in = path == "-" ? std::cin : file;
  std::string value(limits::kSecretBytes + 1, '\0');
  in.read(value.data(), static_cast<std::streamsize>(value.size()));
  if (in.bad()) return absl::NotFoundError(absl::StrCat(path, ": cannot be read"));
  value.resize(static_cast<size_t>(in.gcount()));
  return value;
}

int SetSecret(Context& context, const SetFlags& flags) {
  absl::StatusOr<std::string> value = ReadValue(context, flags.file);
  if (!value.ok()) return context.Fail(value.status(), kExitNoInput);
  // Editors and `echo` end text with a newline that is not part of the secret.
  if (absl::EndsWith(*value, "\n")) value->pop_back();
  if (value->empty()) {
    return context.Fail(absl::InvalidArgumentError(
        absl::StrCat("the value of ", flags.name,
                     " is empty; to remove the secret: muster secret rm ", flags.name)));
  }
  ClusterClient client(context.client_options());
  v1::SetSecretRequest request;
  request.set_name(flags.name);
  request.set_value(*value);
  const absl::Status status = client.Call<v1::SetSecretResponse>(request).status();
  if (!status.ok()) return context.Fail(status);
  context.Show(flags.name, {{"name", flags.name}}, flags.name + " is set\n");
  return kExitSuccess;
}

int ListSecrets(Context& context) {
  ClusterClient client(context.client_options());
  const absl::StatusOr<v1::ListSecretsResponse> response = client.ListSecrets();
  if (!response.ok()) return context.Fail(response.status());
  const auto table = [&response] {
    Table table({"SECRET", "OWNER"});
    for (const auto& secret : response->secrets()) table.AddRow({secret.name(), secret.owner()});
    return table.Text();
  };
  context.ShowList(
      response->secrets(), [](const auto& secret) { return secret.name(); }, ToJson,
      "no secrets; `muster secret set NAME` adds one", table);
  return kExitSuccess;
}

int RemoveSecrets(Context& context, const std::vector<std::string>& names) {
  ClusterClient client(context.client_options());
  return context.ForEach(names,
                         [&](const std::string& name) -> absl::StatusOr<nlohmann::ordered_json> {
                           v1::SetSecretRequest request;  // without a value: removes it
                           request.set_name(name);
                           RETURN_IF_ERROR(client.Call<v1::SetSecretResponse>(request).status());
                           nlohmann::ordered_json document = {{"name", name}};
                           if (!context.structured())
                             context.Show(name, document, name + " removed\n");
                           return document;
                         });
}

void AddSet(CLI::App& group, Context& context) {
  Verb& verb = AddVerb(
      group, "set", kOtherVerbs,
      {.summary = "Store a secret, or replace its value",
       .usage = "NAME [OPTIONS]",
       .paragraphs =
           {"Reads the value from a file or from standard input, because arguments are "
            "visible to other users of this machine; one newline at its end is left out. A "
            "terminal does not show what is typed, and one line is read. "
            "A job's spec names it: `env: {TOKEN: {secret: NAME}}`. Only your own jobs "
            "receive it, and the coordinator never returns it."},
       .exits = {{"66", "The file cannot be read"}},
       .examples = {
           {"muster secret set wandb --file ~/.wandb-key", "store the content of a file"},
           {"pass show wandb | muster secret set wandb", "store the output of a command"}}});
  auto flags = std::make_shared<SetFlags>();
  verb.add_option("NAME", flags->name, "Name: letters, digits, '-', '_' and '.'")->required();
  verb.add_option("--file", flags->file, "File that contains the value; - for standard input")
      ->type_name("FILE")
      ->capture_default_str();
  SetAction(verb, context, flags, SetSecret);
}

}  // namespace

void AddSecretVerbs(CLI::App& app, Context& context) {
  Verb& group =
      AddVerb(app, "secret", kOtherVerbs,
              {.summary = "Manage secrets of jobs: set, list, rm", .usage = "VERB [OPTIONS]"});
  group.require_subcommand(1);
  AddSet(group, context);
  AddVerb(group, "list", kOtherVerbs,
          {.summary = "List the names of secrets",
           .usage = "[OPTIONS]",
           .paragraphs = {"Lists your own secrets; for an admin, those of all owners."},
           .examples = {{"muster secret list", "names, never values"}}})
      .callback([&context] { context.action = [&context] { return ListSecrets(context); }; });
  Verb& remove = AddVerb(
      group, "rm", kOtherVerbs,
      {.summary = "Remove secrets",
       .usage = "NAME... [OPTIONS]",
       .paragraphs = {"Jobs that run keep the value. Ranks that start later fail without it."},
       .examples = {{"muster secret rm wandb", "remove one of your own secrets"}}});
  auto names = std::make_shared<std::vector<std::string>>();
  remove.add_option("NAME", *names, "Names of secrets")->required();
  SetAction(remove, context, names, RemoveSecrets);
}

}  // namespace muster::cli
