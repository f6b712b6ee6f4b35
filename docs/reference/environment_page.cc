#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "common/flags/flags.h"
#include "common/process/environment_variables.h"
#include "docs/reference/markdown.h"
#include "docs/reference/pages.h"
#include "docs/reference/programs.h"
#include "worker/agent/generation/environment.h"

namespace muster::reference {
namespace {

std::vector<Row> Rows(absl::Span<const EnvironmentVariable> variables) {
  std::vector<Row> rows;
  for (const EnvironmentVariable& variable : variables) {
    rows.push_back({Code(variable.name), variable.programs, variable.meaning});
  }
  return rows;
}

std::vector<Row> OptionVariables() {
  const Programs programs;
  std::map<std::string, std::vector<std::string>> programs_by_option;
  for (const CLI::App* app : {static_cast<const CLI::App*>(programs.muster.get()),
                              static_cast<const CLI::App*>(programs.coordinator.get()),
                              static_cast<const CLI::App*>(programs.worker.get())}) {
    for (const std::string& option : flags::OptionNames(*app)) {
      programs_by_option[option].push_back(app->get_name());
    }
  }
  std::vector<Row> rows;
  for (const auto& [option, users] : programs_by_option) {
    rows.push_back({Code(flags::EnvironmentName(option)), Code(absl::StrCat("--", option)),
                    absl::StrJoin(users, ", ")});
  }
  return rows;
}

std::vector<Row> InheritedRows() {
  std::vector<Row> rows;
  for (const agent::InheritedVariable& variable : agent::kInheritedVariables) {
    rows.push_back({Code(variable.name), variable.meaning});
  }
  return rows;
}

std::vector<Row> JobVariables() {
  std::vector<Row> rows;
  for (const agent::CommandVariable& variable : agent::kCommandVariables) {
    rows.push_back({Code(variable.name), variable.is_default ? "yes" : "", variable.meaning});
  }
  return rows;
}

}  // namespace

std::string EnvironmentPage() {
  return absl::StrCat(
      "# Environment variables\n\n"
      "For users and operators: the variables that a command job finds in its environment, and "
      "those that configure Muster's programs. ",
      GeneratedFrom("`worker/agent/generation/environment.h`, "
                    "`common/process/environment_variables.cc` and the "
                    "programs' options"),
      "## Environment of a command job\n\n"
      "The variables below are set for each rank. Those marked as default are set only if they are "
      "neither inherited nor in the job's\n"
      "`env`; the others override both.\n\n",
      Table({"variable", "default", "value"}, JobVariables()),
      "## Inherited variables\n\n"
      "Of its worker's environment, a rank inherits these variables; `*` matches any suffix. "
      "With `muster-worker --inherit-env=all`, which\n"
      "`muster local` uses, it inherits all except `OLDPWD` and the worker's other `MUSTER_*` "
      "settings. The job's `env` overrides them.\n\n",
      Table({"variable", "meaning"}, InheritedRows()),
      "## Options of Muster's programs\n\n"
      "A global option of `muster` and any flag of the daemons can be set by a variable. The "
      "command line overrides the variable, which\n"
      "overrides the file given by `--config`. Empty variables count as unset. The options are "
      "described in the\n[command-line reference](cli.md).\n\n",
      Table({"variable", "option", "programs"}, OptionVariables()),
      "## Other variables of Muster's programs\n\n",
      Table({"variable", "program", "meaning"}, Rows(ProgramVariables())),
      "## Variables of builds and scripts\n\n",
      Table({"variable", "used by", "meaning"}, Rows(BuildVariables())));
}

}  // namespace muster::reference
