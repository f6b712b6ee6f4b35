#include "cli/text/job_description.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "cli/exit_code.h"
#include "cli/output/table.h"
#include "cli/output/words.h"
#include "cli/text/job_text.h"
#include "cli/text/report_text.h"
#include "common/text/checkpoint_texts.h"
#include "common/time/proto_time.h"
#include "spec/spec.h"

namespace muster::cli {
namespace {

// Column of the values.
constexpr size_t kValueColumn = 15;
// Maximum number of files of the spec that are named.
constexpr int kNamedFiles = 5;

// An argument as a shell would need it.
std::string ShellWord(const std::string& word) {
  constexpr absl::string_view kPlain = "_-+=:,./@%";
  const bool plain = !word.empty() && std::all_of(word.begin(), word.end(), [&](unsigned char c) {
    return absl::ascii_isalnum(c) || kPlain.find(c) != absl::string_view::npos;
  });
  return plain ? word : absl::StrCat("'", absl::StrReplaceAll(word, {{"'", "'\\''"}}), "'");
}

std::string CommandText(const v1::JobSpec& spec) {
  return absl::StrJoin(spec.command(), " ", [](std::string* out, const std::string& word) {
    absl::StrAppend(out, ShellWord(word));
  });
}

std::string EnvText(const v1::JobSpec& spec) {
  std::vector<std::string> names;
  for (const auto& entry : spec.env()) names.push_back(entry.first);
  std::sort(names.begin(), names.end());
  return absl::StrJoin(names, ", ");
}

std::string FilesText(const v1::JobSpec& spec) {
  std::vector<std::string> paths;
  uint64_t size_bytes = 0;
  for (const v1::FileSpec& file : spec.files()) {
    if (static_cast<int>(paths.size()) < kNamedFiles) paths.push_back(file.path());
    size_bytes += file.size_bytes();
  }
  if (paths.empty()) return "";
  const int more = spec.files_size() - static_cast<int>(paths.size());
  if (more > 0) paths.push_back(absl::StrCat(more, " more"));
  return absl::StrCat(absl::StrJoin(paths, ", "), " (", Bytes(size_bytes), ")");
}

// The checkpoint directory of a command, whose contents Muster does not know: "/ckpt/run-1, shared
// by all nodes".
std::string CommandCheckpointText(const v1::Job& job) {
  const v1::CheckpointStatus& checkpoint = job.checkpoint();
  if (checkpoint.shared()) return absl::StrCat(checkpoint.dir(), ", shared by all nodes");
  if (checkpoint.node().empty()) return checkpoint.dir();
  if (job.spec().resources().nodes().max() > 1) {
    return absl::StrCat(checkpoint.dir(), " on ", checkpoint.node(),
                        "; every node has its own (MUSTER_CHECKPOINT_SHARED=0)");
  }
  return absl::StrCat(checkpoint.dir(), ", on ", checkpoint.node());
}

// "/ckpt/run-1/step-00000060.g2, step 60, shared by all nodes"; on further lines the best
// checkpoint and those that failed.
std::string CheckpointText(const v1::Job& job) {
  const v1::CheckpointStatus& checkpoint = job.checkpoint();
  if (checkpoint.dir().empty()) return job.summary().checkpoint();
  if (!job.spec().has_train()) return CommandCheckpointText(job);
  const std::string path = NewestCheckpointPath(checkpoint);
  std::string text = path.empty() ? absl::StrCat(checkpoint.dir(), ", none yet")
                                  : absl::StrCat(path, ", step ", checkpoint.step());
  if (checkpoint.shared()) {
    absl::StrAppend(&text, ", shared by all nodes");
  } else if (!checkpoint.node().empty()) {
    absl::StrAppend(&text, ", only on ", checkpoint.node());
  }
  const std::string best = BestCheckpointPath(checkpoint);
  if (!best.empty()) {
    absl::StrAppend(&text, "\nbest by ", job.spec().train().checkpoint().keep_best(), ": ", best,
                    ", step ", checkpoint.best_step());
  }
  const std::string failures = CheckpointFailures(checkpoint);
  if (!failures.empty()) absl::StrAppend(&text, "\n", failures);
  return text;
}

// "/ckpt/old/step-00000060.g1, step 60, of job old-x7k2p".
std::string ResumedText(const v1::Job& job) {
  const v1::CheckpointStatus& checkpoint = job.checkpoint();
  if (checkpoint.resumed_from().empty()) return "";
  std::string text = absl::StrCat(checkpoint.resumed_from(), ", step ", checkpoint.resumed_step());
  const std::string& writer = checkpoint.resumed_job_id();
  if (!writer.empty() && writer != job.job_id()) absl::StrAppend(&text, ", of job ", writer);
  return text;
}

// The other job's checkpoint with which this job began, "/ckpt/old/step-00000060.g1, of job
// old-x7k2p"; empty if the newest generation resumed from it, too.
std::string ContinuesText(const v1::Job& job) {
  const v1::CheckpointStatus& checkpoint = job.checkpoint();
  const std::string& from = checkpoint.continued_from();
  if (from.empty() || from == checkpoint.resumed_from()) return "";
  return absl::StrCat(from, ", of job ", checkpoint.continued_job_id());
}

// "silent for 10m0s; suspect: rank 3 on node-2: waits in futex".
std::string HangText(const v1::Job& job) {
  if (!job.has_hang()) return "";
  const v1::Hang& hang = job.hang();
  std::string text = absl::StrCat("all ranks silent for ", Age(FromProto(hang.silence())));
  if (hang.has_suspect_rank()) {
    absl::StrAppend(&text, "; suspect: rank ", hang.suspect_rank(),
                    hang.node().empty() ? "" : " on ", hang.node());
  }
  if (!hang.message().empty()) absl::StrAppend(&text, ": ", hang.message());
  return text;
}

std::string RestartsText(const v1::Job& job) {
  if (job.spec().restart().max() == 0 && job.restarts() == 0) return "disabled";
  std::string text = absl::StrCat(job.restarts_used(), " of ", job.spec().restart().max(), " used");
  if (job.restarts() == job.restarts_used()) return text;
  return absl::StrCat(text, " since the last completed step, ", job.restarts(), " in all");
}

std::string StartsText(const v1::Job& job, absl::Time now) {
  if (!job.has_estimated_start_time()) return "";
  const absl::Duration left = FromProto(job.estimated_start_time()) - now;
  const std::string when =
      left > absl::ZeroDuration() ? absl::StrCat("within ", Age(left)) : "any moment";
  return job.estimate_basis().empty() ? when : absl::StrCat(when, "; from ", job.estimate_basis());
}

// "sweep-x7k2q, task 3 of 12, learning_rate=0.1"; indices start from 0.
std::string ArrayText(const v1::Job& job) {
  if (job.array_id().empty()) return "";
  std::string text =
      absl::StrCat(job.array_id(), ", task ", job.array_index(), " of ", job.array_count());
  for (const v1::ArrayValue& value : job.array_values()) {
    absl::StrAppend(&text, ", ", value.field(), "=", value.value());
  }
  return text;
}

// "prepare-x7k2 succeeds; fetch-9qd3 ends".
std::string AfterText(const v1::Dependencies& after) {
  std::vector<std::string> parts;
  for (const std::string& job : after.ok()) parts.push_back(absl::StrCat(job, " succeeds"));
  for (const std::string& job : after.failed()) parts.push_back(absl::StrCat(job, " fails"));
  for (const std::string& job : after.any()) parts.push_back(absl::StrCat(job, " ends"));
  return absl::StrJoin(parts, "; ");
}

// Requirements of the nodes: "gpu=h100, rack=a; not on gpu-3; without other jobs".
std::string ConstraintsText(const v1::Resources& resources) {
  const std::map<std::string, std::string> select(resources.select().begin(),
                                                  resources.select().end());
  std::vector<std::string> parts;
  if (!select.empty()) parts.push_back(absl::StrJoin(select, ", ", absl::PairFormatter("=")));
  if (!resources.gpu_model().empty()) parts.push_back("GPU " + resources.gpu_model());
  if (resources.gpu_memory() > 0) {
    parts.push_back(absl::StrCat("GPU memory ", Bytes(resources.gpu_memory())));
  }
  if (!resources.exclude_nodes().empty()) {
    parts.push_back(absl::StrCat("not on ", absl::StrJoin(resources.exclude_nodes(), ", ")));
  }
  if (!resources.prefer_nodes().empty()) {
    parts.push_back(absl::StrCat("preferably on ", absl::StrJoin(resources.prefer_nodes(), ", ")));
  }
  if (resources.exclusive()) parts.push_back("without other jobs");
  return absl::StrJoin(parts, "; ");
}

// One straggler per line.
std::string StragglersText(const v1::Job& job) {
  std::vector<std::string> lines;
  for (const v1::Straggler& straggler : job.stragglers()) lines.push_back(straggler.message());
  return absl::StrJoin(lines, "\n");
}

void AppendState(const v1::Job& job, absl::Time now, FieldList& fields) {
  fields.Add("State", v1::JobState_Name(job.state()));
  fields.Add("Reason", job.reason());
  fields.Add("Message", MessageBesidesFailure(job));
  if (job.queue_position() > 0) fields.Add("Queue", absl::StrCat(job.queue_position()));
  fields.Add("Waits for", WaitsText(job));
  fields.Add("Starts", StartsText(job, now));
  fields.Add("Hang", HangText(job));
  fields.Add("Slow ranks", StragglersText(job));
  fields.Add("Generation", job.generation() > 0 ? absl::StrCat(job.generation()) : "");
  fields.Add("Restarts", RestartsText(job));
  if (job.preemptions() > 0) fields.Add("Preempted", absl::StrCat(job.preemptions()));
}

// An elastic job may have fewer ranks than it could use.
std::string RanksText(const v1::Job& job) {
  const uint64_t most = spec::MaxWorldSize(job.spec());
  const uint64_t now = WorldSize(job);
  return now < most ? absl::StrCat(now, " of at most ", most) : absl::StrCat(most);
}

void AppendSpec(const v1::Job& job, FieldList& fields) {
  const v1::JobSpec& spec = job.spec();
  fields.Add("Class", spec.priority_class());
  fields.Add("After", AfterText(spec.after()));
  fields.Add("Nodes", NodesText(spec.resources().nodes()));
  fields.Add("Constraints", ConstraintsText(spec.resources()));
  fields.Add("Ranks", RanksText(job));
  fields.Add("Command", CommandText(spec));
  fields.Add("Workdir", spec.workdir());
  fields.Add("Env", EnvText(spec));
  fields.Add("Files", FilesText(spec));
}

void AppendTimes(const v1::Job& job, absl::Time now, FieldList& fields) {
  fields.AddTime("Submitted", job.has_submit_time(), job.submit_time(), now);
  fields.AddTime("Started", job.has_start_time(), job.start_time(), now);
  fields.AddTime("Finished", job.has_finish_time(), job.finish_time(), now);
  fields.Add("Duration", DurationText(job, now));
  fields.Add("Goodput", GoodputText(job.goodput()));
  fields.Add("Time by cause", TimeByCauseText(job.goodput()));
  if (IsOver(job.state())) fields.Add("Exit status", absl::StrCat(ExitCodeOf(job)));
}

void AppendResult(const v1::Job& job, FieldList& fields) {
  if (job.has_progress()) fields.Add("Progress", ProgressText(job));
  fields.Add("Checkpoint", CheckpointText(job));
  fields.Add("Continues", ContinuesText(job));
  fields.Add("Resumed from", ResumedText(job));
  if (!job.has_summary()) return;
  fields.Add("Summary", SummaryText(job.summary()));
  fields.Add("Test accuracy", absl::StrFormat("%.4f", job.summary().test_accuracy()));
  if (job.summary().parameters() > 0) {
    fields.Add("Parameters", Grouped(job.summary().parameters()));
  }
  fields.Add("Weights", job.summary().weights_digest());
}

void AppendFailures(const v1::Job& job, FieldList& fields) {
  const v1::FirstFailure& first = job.first_failure();
  for (const v1::FirstFailure& failure : job.past_failures()) {
    if (failure.generation() == first.generation()) continue;
    fields.Add(absl::StrCat("Failure ", failure.generation()), FailureText(failure));
  }
  fields.Add("Omitted", OmittedFailuresText(job));
  if (!job.has_first_failure()) return;
  fields.Add("First failure",
             absl::StrCat("generation ", first.generation(), ", ", FailureText(first)));
  fields.AddText(FailureDetailText(first));
  fields.Add("Consequences", ConsequencesText(job));
}

using FailureReference = std::pair<std::string, std::string>;  // (message, what to show for it)

// The job's failures by generation.
std::map<uint64_t, FailureReference> FailureReferences(const v1::Job& job) {
  std::map<uint64_t, FailureReference> references;
  const auto refer = [&references](const v1::FirstFailure& failure, absl::string_view name) {
    if (failure.message().empty()) return;
    const std::string where = failure.has_rank()
                                  ? absl::StrCat("rank ", failure.rank(), " on ", failure.node())
                                  : failure.node();
    references.try_emplace(
        failure.generation(), failure.message(),
        where.empty() ? std::string(name) : absl::StrCat(name, " (", where, ")"));
  };
  refer(job.first_failure(), "first failure");
  for (const v1::FirstFailure& failure : job.past_failures()) {
    refer(failure, absl::StrCat("failure ", failure.generation()));
  }
  return references;
}

// The event's message with references in place of failures. Several generations may have failed
// with the same message: that of the event's generation comes first.
std::string WithReferences(const v1::JobEvent& event,
                           const std::map<uint64_t, FailureReference>& references) {
  std::string message = event.message();
  const auto own = references.find(event.generation());
  if (own != references.end()) message = absl::StrReplaceAll(message, {own->second});
  for (const auto& [generation, reference] : references) {
    message = absl::StrReplaceAll(message, {reference});
  }
  return message;
}

}  // namespace

std::string Description(const v1::Job& job, absl::Time now) {
  FieldList fields(kValueColumn);
  fields.Add("Job", job.job_id());
  fields.Add("Name", job.spec().name());
  fields.Add("Owner", job.owner());
  fields.Add("Array", ArrayText(job));
  AppendState(job, now, fields);
  AppendSpec(job, fields);
  AppendTimes(job, now, fields);
  AppendResult(job, fields);
  fields.Add("Warnings", absl::StrJoin(job.warnings(), "\n"));
  AppendFailures(job, fields);
  return fields.text();
}

std::string EventTable(const v1::Job& job, absl::Span<const v1::JobEvent> events, absl::Time now) {
  const std::map<uint64_t, FailureReference> references = FailureReferences(job);
  Table table({"AGE", "GENERATION", "TYPE", "MESSAGE"});
  for (const v1::JobEvent& event : events) {
    table.AddRow({AgeSince(event.time(), now),
                  event.generation() > 0 ? absl::StrCat(event.generation()) : "", event.type(),
                  WithReferences(event, references)});
  }
  return table.Text();
}

std::string MessageBesidesFailure(const v1::Job& job) {
  absl::string_view message = job.message();
  const std::string& failure = job.first_failure().message();
  if (!failure.empty() && absl::ConsumePrefix(&message, failure)) {
    absl::ConsumePrefix(&message, "; ");
  }
  return std::string(message);
}

}  // namespace muster::cli
