#include "cli/spec/job_options.h"

#include <cstdlib>
#include <filesystem>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "cli/files/script.h"
#include "cli/spec/spec_file.h"
#include "common/status.h"
#include "common/text/nearest.h"
#include "spec/rules/problems.h"
#include "spec/spec.h"

namespace muster::cli {
namespace {

absl::Status AddFile(const std::string& path, v1::JobSpec& spec) {
  ASSIGN_OR_RETURN(const std::string text, ReadSpecText(path));
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    absl::ConsumeSuffix(&line, "\r");
    line = absl::StripLeadingAsciiWhitespace(line);
    if (line.empty() || line[0] == '#') continue;
    const size_t equals = line.find('=');
    if (equals == absl::string_view::npos || !spec::IsUtf8(line)) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ":", number, ": expected NAME=VALUE in UTF-8"));
    }
    (*spec.mutable_env())[std::string(line.substr(0, equals))] =
        std::string(line.substr(equals + 1));
  }
  return absl::OkStatus();
}

absl::Status AddEntry(const std::string& entry, v1::JobSpec& spec) {
  const size_t equals = entry.find('=');
  const std::string name = entry.substr(0, equals);
  const char* const own = std::getenv(name.c_str());
  if (equals == std::string::npos && own == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("--env ", Quoted(name), ": is not set here; give ", name, "=VALUE"));
  }
  const std::string value = equals == std::string::npos ? own : entry.substr(equals + 1);
  if (!spec::IsUtf8(name) || !spec::IsUtf8(value)) {
    return absl::InvalidArgumentError(absl::StrCat("--env ", Quoted(name), ": is not UTF-8"));
  }
  (*spec.mutable_env())[name] = value;
  return absl::OkStatus();
}

}  // namespace

absl::Status AddVariables(const std::vector<std::string>& files,
                          const std::vector<std::string>& entries, v1::JobSpec& spec) {
  for (const std::string& file : files) RETURN_IF_ERROR(AddFile(file, spec));
  for (const std::string& entry : entries) RETURN_IF_ERROR(AddEntry(entry, spec));
  return absl::OkStatus();
}

void AddOverrides(Verb& verb, std::vector<std::string>& overrides) {
  Repeatable(verb.add_option("--set", overrides,
                             "Override a field, as in train.epochs=5 or resources={nodes: 2}; an "
                             "empty value resets the field; may be repeated"))
      ->type_name("FIELD=VALUE");
}

void AddSpecOptions(Verb& verb, std::string& path, std::vector<std::string>& overrides,
                    bool required) {
  verb.add_option("FILE", path, "Spec as YAML or JSON; - for standard input")->required(required);
  AddOverrides(verb, overrides);
}

void AddJobOptions(Verb& verb, JobOptions& options) {
  AddSpecOptions(verb, options.path, options.overrides, /*required=*/false);
  verb.add_option("--name", options.name, "Name of the job")->type_name("NAME");
  verb.add_option("--nodes,--nnodes", options.nodes, "Same as --set resources.nodes=N")
      ->type_name("N");
  // With '_', as torchrun accepts it, too.
  verb.add_option("--ranks-per-node,--nproc-per-node,--nproc_per_node", options.ranks_per_node,
                  "Same as --set resources.ranks_per_node=N")
      ->type_name("N");
  verb.add_option("--launcher", options.launcher,
                  "Same as --set launcher=mpi: start the command as one MPI program, with Open MPI")
      ->type_name("muster|mpi")
      ->check(OneOf({"muster", "mpi"}));
  verb.add_option(
          "--restarts", options.restarts,
          "Same as --set restart.max=N; default 0 for commands, 3 for train and with on_hang: "
          "restart")
      ->type_name("N");
  verb.add_option("--time", options.time_limit,
                  "Same as --set time_limit=DURATION; also as Slurm writes it, 1-00:00:00")
      ->type_name("DURATION");
  verb.add_option("--priority", options.priority,
                  "Priority from -1000 to 1000; higher starts first")
      ->type_name("N");
  // Not Repeatable: takes every file name that a shell expands *.py to.
  verb.add_option("--files", options.files,
                  "Copy these files and folders into each rank's own directory; may be repeated")
      ->type_name("PATH...");
  verb.add_option("--workdir", options.workdir,
                  "Run in this directory, which must exist on every node")
      ->type_name("DIR");
  Repeatable(verb.add_option("-e,--env", options.env,
                             "Set an environment variable; without a value, to the one it has "
                             "here; may be repeated"))
      ->type_name("NAME[=VALUE]");
  Repeatable(verb.add_option("--env-file", options.env_files,
                             "Set the variables of a file with lines NAME=VALUE; -e overrides "
                             "them; may be repeated"))
      ->type_name("FILE");
  verb.add_flag("--losses", options.losses,
                "Record the loss of each step; -o json prints the losses when following a job");
}

