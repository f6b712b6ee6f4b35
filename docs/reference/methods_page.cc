#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "coordinator/service/auth/method_table.h"
#include "docs/reference/markdown.h"
#include "docs/reference/pages.h"

namespace muster::reference {
namespace {

using service::Role;

absl::string_view RecordedCalls(service::Audited audited) {
  switch (audited) {
    case service::Audited::kNever:
      return "";
    case service::Audited::kRefusals:
      return "refused";
    case service::Audited::kAlways:
      return "all";
  }
  return "";
}

}  // namespace

std::string MethodsPage() {
  const Role callers[] = {Role::kAnyone, Role::kView, Role::kSubmit, Role::kWorker, Role::kAdmin};
  std::vector<Row> rows;
  for (const service::MethodRule& rule : service::AllMethods()) {
    Row row = {Code(rule.method)};
    for (const Role caller : callers) row.push_back(Suffices(caller, rule.role) ? "yes" : "");
    row.emplace_back(RecordedCalls(rule.audited));
    rows.push_back(row);
  }
  return absl::StrCat(
      "# Methods and who may call them\n\n"
      "For operators and authors of clients: the methods of the coordinator, the roles whose "
      "tokens "
      "may call them, and which calls the audit log\nrecords. Whose jobs a role may change is a "
      "further rule, see [Owners](../operate/security.md#owners). A node's certificate has\nthe "
      "role `worker`. `EnrollNode` checks a join token itself. ",
      GeneratedFrom("`coordinator/service/auth/method_table.cc`"),
      Table({"method", "no token", "view", "submit", "worker", "admin", "recorded"}, rows));
}

}  // namespace muster::reference
