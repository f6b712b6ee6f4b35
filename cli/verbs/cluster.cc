// `muster cluster`.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "cli/context.h"
#include "cli/exit_code.h"
#include "cli/identity/authority.h"
#include "cli/identity/node_join.h"
#include "cli/verb.h"
#include "common/flags/flags.h"
#include "nlohmann/json.hpp"

namespace muster::cli {
namespace {

// Where the daemons' files are: those of the packages for root, those of the user for others.
std::string ConfigFile(const std::string& daemon) {
  if (geteuid() == 0) return absl::StrCat("/etc/muster/", daemon);
  return std::filesystem::path(flags::UserConfigPath()).parent_path() / daemon;
}

std::string DataDir(const std::string& daemon) {
  if (geteuid() == 0) {
    return daemon == "worker" ? "/var/lib/muster-worker" : "/var/lib/muster/coordinator";
  }
  const char* home = std::getenv("HOME");
  return absl::StrCat(home == nullptr ? "" : home, "/.local/share/muster/", daemon);
}

// Daemons start in other folders.
void MakeAbsolute(std::string& path) {
  if (!path.empty()) path = std::filesystem::absolute(path);
}

std::string Date(absl::Time time) {
  return absl::FormatTime("%Y-%m-%d %H:%M UTC", time, absl::UTCTimeZone());
}

int Init(Context& context, ClusterInit options) {
  if (options.names.empty()) options.names = OwnNames();
  for (std::string* path : {&options.config, &options.data_dir, &options.admin_dir}) {
    MakeAbsolute(*path);
  }
  const absl::StatusOr<ClusterInitResult> result = InitCluster(options, absl::Now());
  if (!result.ok()) return context.Fail(result.status(), kExitCannotCreate);
  const std::string join = result->join_token.empty()
                               ? ""
                               : absl::StrCat("muster cluster join ", result->address, " --token ",
                                              result->join_token, " --ca-pin ", result->ca_pin);
  if (context.structured()) {
    context.Print({{"config", options.config},
                   {"data_dir", result->data_dir},
                   {"coordinator", result->address},
                   {"ca_pin", result->ca_pin},
                   {"join_command", join}});
    return kExitSuccess;
  }
  for (const std::string& line : result->lines) context.console.Note(line);
  context.console.Note("start the coordinator: muster-coordinator --config=", options.config);
  if (join.empty()) {
    context.console.Note(
        "the cluster exists already; for a line that lets nodes join: muster node token");
    return kExitSuccess;
  }
  context.console.Note("then run this on each other machine, within 24 hours:");
  context.console.Out(join + "\n");
  return kExitSuccess;
}

int Join(Context& context, NodeJoin options) {
  MakeAbsolute(options.config);
  MakeAbsolute(options.data_dir);
  options.on_wait = [&context](const std::string& line) { context.console.Note(line); };
  const absl::StatusOr<NodeJoinResult> result = JoinCluster(options, absl::Now());
  if (!result.ok()) {
    return absl::IsAlreadyExists(result.status()) ? context.Fail(result.status(), kExitCannotCreate)
                                                  : context.Fail(result.status());
  }
  if (context.structured()) {
    context.Print(
        {{"node", options.name},
         {"config", options.config},
         {"joined_before", result->joined_before},
         {"certificate_expire_time",
          absl::FormatTime(absl::RFC3339_sec, result->expire_time, absl::UTCTimeZone())}});
    return kExitSuccess;
  }
  context.console.Out(absl::StrCat(
      "node ", options.name, result->joined_before ? " has joined already" : " has joined",
      "; its certificate is renewed before ", Date(result->expire_time), "\n"));
  context.console.Note("start the worker: muster-worker --config=", options.config);
  return kExitSuccess;
}

void AddInit(CLI::App& group, Context& context) {
  struct Flags {
    ClusterInit init;
    std::string names;
  };
  auto flags = std::make_shared<Flags>();
  flags->init.config = ConfigFile("coordinator");
  flags->init.default_data_dir = DataDir("coordinator");
  flags->init.listen = "0.0.0.0:7070";
  flags->init.admin_dir = std::filesystem::path(flags::UserConfigPath()).parent_path();
  Verb& verb = AddVerb(
      group, "init", kNodeVerbs,
      {.summary = "Create a cluster on the coordinator's machine",
       .usage = "[OPTIONS]",
       .paragraphs =
           {"Makes a certificate authority, the coordinator's certificate and settings, and the "
            "administrator's token and settings, and prints the command that lets other machines "
            "join. The coordinator need not run. As root, the files are those of the packages' "
            "services.",
            "Called again, it keeps what is there and makes what is missing. It changes no file "
            "of another cluster."},
       .exits = {{"73", "A file belongs to another cluster or cannot be written"}},
       .examples = {{"muster cluster init", "with the names and addresses of this machine"},
                    {"muster cluster init --names head.example.org,10.0.0.1",
                     "nodes call the coordinator by the first of these names"}}});
  verb.add_option("--names", flags->names,
                  "Names and addresses by which the coordinator is called; nodes use the first "
                  "(default: the host name and addresses of this machine)")
      ->type_name("NAME,...");
  verb.add_option("--listen", flags->init.listen, "Address on which the coordinator listens")
      ->type_name("HOST:PORT")
      ->capture_default_str();
  verb.add_option("--coordinator-config", flags->init.config,
                  "The coordinator's configuration file (default: /etc/muster/coordinator for "
                  "root, otherwise coordinator beside the user's configuration file)")
      ->type_name("FILE");
  verb.add_option("--data-dir", flags->init.data_dir,
                  "The coordinator's data directory (default: as its configuration file says; "
                  "/var/lib/muster/coordinator for root, otherwise "
                  "~/.local/share/muster/coordinator)")
      ->type_name("DIR");
  verb.add_option("--admin-dir", flags->init.admin_dir,
                  "Folder for the administrator's configuration file and credentials (default: "
                  "that of the user's configuration file)")
      ->type_name("DIR");
  verb.callback([&context, flags] {
    flags->init.names = absl::StrSplit(flags->names, ',', absl::SkipEmpty());
    context.action = [&context, flags] { return Init(context, flags->init); };
  });
}

void AddJoin(CLI::App& group, Context& context) {
  auto join = std::make_shared<NodeJoin>();
  char host[256] = {};
  gethostname(host, sizeof(host) - 1);
  join->name = host;
  join->config = ConfigFile("worker");
  join->default_data_dir = DataDir("worker");
  Verb& verb = AddVerb(
      group, "join", kNodeVerbs,
      {.summary = "Make this machine a node of a cluster",
       .usage = "ADDRESS [OPTIONS]",
       .paragraphs =
           {"Verifies the coordinator by the pin of its authority, makes a key, which stays on "
            "this machine, and gets a certificate for the node's name and this machine. Writes the "
            "worker's settings, so that muster-worker needs no further flags. The worker renews "
            "the certificate. `muster node token` prints the command.",
            "Called again, it keeps the identity that this machine has. A coordinator that does "
            "not listen yet is awaited for 30 seconds."},
       .exits = {{"73", "A file belongs to another cluster or node, or cannot be written"},
                 {"77", "The token or the pin is not that of this coordinator"}},
       .examples = {{"muster cluster join head:7070 --token 7d… --ca-pin sha256:9f…",
                     "the line that `muster node token` printed"}}});
  verb.add_option("ADDRESS", join->coordinator, "Coordinator address, HOST:PORT")->required();
  verb.add_option("--token", join->token, "Join token")->type_name("TOKEN")->required();
  verb.add_option("--ca-pin", join->ca_pin,
                  "Digest of the public key of the coordinator's authority")
      ->type_name("PIN")
      ->required();
  verb.add_option("--name", join->name, "Name of this node in the cluster (default: the host name)")
      ->type_name("NAME");
  verb.add_option("--machine-id", join->machine_id,
                  "Identity of this machine, if the worker is given one (default: /etc/machine-id)")
      ->type_name("ID");
  verb.add_option("--worker-config", join->config,
                  "The worker's configuration file (default: /etc/muster/worker for root, "
                  "otherwise worker beside the user's configuration file)")
      ->type_name("FILE");
  verb.add_option("--data-dir", join->data_dir,
                  "The worker's data directory (default: as its configuration file says; "
                  "/var/lib/muster-worker for root, otherwise ~/.local/share/muster/worker)")
      ->type_name("DIR");
  SetAction(verb, context, join, Join);
}

}  // namespace

void AddClusterVerbs(CLI::App& app, Context& context) {
  Verb& group = AddVerb(app, "cluster", kNodeVerbs,
                        {.summary = "Create a cluster, or join one", .usage = "VERB [OPTIONS]"});
  group.require_subcommand(1);
  AddInit(group, context);
  AddJoin(group, context);
}

}  // namespace muster::cli