void AddSchedulingOptions(Verb& verb, JobOptions& options) {
  verb.add_option("--class", options.priority_class,
                  "Priority class; a higher one starts first and may preempt jobs of a lower one")
      ->type_name("low|normal|high|critical")
      ->check(OneOf({"low", "normal", "high", "critical"}));
  Repeatable(verb.add_option("--after", options.after,
                             "Start only once this job or array has succeeded; may be repeated"))
      ->type_name("JOB");
  verb.add_option("--array", options.array,
                  "Submit N jobs as one array, numbered from 0 by MUSTER_ARRAY_INDEX and "
                  "{array_index}; with %K, at most K of them run at the same time")
      ->type_name("N[%K]");
  Repeatable(verb.add_option("--select", options.select,
                             "Use only nodes with this label; may be repeated"))
      ->type_name("LABEL=VALUE");
  Repeatable(
      verb.add_option("--exclude", options.exclude_nodes, "Do not use this node; may be repeated"))
      ->type_name("NODE");
  verb.add_flag("--exclusive", options.exclusive, "Run no other job on the nodes of this one");
}

namespace {

// A duration as Slurm writes it, [DAYS-]HOURS:MINUTES:SECONDS or MINUTES:SECONDS, with a unit; any
// other text as it is.
std::string WithUnit(const std::string& text) {
  std::vector<std::string> parts = absl::StrSplit(text, ':');
  if (parts.size() > 3 || (parts.size() < 2 && !absl::StrContains(text, '-'))) return text;
  constexpr int64_t kSeconds[] = {3600, 60, 1}, kLargest = 1'000'000'000;
  int64_t total = 0, number = 0;
  const std::vector<std::string> days = absl::StrSplit(parts[0], absl::MaxSplits('-', 1));
  if (days.size() == 2) {
    if (!absl::SimpleAtoi(days[0], &number) || number < 0 || number > kLargest) return text;
    total = 86400 * number;
    parts[0] = days[1];
  }
  // Without days, the last part is seconds; with days, the first is hours.
  const size_t first = days.size() == 2 ? 0 : 3 - parts.size();
  for (size_t i = 0; i < parts.size(); ++i) {
    const bool digits = absl::c_all_of(parts[i], absl::ascii_isdigit);
    if (!digits || !absl::SimpleAtoi(parts[i], &number) || number > kLargest) return text;
    total += kSeconds[first + i] * number;
  }
  return absl::StrCat(total, "s");
}

// The number of tasks in `text`: "12", or "0-11" as Slurm writes it.
absl::StatusOr<uint32_t> CountOf(const std::string& text) {
  const std::vector<std::string> range = absl::StrSplit(text, absl::MaxSplits('-', 1));
  uint32_t first = 0, last = 0;
  if (range.size() == 1 && absl::SimpleAtoi(text, &last) && last > 0) return last;
  if (range.size() == 2 && absl::SimpleAtoi(range[0], &first) &&
      absl::SimpleAtoi(range[1], &last) && first <= last && last < UINT32_MAX) {
    if (first == 0) return last + 1;
    const uint32_t count = last - first + 1;
    return absl::InvalidArgumentError(absl::StrCat("--array: indices begin with 0; give --array ",
                                                   count, " in place of ", text, ", and add ",
                                                   first, " to MUSTER_ARRAY_INDEX in the program"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--array: '", absl::Utf8SafeCHexEscape(text),
                   "' is not a number of jobs such as 12, or 12%4 to run at most 4 at a time"));
}

absl::Status SetArray(const std::string& text, v1::JobSpec& spec) {
  if (text.empty()) return absl::OkStatus();
  const std::vector<std::string> parts = absl::StrSplit(text, absl::MaxSplits('%', 1));
  uint32_t concurrency = 0;
  const bool limited =
      parts.size() == 1 || (absl::SimpleAtoi(parts[1], &concurrency) && concurrency > 0);
  ASSIGN_OR_RETURN(const uint32_t count, CountOf(limited ? parts[0] : text));
  spec.clear_array();
  spec.mutable_array()->set_count(count);
  spec.mutable_array()->set_concurrency(concurrency);
  return absl::OkStatus();
}

absl::Status AddSelectors(const std::vector<std::string>& selectors, v1::JobSpec& spec) {
  for (const std::string& text : selectors) {
    const std::pair<std::string, std::string> label = absl::StrSplit(text, absl::MaxSplits('=', 1));
    if (label.first.empty() || label.second.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("--select: '", absl::Utf8SafeCHexEscape(text),
                                                     "' is not LABEL=VALUE, as in gpu=h100"));
    }
    (*spec.mutable_resources()->mutable_select())[label.first] = label.second;
  }
  return absl::OkStatus();
}

void ApplyScheduling(const JobOptions& options, v1::JobSpec& spec) {
  if (!options.priority_class.empty()) spec.set_priority_class(options.priority_class);
  for (const std::string& job : options.after) spec.mutable_after()->add_ok(job);
  for (const std::string& node : options.exclude_nodes) {
    spec.mutable_resources()->add_exclude_nodes(node);
  }
  if (options.exclusive) spec.mutable_resources()->set_exclusive(true);
}

// --set and the flags that stand for it.
std::vector<std::string> Overrides(const JobOptions& options) {
  std::vector<std::string> overrides = options.overrides;
  if (options.nodes.has_value()) {
    overrides.push_back(absl::StrCat("resources.nodes=", *options.nodes));
  }
  if (options.ranks_per_node.has_value()) {
    overrides.push_back(absl::StrCat("resources.ranks_per_node=", *options.ranks_per_node));
  }
  if (!options.launcher.empty()) {
    overrides.push_back(absl::StrCat("launcher=", options.launcher));
  }
  if (options.restarts.has_value()) {
    overrides.push_back(absl::StrCat("restart.max=", *options.restarts));
  }
  if (!options.time_limit.empty()) {
    overrides.push_back(absl::StrCat("time_limit=", WithUnit(options.time_limit)));
  }
  return overrides;
}

absl::StatusOr<v1::JobSpec> ReadSpec(const JobOptions& options, spec::Amendment amend) {
  const std::vector<std::string> overrides = Overrides(options);
  if (options.path.empty()) {
    return spec::ParseReportingAll("{}", "command line", overrides, amend);
  }
  if (const std::string command = CommandFor(options.path); !command.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        options.path, ": a script, not a spec; to run it, give `-- ", command, "` instead"));
  }
  return ReadSpecFile(options.path, overrides, amend);
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

