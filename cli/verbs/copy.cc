// `muster cp`.
#include <signal.h>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "cli/context.h"
#include "cli/copy/unpacker.h"
#include "cli/exit_code.h"
#include "cli/follow/signals.h"
#include "cli/verb.h"
#include "common/status.h"

namespace muster::cli {
namespace {

constexpr char kStdout[] = "-";

struct CopyFlags {
  std::string source;  // JOB:PATH
  std::string destination;
  uint32_t rank = 0;
};

// The name of the copy in an existing folder; empty for the name on the node.
std::string NameOf(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  const std::string name = path.substr(path.rfind('/') + 1);
  return name == "." || name == ".." ? "" : name;
}

// Returns the path of the copy.
absl::StatusOr<std::string> Copy(Context& context, const CopyFlags& flags, Stopper& stopper) {
  const size_t colon = flags.source.find(':');
  v1::ReadFilesRequest request;
  request.set_job_id(flags.source.substr(0, colon));
  request.set_path(flags.source.substr(colon + 1));
  request.set_rank(flags.rank);
  ASSIGN_OR_RETURN(const std::unique_ptr<Unpacker> unpacker,
                   flags.destination == kStdout
                       ? Unpacker::CreateForStdout()
                       : Unpacker::Create(flags.destination, NameOf(request.path())));
  absl::Status unpacked;
  ClusterClient client(context.client_options());
  RETURN_IF_ERROR(client.ReadFiles(request, stopper, [&](const v1::ArchiveChunk& chunk) {
    unpacked = unpacker->Write(chunk.data());
    return unpacked.ok();
  }));
  RETURN_IF_ERROR(unpacked);
  return unpacker->Finish();
}

int RunCopy(Context& context, const CopyFlags& flags) {
  signal(SIGPIPE, SIG_IGN);  // writing to tar then fails with an error
  Stopper stopper;
  const SignalWatcher watcher([&stopper](int) { stopper.Stop(); });
  const absl::StatusOr<std::string> path = Copy(context, flags, stopper);
  if (!path.ok()) return context.Fail(path.status());
  if (!path->empty()) context.console.Out(absl::StrCat(*path, "\n"));
  return kExitSuccess;
}

}  // namespace

void AddCopyVerb(CLI::App& app, Context& context) {
  Verb& verb = AddVerb(
      app, "cp", kJobVerbs,
      {.summary = "Copy a file or folder of a rank to this machine",
       .usage = "JOB:PATH DEST [OPTIONS]",
       .paragraphs =
           {"PATH is relative to the rank's working directory; an absolute PATH must be in it or "
            "in the job's checkpoint directory. The job may be finished, as long as the node keeps "
            "its directory (--keep-logs of the worker). Prints the path of the copy.",
            "DEST is an existing folder or a new name, as for cp -r; - writes a file to stdout. "
            "Only the owner of the job and admins may copy."},
       .exits = {{"0", "The copy is complete; otherwise nothing is left of it"},
                 {"1",
                  "The job or PATH does not exist, PATH is outside, or DEST cannot be written"},
                 {"69", "The coordinator or the rank's node is unreachable"},
                 {"77", "The job belongs to another user"},
                 {"130", "Interrupted"}},
       .examples = {{"muster cp train-x7k2:model.pt .", "a file of rank 0"},
                    {"muster cp train-x7k2:. results --rank 3", "everything that rank 3 wrote"},
                    {"muster cp train-x7k2:metrics.csv - | head", "print a file"}}});
  auto flags = std::make_shared<CopyFlags>();
  verb.add_option("SOURCE", flags->source,
                  "JOB:PATH: a job id or a unique prefix of one, and a path")
      ->required()
      ->check([](const std::string& text) {
        const size_t colon = text.find(':');
        const bool valid = colon != std::string::npos && colon > 0 && colon + 1 < text.size();
        return valid ? std::string() : absl::StrCat("'", text, "' is not JOB:PATH");
      });
  verb.add_option("DEST", flags->destination, "Folder or name of the copy, or -")->required();
  verb.add_option("--rank", flags->rank, "Rank whose files are copied")
      ->type_name("N")
      ->capture_default_str();
  SetAction(verb, context, flags, RunCopy);
}

}  // namespace muster::cli
