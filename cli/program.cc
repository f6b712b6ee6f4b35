#include "cli/program.h"

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "common/text/nearest.h"
#include "common/version.h"

namespace muster::cli {

// Each is defined in the file of its name; docs/design/cli_verb.md describes how to add one.
void AddSubmitVerbs(CLI::App& app, Context& context);  // submit, run, rerun
void AddLocalVerb(CLI::App& app, Context& context);
void AddExperimentVerb(CLI::App& app, Context& context);
void AddJobVerbs(CLI::App& app, Context& context);  // list, get, describe
void AddLogsVerb(CLI::App& app, Context& context);
void AddWhyVerb(CLI::App& app, Context& context);
void AddQueueVerb(CLI::App& app, Context& context);
void AddTopVerb(CLI::App& app, Context& context);
void AddReportVerb(CLI::App& app, Context& context);
void AddPageVerb(CLI::App& app, Context& context);
void AddCompareVerb(CLI::App& app, Context& context);
void AddTraceVerb(CLI::App& app, Context& context);
void AddWaitVerb(CLI::App& app, Context& context);
void AddControlVerbs(CLI::App& app, Context& context);  // cancel, hold, release, requeue, rm
void AddCheckpointVerb(CLI::App& app, Context& context);
void AddExecVerb(CLI::App& app, Context& context);
void AddCopyVerb(CLI::App& app, Context& context);  // cp
void AddNodeVerbs(CLI::App& app, Context& context);
void AddClusterVerbs(CLI::App& app, Context& context);  // cluster init, cluster join
void AddCertVerbs(CLI::App& app, Context& context);
void AddAdminVerbs(CLI::App& app, Context& context);
void AddSecretVerbs(CLI::App& app, Context& context);
void AddSpecVerbs(CLI::App& app, Context& context);
void AddCompletionVerb(CLI::App& app, Context& context);
void AddHelpVerb(CLI::App& app, Context& context);
void AddVersionVerb(CLI::App& app, Context& context);

namespace {

// Each of these options can also be set in the environment, as MUSTER_NAME, and in the
// configuration file.
void DeclareCommonOptions(CLI::App& program, Context& context, std::string& config) {
  program.add_option("--coordinator", context.coordinator, "Coordinator address")
      ->type_name("HOST:PORT")
      ->default_val("127.0.0.1:7070");
  program
      .add_option_function<std::string>(
          "-o,--output",
          [&context](const std::string& name) { context.output = Outputs().at(name); },
          "Output format: table, wide, json, yaml, or name (names only)")
      ->type_name("FORMAT")
      ->default_str("table")
      ->check([](const std::string& name) {
        return Outputs().count(name) > 0
                   ? ""
                   : absl::StrCat(Quoted(name), " is not one of table, wide, json, yaml, name");
      });
  program
      .add_option("--token-file", context.security.token_file,
                  "File that contains the access token (default: MUSTER_TOKEN, then the token of "
                  "this user's coordinator on this machine)")
      ->type_name("FILE");
  program
      .add_option("--tls-ca", context.security.tls.ca,
                  "CA certificate used to verify the coordinator; enables TLS")
      ->type_name("FILE");
  program
      .add_option("--tls-cert", context.security.tls.cert,
                  "Client certificate, if the coordinator requires one")
      ->type_name("FILE");
  program
      .add_option("--tls-key", context.security.tls.key, "Private key of the client certificate")
      ->type_name("FILE");
  program.add_option("--config", config, "File that sets these options, one name=value per line")
      ->type_name("FILE")
      ->default_str("~/.config/muster/config");
}

void DeclareVerbs(CLI::App& program, Context& context) {
  AddSubmitVerbs(program, context);
  AddLocalVerb(program, context);
  AddJobVerbs(program, context);
  AddLogsVerb(program, context);
  AddWhyVerb(program, context);
  AddQueueVerb(program, context);
  AddTopVerb(program, context);
  AddReportVerb(program, context);
  AddPageVerb(program, context);
  AddCompareVerb(program, context);
  AddTraceVerb(program, context);
  AddWaitVerb(program, context);
  AddControlVerbs(program, context);
  AddCheckpointVerb(program, context);
  AddExecVerb(program, context);
  AddCopyVerb(program, context);
  AddExperimentVerb(program, context);
  AddNodeVerbs(program, context);
  AddClusterVerbs(program, context);
  AddCertVerbs(program, context);
  AddAdminVerbs(program, context);
  AddSpecVerbs(program, context);
  AddSecretVerbs(program, context);
  AddCompletionVerb(program, context);
  AddHelpVerb(program, context);
  AddVersionVerb(program, context);
}

}  // namespace

std::unique_ptr<Verb> MusterProgram(Context& context, std::string& config) {
  std::unique_ptr<Verb> program = MakeProgram(
      {.summary = "Submit training jobs to a Muster cluster and follow them.",
       .usage = "VERB [OPTIONS]",
       .paragraphs =
           {"A job trains a model on the cluster's nodes, or runs any program there, "
            "once per rank. `muster VERB --help` describes a verb.",
            "Options may appear anywhere. Each global option can also be set in the environment, "
            "as in MUSTER_COORDINATOR, or in the configuration file. A flag overrides the "
            "environment, which overrides the file. Paths in the file are relative to its folder.",
            "-o json and -o yaml use the field names of proto/muster/v1, times in RFC 3339 "
            "UTC and durations in seconds. Integers are numbers; those beyond 2^53 are "
            "strings, because JSON readers round them, and random ids such as a node's "
            "incarnation are strings of hexadecimal digits."},
       .examples = {{"muster spec init > job.yaml", "write a commented example spec"},
                    {"muster run job.yaml", "queue a job, follow it, exit with its status"},
                    {"muster run -- python3 train.py", "run any program, once per rank"},
                    {"muster local job.yaml", "run a job on this machine, without a cluster"}}});
  program->set_version_flag(
      "--version", absl::StrCat("muster ", kSoftwareVersion, " (protocol ", kProtocolVersion, ")"),
      "Print the version");
  DeclareCommonOptions(*program, context, config);
  DeclareVerbs(*program, context);
  return program;
}

}  // namespace muster::cli