absl::Status SetWorkdir(const std::string& folder, v1::JobSpec& spec) {
  if (folder.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string here, CurrentFolder());
  ASSIGN_OR_RETURN(*spec.mutable_workdir(), AbsoluteFolder(folder, here));
  return absl::OkStatus();
}

}  // namespace

void RequireJob(const JobOptions& options, const std::vector<std::string>& command) {
  if (options.path.empty() && command.empty()) {
    throw CLI::RequiredError(options.files.empty()
                                 ? "a spec FILE or a command after `--`"
                                 : "a spec FILE before --files, or a command after `--`,");
  }
}

absl::StatusOr<JobToSubmit> MakeJob(const JobOptions& options,
                                    const std::vector<std::string>& command, Place place) {
  JobToSubmit job;
  const auto apply_options = [&](v1::JobSpec& spec) {
    if (!options.name.empty()) spec.set_name(options.name);
    if (options.priority.has_value()) spec.set_priority(*options.priority);
    if (!command.empty()) spec.mutable_command()->Assign(command.begin(), command.end());
    if (options.losses && spec.has_train()) spec.mutable_train()->set_record_losses(true);
    ApplyScheduling(options, spec);
    return std::vector<absl::Status>{
        SetArray(options.array, spec), AddSelectors(options.select, spec),
        AddVariables(options.env_files, options.env, spec), SetWorkdir(options.workdir, spec),
        AddJobFiles(options.path, options.files, place, spec, job.files)};
  };
  ASSIGN_OR_RETURN(job.spec, ReadSpec(options, apply_options));
  v1::JobSpec defaulted = job.spec;
  spec::ApplyDefaults(defaulted);
  RETURN_IF_ERROR(spec::Validate(defaulted));
  RETURN_IF_ERROR(spec::CheckPlaceholders(defaulted));
  return job;
}

}  // namespace muster::cli
