#include "cli/spec/job_options.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "cli/files/script.h"
#include "cli/spec/job_env.h"
#include "cli/spec/spec_file.h"
#include "common/status.h"
#include "spec/spec.h"

namespace muster::cli {

void AddOverrides(Verb& verb, std::vector<std::string>& overrides) {
  verb.add_option("--set", overrides,
                  "Override a field, as in train.epochs=5 or resources={nodes: 2}; an empty value "
                  "resets the field; may be repeated")
      ->type_name("FIELD=VALUE")
      ->expected(1)
      ->take_all();
}

void AddSpecOptions(Verb& verb, std::string& path, std::vector<std::string>& overrides,
                    bool required) {
  verb.add_option("FILE", path, "Spec as YAML or JSON; - for standard input")->required(required);
  AddOverrides(verb, overrides);
}

void AddJobOptions(Verb& verb, JobOptions& options) {
  AddSpecOptions(verb, options.path, options.overrides, /*required=*/false);
  verb.add_option("--name", options.name, "Name of the job")->type_name("NAME");
  verb.add_option("--nodes", options.nodes, "Same as --set resources.nodes=N")->type_name("N");
  verb.add_option("--ranks-per-node,--nproc-per-node", options.ranks_per_node,
                  "Same as --set resources.ranks_per_node=N")
      ->type_name("N");
  verb.add_option("--restarts", options.restarts, "Same as --set restart.max=N")->type_name("N");
  verb.add_option("--time", options.time_limit, "Same as --set time_limit=DURATION")
      ->type_name("DURATION");
  verb.add_option("--priority", options.priority,
                  "Priority from -1000 to 1000; higher starts first")
      ->type_name("N");
  verb.add_option("--files", options.files,
                  "Copy this file or folder into each rank's own directory; may be repeated")
      ->type_name("PATH")
      ->expected(1)
      ->take_all();
  verb.add_option("--workdir", options.workdir,
                  "Run in this directory, which must exist on every node")
      ->type_name("DIR");
  verb.add_option("-e,--env", options.env,
                  "Set an environment variable; without a value, to the one it has here; may be "
                  "repeated")
      ->type_name("NAME[=VALUE]")
      ->expected(1)
      ->take_all();
  verb.add_option("--env-file", options.env_files,
                  "Set the variables of a file with lines NAME=VALUE; -e overrides them; may be "
                  "repeated")
      ->type_name("FILE")
      ->expected(1)
      ->take_all();
  verb.add_flag("--losses", options.losses,
                "Record the loss of each step; -o json prints the losses when following a job");
}

namespace {

absl::StatusOr<v1::JobSpec> ReadSpec(const JobOptions& options) {
  std::vector<std::string> overrides = options.overrides;
  if (options.nodes.has_value()) {
    overrides.push_back(absl::StrCat("resources.nodes=", *options.nodes));
  }
  if (options.ranks_per_node.has_value()) {
    overrides.push_back(absl::StrCat("resources.ranks_per_node=", *options.ranks_per_node));
  }
  if (options.restarts.has_value()) {
    overrides.push_back(absl::StrCat("restart.max=", *options.restarts));
  }
  if (!options.time_limit.empty()) {
    overrides.push_back(absl::StrCat("time_limit=", options.time_limit));
  }
  if (options.path.empty()) return spec::Parse("{}", "command line", overrides);
  return ReadSpecFile(options.path, overrides);
}

// `folder` as an absolute path, with ~ for the home folder, which shells do not expand everywhere.
absl::StatusOr<std::string> AbsoluteFolder(const std::string& folder, const std::string& here) {
  absl::string_view below_home = folder;
  std::filesystem::path path = std::filesystem::path(here) / folder;
  if (absl::ConsumePrefix(&below_home, "~") && (below_home.empty() || below_home[0] == '/')) {
    const char* const home = std::getenv("HOME");
    if (home == nullptr || *home == '\0') {
      return absl::InvalidArgumentError("--workdir: HOME is not set; give the folder's path");
    }
    path = absl::StrCat(home, below_home);
  }
  path = path.lexically_normal();
  return path.has_filename() ? path.string() : path.parent_path().string();
}

// Adds the command's script if it is a file in the current folder, unless it was uploaded before.
absl::Status AddScript(const std::string& here, const std::vector<v1::FileSpec>& uploaded,
                       JobToSubmit& job) {
  const std::string script = ScriptOf({job.spec.command().begin(), job.spec.command().end()});
  const std::string place = std::filesystem::path(script).lexically_normal().string();
  for (const v1::FileSpec& file : uploaded) {
    if (file.path() == place) return absl::OkStatus();
  }
  std::error_code error;
  if (script.empty() || !std::filesystem::is_regular_file(here + "/" + script, error)) {
    return absl::OkStatus();
  }
  if (*std::filesystem::path(script).lexically_normal().begin() == "..") {
    return absl::InvalidArgumentError(
        absl::StrCat("command: ", script,
                     " is outside of the current folder and cannot be uploaded "
                     "from here; change to its folder, or give --workdir"));
  }
  return job.files.Add(script, here);
}

absl::Status AddFiles(const JobOptions& options, const std::string& here, Place place,
                      JobToSubmit& job) {
  v1::JobSpec& spec = job.spec;
  // Files with a digest are in a spec that was submitted before.
  std::vector<v1::FileSpec> uploaded;
  const bool has_folder = !options.path.empty() && options.path != "-";
  const std::string folder =
      has_folder ? (std::filesystem::path(here) / options.path).parent_path().string() : here;
  for (const v1::FileSpec& file : spec.files()) {
    if (!file.sha256().empty()) {
      uploaded.push_back(file);
    } else {
      RETURN_IF_ERROR(job.files.Add(file.path(), folder));
    }
  }
  for (const std::string& path : options.files) RETURN_IF_ERROR(job.files.Add(path, here));
  const bool placed_elsewhere = spec.has_train() || !spec.workdir().empty();
  if (!placed_elsewhere && place == Place::kCluster) {
    RETURN_IF_ERROR(AddScript(here, uploaded, job));
  }
  spec.mutable_files()->Assign(uploaded.begin(), uploaded.end());
  for (const auto& [path, file] : job.files.files()) *spec.add_files() = file.spec;
  if (!placed_elsewhere && place == Place::kThisMachine && spec.files().empty()) {
    spec.set_workdir(here);
  }
  return absl::OkStatus();
}

}  // namespace

void RequireJob(const JobOptions& options, const std::vector<std::string>& command) {
  if (options.path.empty() && command.empty()) {
    throw CLI::RequiredError("a spec FILE or a command after `--`");
  }
}

absl::StatusOr<JobToSubmit> MakeJob(const JobOptions& options,
                                    const std::vector<std::string>& command, Place place) {
  JobToSubmit job;
  ASSIGN_OR_RETURN(job.spec, ReadSpec(options));
  v1::JobSpec& spec = job.spec;
  if (!options.name.empty()) spec.set_name(options.name);
  if (options.priority.has_value()) spec.set_priority(*options.priority);
  if (!command.empty()) spec.mutable_command()->Assign(command.begin(), command.end());
  if (options.losses && spec.has_train()) spec.mutable_train()->set_record_losses(true);
  RETURN_IF_ERROR(AddVariables(options.env_files, options.env, spec));

  std::error_code error;
  const std::string here = std::filesystem::current_path(error).string();
  if (error) return absl::NotFoundError(absl::StrCat("current folder: ", error.message()));
  if (!options.workdir.empty()) {
    ASSIGN_OR_RETURN(*spec.mutable_workdir(), AbsoluteFolder(options.workdir, here));
  }
  RETURN_IF_ERROR(AddFiles(options, here, place, job));
  v1::JobSpec defaulted = spec;
  spec::ApplyDefaults(defaulted);
  RETURN_IF_ERROR(spec::Validate(defaulted));
  return job;
}

}  // namespace muster::cli
