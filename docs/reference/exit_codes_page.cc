#include "absl/strings/str_cat.h"
#include "common/process/exit_code.h"
#include "docs/reference/markdown.h"
#include "docs/reference/pages.h"

namespace muster::reference {

std::string ExitCodesPage() {
  std::vector<Row> rows;
  for (const ExitCodeInfo& code : kExitCodes) {
    rows.push_back({code.value, code.name, code.meaning, code.when});
  }
  return absl::StrCat(
      "# Exit codes\n\n"
      "For users: the exit codes of Muster's programs and of the ranks of jobs. ",
      GeneratedFrom("`common/process/exit_code.h`"),
      "Verbs that follow a job (`muster run`, `local`, `submit --follow` and `wait`) exit with the "
      "code of the first rank that failed,\n"
      "so a command job's own codes appear here, too.\n\n",
      Table({"code", "name", "meaning", "programs and causes"}, rows));
}

}  // namespace muster::reference
