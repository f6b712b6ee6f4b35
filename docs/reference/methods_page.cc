#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "coordinator/service/auth/access.h"
#include "docs/reference/markdown.h"
#include "docs/reference/pages.h"

namespace muster::reference {
namespace {

absl::string_view RecordedCalls(v1::Access::Audited audited) {
  return audited == v1::Access::ALWAYS ? "all" : audited == v1::Access::REFUSALS ? "refused" : "";
}

}  // namespace

std::string MethodsPage() {
  using v1::Access;
  const Access::Role callers[] = {Access::ANYONE, Access::VIEW, Access::SUBMIT, Access::WORKER,
                                  Access::ADMIN};
  std::vector<Row> rows;
  for (const auto* const method : service::AllMethods()) {
    const Access& access = service::AccessOf(*method);
    Row row = {Code(absl::StrCat("/", method->service()->full_name(), "/", method->name()))};
    for (const Access::Role caller : callers) {
      row.push_back(service::Suffices(caller, access.role()) ? "yes" : "");
    }
    row.emplace_back(RecordedCalls(access.audited()));
    rows.push_back(row);
  }
  return absl::StrCat(
      "# Methods and who may call them\n\n"
      "For operators and authors of clients: the methods of the coordinator, the roles whose "
      "tokens "
      "may call them, and which calls the audit log\nrecords. Whose jobs a role may change is a "
      "further rule, see [Owners](../operate/security.md#owners). A node's certificate has\nthe "
      "role `worker`. `EnrollNode` checks a join token itself. ",
      GeneratedFrom("the option `access` of the methods in `proto/muster/v1`"),
      Table({"method", "no token", "view", "submit", "worker", "admin", "recorded"}, rows));
}

}  // namespace muster::reference
