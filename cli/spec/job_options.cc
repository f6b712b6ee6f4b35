#include "cli/spec/job_options.h"

#include "absl/strings/str_cat.h"
#include "cli/spec/spec_file.h"
#include "common/status.h"
#include "spec/spec.h"

namespace muster::cli {

void AddSpecOptions(Verb& verb, std::string& path, std::vector<std::string>& overrides,
                    bool required) {
  verb.add_option("FILE", path, "Spec as YAML or JSON; - for standard input")->required(required);
  verb.add_option("--set", overrides,
                  "Override a field, as in train.epochs=5 or resources={nodes: 2}; an empty value "
                  "resets the field; may be repeated")
      ->type_name("FIELD=VALUE")
      ->expected(1)
      ->take_all();
}

void AddJobOptions(Verb& verb, JobOptions& options) {
  AddSpecOptions(verb, options.path, options.overrides, /*required=*/false);
  verb.add_option("--name", options.name, "Name of the job")->type_name("NAME");
  verb.add_option("--nodes", options.nodes, "Same as --set resources.nodes=N")->type_name("N");
  verb.add_option("--ranks-per-node", options.ranks_per_node,
                  "Same as --set resources.ranks_per_node=N")
      ->type_name("N");
  verb.add_option("--priority", options.priority,
                  "Priority from -1000 to 1000; higher starts first")
      ->type_name("N");
  verb.add_flag("--losses", options.losses,
                "Record the loss of each step; -o json prints the losses when following a job");
}

void RequireJob(const JobOptions& options, const std::vector<std::string>& command) {
  if (options.path.empty() && command.empty()) {
    throw CLI::RequiredError("a spec FILE or a command after `--`");
  }
}

absl::StatusOr<v1::JobSpec> MakeSpec(const JobOptions& options,
                                     const std::vector<std::string>& command) {
  std::vector<std::string> overrides = options.overrides;
  if (options.nodes.has_value()) {
    overrides.push_back(absl::StrCat("resources.nodes=", *options.nodes));
  }
  if (options.ranks_per_node.has_value()) {
    overrides.push_back(absl::StrCat("resources.ranks_per_node=", *options.ranks_per_node));
  }
  v1::JobSpec spec;
  if (!options.path.empty()) {
    ASSIGN_OR_RETURN(spec, ReadSpecFile(options.path, overrides));
  } else {
    ASSIGN_OR_RETURN(spec, spec::Parse("{}", "command line", overrides));
  }
  if (!options.name.empty()) spec.set_name(options.name);
  if (options.priority.has_value()) spec.set_priority(*options.priority);
  if (!command.empty()) {
    spec.clear_command();
    for (const std::string& argument : command) spec.add_command(argument);
  }
  if (options.losses && spec.has_train()) spec.mutable_train()->set_record_losses(true);
  v1::JobSpec defaulted = spec;
  spec::ApplyDefaults(defaulted);
  RETURN_IF_ERROR(spec::Validate(defaulted));
  return spec;
}

}  // namespace muster::cli
