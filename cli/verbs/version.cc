#include "common/version.h"

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "cli/context.h"
#include "cli/exit_code.h"
#include "cli/output/json.h"
#include "cli/verb.h"
#include "nlohmann/json.hpp"

namespace muster::cli {
namespace {

int Version(Context& context, bool server) {
  v1::GetVersionResponse own;
  own.set_software_version(kSoftwareVersion);
  own.set_protocol_version(kProtocolVersion);
  nlohmann::ordered_json json = ToJson(own);
  std::string text =
      absl::StrCat("muster ", own.software_version(), " (protocol ", own.protocol_version(), ")\n");
  if (server) {
    ClusterClient client(context.client_options());
    const absl::StatusOr<v1::GetVersionResponse> theirs = client.GetVersion();
    if (!theirs.ok()) return context.Fail(theirs.status());
    json["coordinator"] = ToJson(*theirs);
    absl::StrAppend(&text, "coordinator ", theirs->software_version(), " (protocol ",
                    theirs->protocol_version(), "), cluster ", theirs->cluster_id(), ", commit ",
                    theirs->commit_index(), "\n");
  }
  if (context.structured()) {
    context.Print(json);
  } else {
    context.console.Out(context.output == Output::kName ? absl::StrCat(kSoftwareVersion, "\n")
                                                        : text);
  }
  return kExitSuccess;
}

}  // namespace

void AddVersionVerb(CLI::App& app, Context& context) {
  Verb& verb = AddVerb(app, "version", kOtherVerbs,
                       {.summary = "Print the version",
                        .usage = "[OPTIONS]",
                        .examples = {{"muster version --server",
                                      "also print the coordinator's version and cluster"}}});
  auto server = std::make_shared<bool>(false);
  verb.add_flag("--server", *server, "Also print the coordinator's version and cluster");
  verb.callback([&context, server] {
    context.action = [&context, server] { return Version(context, *server); };
  });
}

}  // namespace muster::cli
