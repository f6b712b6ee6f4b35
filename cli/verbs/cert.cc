// `muster cert`: certificates for those who keep the authority's key on a machine of its own.
#include "CLI/CLI.hpp"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "cli/context.h"
#include "cli/exit_code.h"
#include "cli/identity/authority.h"
#include "cli/verb.h"
#include "nlohmann/json.hpp"

namespace muster::cli {
namespace {

// Prints what was written, one file or folder per line.
int Report(Context& context, const absl::StatusOr<std::vector<std::string>>& written) {
  if (!written.ok()) return context.Fail(written.status(), kExitCannotCreate);
  if (context.structured()) {
    context.Print(*written);
  } else {
    for (const std::string& path : *written) context.console.Out(path + "\n");
  }
  return kExitSuccess;
}

void AddFolder(CLI::App& verb, std::string& folder) {
  verb.add_option("--dir", folder, "Folder of the authority")
      ->type_name("DIR")
      ->capture_default_str();
}

void AddInit(CLI::App& group, Context& context) {
  Verb& verb = AddVerb(group, "init", kNodeVerbs,
                       {.summary = "Make a certificate authority",
                        .usage = "[OPTIONS]",
                        .paragraphs = {"Writes ca.key, which must stay in this folder, and ca.pem. "
                                       "Keeps an authority that is there."},
                        .examples = {{"muster cert init --dir ~/muster-ca", "once per cluster"}}});
  auto folder = std::make_shared<std::string>("muster-ca");
  AddFolder(verb, *folder);
  SetAction(verb, context, folder, [](Context& context, const std::string& folder) {
    return Report(context, InitOffline(folder, absl::Now()));
  });
}

void AddIssue(CLI::App& group, Context& context) {
  Verb& verb = AddVerb(
      group, "issue", kNodeVerbs,
      {.summary = "Make the files of a coordinator, node or user",
       .usage = "KIND NAME [OPTIONS]",
       .paragraphs =
           {"KIND is coordinator, node or user. Writes a folder with a key, its certificate, "
            "ca.pem "
            "and settings: DIR/coordinator and DIR/nodes/NAME, whose files belong into /etc/muster "
            "on their machines, and DIR/users/NAME, which works wherever the user copies it. Nodes "
            "and users call the coordinator by --coordinator (default: the first name in its "
            "certificate, port 7070).",
            "A user also gets a token, which is added to DIR/coordinator/tokens or, in the folder "
            "`identity` of a coordinator's data directory, to its file `tokens`. Keeps what is "
            "there."},
       .examples = {
           {"muster cert issue coordinator head --hosts head,10.0.0.1", "once per cluster"},
           {"muster cert issue node gpu-03 --coordinator head:7070", "for a node"},
           {"muster cert issue user alice --coordinator head:7070 --role submit",
            "for a person"}}});
  auto issue = std::make_shared<OfflineIssue>();
  auto hosts = std::make_shared<std::string>();
  AddFolder(verb, issue->folder);
  verb.add_option("KIND", issue->kind, "coordinator, node or user")
      ->check(OneOf({"coordinator", "node", "user"}))
      ->required();
  verb.add_option("NAME", issue->name, "Host name, name of the node, or name of the user")
      ->required();
  verb.add_option("--hosts", *hosts,
                  "Names and addresses by which the coordinator is called (default: NAME)")
      ->type_name("NAME,...");
  verb.add_option("--machine-id", issue->machine_id,
                  "Identity of the machine on which the node's certificate is valid (default: any)")
      ->type_name("ID");
  verb.add_option("--role", issue->role, "Role of the user's token: view, submit or admin")
      ->check(OneOf({"view", "submit", "admin"}))
      ->type_name("ROLE")
      ->capture_default_str();
  const CLI::Option* const coordinator = group.get_parent()->get_option("--coordinator");
  verb.callback([&context, issue, hosts, coordinator] {
    issue->hosts = absl::StrSplit(*hosts, ',', absl::SkipEmpty());
    context.action = [&context, issue, coordinator] {
      if (coordinator->count() > 0) issue->coordinator = context.coordinator;
      return Report(context, IssueOffline(*issue, absl::Now()));
    };
  });
}

void AddRenew(CLI::App& group, Context& context) {
  Verb& verb = AddVerb(
      group, "renew", kNodeVerbs,
      {.summary = "Renew certificates with the authority's key",
       .usage = "FILE... [OPTIONS]",
       .paragraphs = {"Replaces each certificate by one for the same key and names, valid for a "
                      "year. The daemons notice new files without a restart."},
       .examples = {{"muster cert renew --dir ~/muster-ca ~/muster-ca/nodes/*/node.pem",
                     "then copy the files to the nodes"}}});
  struct Flags {
    std::string folder = "muster-ca";
    std::vector<std::string> files;
  };
  auto flags = std::make_shared<Flags>();
  AddFolder(verb, flags->folder);
  verb.add_option("FILE", flags->files, "Certificates")->required();
  SetAction(verb, context, flags, [](Context& context, const Flags& flags) {
    return Report(context, RenewOffline(flags.folder, flags.files, absl::Now()));
  });
}

}  // namespace

void AddCertVerbs(CLI::App& app, Context& context) {
  Verb& group = AddVerb(app, "cert", kNodeVerbs,
                        {.summary = "Make certificates with an authority that is kept offline",
                         .usage = "VERB [OPTIONS]",
                         .paragraphs = {"A coordinator of `muster cluster init` holds the "
                                        "authority's key and issues certificates itself. These "
                                        "verbs are for clusters whose key is kept elsewhere."}});
  group.require_subcommand(1);
  AddInit(group, context);
  AddIssue(group, context);
  AddRenew(group, context);
}

}  // namespace muster::cli
