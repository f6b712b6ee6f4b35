// `muster node token`.
#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "cli/context.h"
#include "cli/exit_code.h"
#include "cli/identity/node_join.h"
#include "cli/output/json.h"
#include "cli/output/table.h"
#include "cli/verb.h"
#include "common/limits.h"
#include "common/time/proto_time.h"
#include "nlohmann/json.hpp"

namespace muster::cli {
namespace {

struct TokenFlags {
  absl::Duration expires = absl::Hours(1);
  uint32_t uses = 1;
  std::string node;
  bool list = false;
  std::string revoke;
};

int Create(Context& context, const TokenFlags& flags) {
  v1::CreateJoinTokenRequest request;
  *request.mutable_expire_time() = ToProto(absl::Now() + flags.expires);
  request.set_uses(flags.uses);
  request.set_node(flags.node);
  IdentityClient client(context.coordinator, context.security);
  const absl::StatusOr<v1::CreateJoinTokenResponse> response = client.CreateJoinToken(request);
  if (!response.ok()) return context.Fail(response.status());
  const std::string command = absl::StrCat(
      "muster cluster join ", context.coordinator, " --token ", response->secret(), " --ca-pin ",
      response->ca_pin(), flags.node.empty() ? "" : absl::StrCat(" --name ", flags.node));
  if (context.structured()) {
    nlohmann::ordered_json document = ToJson(response->token());
    document["token"] = response->secret();
    document["ca_pin"] = response->ca_pin();
    document["join_command"] = command;
    context.Print(document);
    return kExitSuccess;
  }
  context.console.Note("token ", response->token().id(), ", valid for ",
                       absl::FormatDuration(flags.expires), " and ", flags.uses,
                       flags.uses == 1 ? " node" : " nodes",
                       "; run this on the machine that is to join:");
  context.console.Out(command + "\n");
  return kExitSuccess;
}

int List(Context& context) {
  IdentityClient client(context.coordinator, context.security);
  const absl::StatusOr<v1::ListJoinTokensResponse> response = client.ListJoinTokens();
  if (!response.ok()) return context.Fail(response.status());
  const auto table = [&response] {
    Table table({"ID", "EXPIRES IN", "USES LEFT", "NODE", "CREATED BY"});
    const absl::Time now = absl::Now();
    for (const v1::JoinToken& token : response->tokens()) {
      const absl::Duration left = FromProto(token.expire_time()) - now;
      table.AddRow({token.id(), absl::FormatDuration(absl::Trunc(left, absl::Seconds(1))),
                    absl::StrCat(token.uses_left()), token.node().empty() ? "any" : token.node(),
                    token.created_by()});
    }
    return table.Text();
  };
  context.ShowList(
      response->tokens(), [](const v1::JoinToken& token) { return token.id(); }, ToJson,
      "no join tokens; `muster node token` creates one", table);
  return kExitSuccess;
}

int Revoke(Context& context, const std::string& id) {
  IdentityClient client(context.coordinator, context.security);
  const absl::Status status = client.RevokeJoinToken(id);
  if (!status.ok()) return context.Fail(status);
  context.Show(id, {{"id", id}}, id + " revoked\n");
  return kExitSuccess;
}

}  // namespace

void AddNodeTokenVerb(CLI::App& node, Context& context) {
  Verb& verb = AddVerb(
      node, "token", kNodeVerbs,
      {.summary = "Create a token with which machines join the cluster",
       .usage = "[OPTIONS]",
       .paragraphs =
           {"Prints the command to run on the machine that is to join. The coordinator keeps only "
            "the token's digest. A node that has an identity gets a new one only with a token for "
            "its name, or after `muster node remove`."},
       .examples = {{"muster node token", "for one machine, within an hour"},
                    {"muster node token --uses 10 --expires 24h", "for ten machines"},
                    {"muster node token --node gpu-03", "for the machine that replaces gpu-03"},
                    {"muster node token --list", "tokens that have not expired"}}});
  auto flags = std::make_shared<TokenFlags>();
  AddDurationOption(verb, "--expires", flags->expires, "Time for which the token is valid")
      ->default_str("1h");
  verb.add_option("--uses", flags->uses, "Number of nodes that may join with the token")
      ->check(CLI::Range(uint32_t{1}, limits::kJoinTokenUses).description(""))
      ->type_name("N")
      ->capture_default_str();
  verb.add_option("--node", flags->node, "The only node that may join (default: any new one)")
      ->type_name("NAME");
  verb.add_flag("--list", flags->list, "List the tokens that have not expired");
  verb.add_option("--revoke", flags->revoke, "Revoke the token with this id")->type_name("ID");
  SetAction(verb, context, flags, [](Context& context, const TokenFlags& flags) {
    if (flags.list) return List(context);
    return flags.revoke.empty() ? Create(context, flags) : Revoke(context, flags.revoke);
  });
}

}  // namespace muster::cli
