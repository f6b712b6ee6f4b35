#include "cli/text/job_text.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "cli/output/table.h"
#include "cli/output/words.h"
#include "common/text/phase_text.h"
#include "common/time/proto_time.h"
#include "spec/spec.h"

namespace muster::cli {
namespace {

// Maximum number of ranks or nodes that are named per wait.
constexpr int kNamedWaits = 3;
// The loader limits a training whose median step waits for it for more than this share.
constexpr double kLoaderLimitShare = 0.1;

// The number of epochs that the job trains.
double TotalEpochs(const v1::Job& job) {
  const v1::TrainSpec& train = job.spec().train();
  const v1::Progress& progress = job.progress();
  if (train.max_steps() == 0 || progress.total_steps() == 0) return train.epochs();
  const double epochs = progress.epoch() / static_cast<double>(progress.step()) *
                        static_cast<double>(progress.total_steps());
  return train.epochs() > 0 ? std::min(epochs, train.epochs()) : epochs;
}

std::string ProgressCell(const v1::Job& job) {
  const v1::Progress& progress = job.progress();
  const uint64_t steps = job.has_summary() ? job.summary().steps() : progress.step();
  if (steps == 0) return progress.phase();
  return progress.total_steps() > 0 ? absl::StrCat(steps, "/", progress.total_steps())
                                    : absl::StrCat(steps);
}

std::string ExitText(const v1::ExitInfo& exit) {
  if (exit.out_of_memory()) return "killed by the OOM killer";
  if (exit.signal() != 0) return absl::StrCat("killed by ", SignalName(exit.signal()));
  return absl::StrCat("exited with code ", exit.exit_code());
}

std::string LossScaleText(double scale, uint64_t skipped_steps) {
  std::string text = absl::StrFormat("loss scale %.10g", scale);
  if (skipped_steps == 0) return text;
  return absl::StrCat(text, " (", Grouped(skipped_steps),
                      skipped_steps == 1 ? " step skipped)" : " steps skipped)");
}

// ", dp: forward 30 %, backward 70 %": the share of each phase in a step, for the strategies dp and
// hybrid.
std::string StepPhasesText(const v1::TrainSummary& summary) {
  double sum = 0;
  for (const v1::StepPart& part : summary.parts()) sum += part.seconds();
  if (!(sum > 0)) return "";
  std::vector<std::string> shares;
  for (const v1::StepPart& part : summary.parts()) {
    const double percent = 100 * part.seconds() / sum;
    if (percent < 0.5) continue;
    shares.push_back(absl::StrFormat("%s %.0f %%", Printable(part.name()), percent));
  }
  return absl::StrCat(", ", Printable(summary.strategy()), ": ", absl::StrJoin(shares, ", "));
}

// ", 2 stages from conv1, layer3.0.conv1: 12.1, 11.8 ms per micro-batch, bubble 20 %", for a
// pipeline.
std::string StagesText(const v1::TrainSummary& summary) {
  if (summary.stages().empty()) return "";
  std::vector<std::string> layers, times;
  for (const v1::StageUse& stage : summary.stages()) {
    layers.push_back(Printable(stage.first_layer()));
    times.push_back(
        absl::StrFormat("%.1f", 1000 * (stage.forward_seconds() + stage.backward_seconds())));
  }
  return absl::StrFormat(", %d stages from %s: %s ms per micro-batch, bubble %.0f %%",
                         layers.size(), absl::StrJoin(layers, ", "), absl::StrJoin(times, ", "),
                         100 * summary.bubble_ratio());
}

// ", step 8.2 ms (93 % in kernels, 2 % waiting for other ranks)"; on a GPU ", step 8.2 ms (queued
// in 0.09 ms)".
std::string StepSharesText(const v1::TrainSummary& summary) {
  const double step = summary.median_step_seconds();
  if (step > 0 && summary.queue_seconds() > 0) {
    return absl::StrFormat(", step %.1f ms (queued in %.2f ms)", 1000 * step,
                           1000 * summary.queue_seconds());
  }
  if (!(step > 0) || summary.kernel_seconds() <= 0) return "";
  return absl::StrFormat(", step %.1f ms (%.0f %% in kernels, %.0f %% waiting for other ranks)",
                         1000 * step, 100 * summary.kernel_seconds() / step,
                         100 * summary.exposed_communication_seconds() / step);
}

uint32_t TasksIn(const v1::JobArray& array, v1::JobState state) {
  const auto count = array.tasks().find(v1::JobState_Name(state));
  return count == array.tasks().end() ? 0 : count->second;
}

std::string PhaseWord(v1::RankPhase phase) {
  return phase == v1::RANK_PHASE_UNSPECIFIED ? "" : v1::RankPhase_Name(phase);
}

// "QUEUED,UNPLACEABLE": other jobs do not wait for it. "RUNNING,HUNG": all its ranks are silent.
std::string StateCell(const v1::Job& job) {
  const bool hangs = job.state() == v1::RUNNING && job.has_hang();
  return absl::StrCat(v1::JobState_Name(job.state()), hangs ? ",HUNG" : "",
                      job.unplaceable().empty() ? "" : ",UNPLACEABLE");
}

// How the rank ended, and whether that was the first failure, a consequence of it, or a stop.
std::string ExitCell(const v1::Job& job, const v1::RankStatus& rank) {
  if (rank.unkillable()) return "outlived SIGKILL";
  if (!rank.has_exit()) return "";
  const std::string text = ExitText(rank.exit());
  const v1::FirstFailure& failure = job.first_failure();
  if (failure.generation() == job.generation() && failure.has_rank()) {
    if (failure.rank() == rank.rank()) return absl::StrCat(text, ", the first failure");
    const bool ended_well = rank.exit().signal() == 0 && rank.exit().exit_code() == 0;
    if (!rank.exit().stopped_by_worker() && !ended_well) {
      return absl::StrCat(text, ", a consequence");
    }
  }
  return rank.exit().stopped_by_worker() ? absl::StrCat(text, ", stopped") : text;
}

// The cells of an array in the table of jobs.
std::vector<std::string> ArrayRow(const v1::JobArray& array, bool wide, absl::Time now) {
  std::vector<std::string> row = {absl::StrCat(array.array_id(), "[", array.count(), "]"),
                                  v1::JobState_Name(array.state()),
                                  "",
                                  "",
                                  ArrayProgress(array),
                                  "",
                                  "",
                                  AgeSince(array.submit_time(), now)};
  if (wide) row.insert(row.end(), {array.owner(), "", "", "", "", ""});
  return row;
}

}  // namespace

std::string NodesText(const v1::NodeCount& nodes) {
  return nodes.min() == nodes.max() ? absl::StrCat(nodes.min())
                                    : absl::StrCat(nodes.min(), "-", nodes.max());
}

std::string StateWord(v1::JobState state) {
  return absl::AsciiStrToLower(absl::StrReplaceAll(v1::JobState_Name(state), {{"_", " "}}));
}

Color StateColor(v1::JobState state) {
  if (state == v1::SUCCEEDED) return Color::kGreen;
  if (state == v1::FAILED || state == v1::TIMED_OUT) return Color::kRed;
  if (state == v1::CANCELLED || state == v1::STOPPING) return Color::kYellow;
  return Color::kNone;
}

std::string ArrayProgress(const v1::JobArray& array) {
  const uint32_t failed =
      TasksIn(array, v1::FAILED) + TasksIn(array, v1::CANCELLED) + TasksIn(array, v1::TIMED_OUT);
  std::string text =
      absl::StrCat(TasksIn(array, v1::SUCCEEDED) + failed, "/", array.count(), " done");
  if (failed > 0) absl::StrAppend(&text, ", ", failed, " not successful");
  return text;
}

std::string JobTable(absl::Span<const v1::Job> jobs, absl::Span<const v1::JobArray> arrays,
                     bool wide, absl::Time now) {
  std::vector<std::string> heads = {"JOB",  "STATE",    "NODES",    "RANKS",
                                    "STEP", "RESTARTS", "DURATION", "AGE"};
  if (wide) {
    heads.insert(heads.end(), {"OWNER", "PRIORITY", "GENERATION", "QUEUE", "REASON", "MESSAGE"});
  }
  Table table(heads);
  const auto add_arrays_since = [&](absl::Time time) {
    while (!arrays.empty() && FromProto(arrays.front().submit_time()) >= time) {
      table.AddRow(ArrayRow(arrays.front(), wide, now));
      arrays.remove_prefix(1);
    }
  };
  for (const v1::Job& job : jobs) {
    add_arrays_since(FromProto(job.submit_time()));
    std::vector<std::string> row = {job.job_id(),
                                    StateCell(job),
                                    NodesText(job.spec().resources().nodes()),
                                    absl::StrCat(WorldSize(job)),
                                    ProgressCell(job),
                                    absl::StrCat(job.restarts()),
                                    DurationText(job, now),
                                    AgeSince(job.submit_time(), now)};
    if (wide) {
      row.insert(row.end(),
                 {job.owner(), absl::StrCat(job.spec().priority()), absl::StrCat(job.generation()),
                  job.queue_position() > 0 ? absl::StrCat(job.queue_position()) : "", job.reason(),
                  job.unplaceable().empty() ? job.message() : job.unplaceable()});
    }
    table.AddRow(std::move(row));
  }
  add_arrays_since(absl::InfinitePast());
  return table.Text();
}

std::string RankTable(const v1::Job& job, bool wide) {
  std::vector<std::string> heads = {"RANK", "NODE", "LOCAL", "SLOTS", "PHASE",
                                    "PID",  "STEP", "SEEN",  "EXIT"};
  if (wide) heads.insert(heads.begin() + 7, {"COLLECTIVES", "ACTIVITY"});
  Table table(heads);
  for (const v1::RankStatus& rank : job.ranks()) {
    const v1::Progress& progress = rank.progress();
    std::vector<std::string> row = {absl::StrCat(rank.rank()),
                                    rank.node(),
                                    absl::StrCat(rank.local_rank()),
                                    absl::StrJoin(rank.slots(), ","),
                                    PhaseWord(rank.phase()),
                                    rank.pid() > 0 ? absl::StrCat(rank.pid()) : "",
                                    progress.step() > 0 ? absl::StrCat(progress.step()) : "",
                                    rank.has_last_seen() ? Age(FromProto(rank.last_seen())) : "",
                                    ExitCell(job, rank)};
    if (wide) {
      const uint64_t collectives = progress.collective_sequence();
      row.insert(row.begin() + 7,
                 {collectives > 0 ? absl::StrCat(collectives) : "", PhaseText(progress)});
    }
    table.AddRow(std::move(row));
  }
  return table.Text();
}

std::string OmittedFailuresText(const v1::Job& job) {
  const uint32_t omitted = job.past_failures_omitted();
  if (omitted == 0) return "";
  return absl::StrCat(
      omitted,
      omitted == 1 ? " more failure, between these, is" : " more failures, between these, are",
      " no longer kept");
}

std::string ConsequencesText(const v1::Job& job) {
  const v1::FirstFailure& failure = job.first_failure();
  if (failure.generation() != job.generation()) return "";
  int stopped = 0, failed = 0;
  for (const v1::RankStatus& rank : job.ranks()) {
    if ((failure.has_rank() && rank.rank() == failure.rank()) || !rank.has_exit()) continue;
    if (rank.exit().stopped_by_worker()) {
      ++stopped;
    } else if (rank.exit().signal() != 0 || rank.exit().exit_code() != 0) {
      ++failed;
    }
  }
  const auto ranks = [](int count) {
    return absl::StrCat(count, " other rank", count == 1 ? "" : "s");
  };
  std::string text;
  if (stopped > 0) {
    text = absl::StrCat(ranks(stopped), stopped == 1 ? " was" : " were", " stopped because of it");
  }
  if (failed > 0) {
    absl::StrAppend(&text, text.empty() ? "" : "; ", ranks(failed), " failed as a consequence");
  }
  return text.empty() ? "" : text + ".";
}

uint32_t WorldSize(const v1::Job& job) {
  return job.world_size() > 0 ? job.world_size() : spec::MaxWorldSize(job.spec());
}

std::string DurationText(const v1::Job& job, absl::Time now) {
  if (!job.has_start_time()) return "";
  const absl::Time end = job.has_finish_time() ? FromProto(job.finish_time()) : now;
  return Age(end - FromProto(job.start_time()));
}

std::string ProgressText(const v1::Job& job) {
  const v1::Progress& progress = job.progress();
  if (progress.step() == 0) return PhaseText(progress);
  std::vector<std::string> parts;
  const bool other_phase = progress.phase() != "training" && !progress.phase().empty();
  if (other_phase) parts.push_back(PhaseText(progress));
  parts.push_back(progress.total_steps() > 0
                      ? absl::StrCat("step ", progress.step(), "/", progress.total_steps())
                      : absl::StrCat("step ", progress.step()));
  if (job.spec().has_train()) {
    parts.push_back(absl::StrFormat("epoch %.2f/%g", progress.epoch(),
                                    std::round(100 * TotalEpochs(job)) / 100));
  }
  // A command may report steps without a loss.
  if (job.spec().has_train() || progress.loss() != 0) {
    parts.push_back(absl::StrFormat("loss %.4f", progress.loss()));
  }
  if (progress.train_accuracy() > 0) {
    parts.push_back(absl::StrFormat("accuracy %.4f", progress.train_accuracy()));
  }
  if (progress.loss_scale() > 0) {
    parts.push_back(LossScaleText(progress.loss_scale(), progress.skipped_steps()));
  }
  if (progress.images_per_second() > 0) {
    parts.push_back(absl::StrCat(
        Grouped(static_cast<uint64_t>(std::llround(std::min(progress.images_per_second(), 1e15)))),
        " images/s"));
  }
  // Without the phase's end, the time left would cover only the steps.
  if (progress.has_time_left() && (!other_phase || progress.phase_total() > 0)) {
    parts.push_back(absl::StrCat(Age(FromProto(progress.time_left())), " left"));
  }
  return absl::StrJoin(parts, "  ");
}

std::string FailureText(const v1::FirstFailure& failure) {
  if (!failure.message().empty()) return absl::StrCat(failure.reason(), ": ", failure.message());
  std::vector<std::string> parts;
  if (failure.has_rank()) parts.push_back(absl::StrCat("rank ", failure.rank()));
  if (!failure.node().empty()) {
    parts.push_back(absl::StrCat(parts.empty() ? "node " : "on ", failure.node()));
  }
  if (failure.has_exit()) parts.push_back(ExitText(failure.exit()));
  if (parts.empty()) return failure.reason();
  return absl::StrCat(failure.reason(), ": ", absl::StrJoin(parts, " "));
}

std::string FailureDetailText(const v1::FirstFailure& failure, bool with_output) {
  std::string out;
  const v1::ExitInfo& exit = failure.exit();
  // Usually the failure's message contains it already.
  if (!absl::StrContains(failure.message(), exit.failure().message())) {
    absl::StrAppend(&out, "  error reported by the rank");
    if (!exit.failure().phase().empty()) absl::StrAppend(&out, ", in ", exit.failure().phase());
    absl::StrAppend(&out, ": ", Printable(exit.failure().message()), "\n");
  }
  const absl::string_view tail = absl::StripSuffix(exit.stderr_tail(), "\n");
  if (!with_output || tail.empty()) return out;
  // The last line that the trainer logs, "E20260105 …", is the error that it reports.
  const absl::string_view last = tail.substr(tail.rfind('\n') + 1);
  const bool logged = last.size() > 1 && last[0] == 'E' && absl::ascii_isdigit(last[1]);
  if (logged && !exit.failure().message().empty() &&
      absl::StrContains(last, exit.failure().message())) {
    return out;
  }
  absl::StrAppend(&out, "  last lines of its output:\n");
  for (const absl::string_view line : absl::StrSplit(tail, '\n')) {
    absl::StrAppend(&out, "    ", Printable(line), "\n");
  }
  return out;
}

std::string WaitsText(const v1::Job& job) {
  std::vector<std::string> waits;
  for (const v1::Wait& wait : job.waits()) {
    std::vector<std::string> missing;
    for (const v1::WaitedFor& who : wait.missing()) {
      if (missing.size() == kNamedWaits) {
        missing.push_back(absl::StrCat(wait.missing_size() - kNamedWaits, " more"));
        break;
      }
      std::string text = who.has_rank() ? absl::StrCat("rank ", who.rank()) : "";
      if (!who.node().empty()) {
        absl::StrAppend(&text, text.empty() ? "" : " on ", who.node());
      }
      if (!who.reason().empty()) absl::StrAppend(&text, text.empty() ? "" : ": ", who.reason());
      missing.push_back(text);
    }
    waits.push_back(missing.empty()
                        ? wait.what()
                        : absl::StrCat(wait.what(), " (", absl::StrJoin(missing, "; "), ")"));
  }
  return absl::StrJoin(waits, ", ");
}

std::string SummaryText(const v1::TrainSummary& summary) {
  if (summary.already_complete()) {
    return absl::StrCat("already complete at step ", Grouped(summary.steps()),
                        "; nothing was trained");
  }
  std::string text = absl::StrFormat(
      "%s steps, %.4g epochs, %s images/s, first step after %s, final loss %.4f",
      Grouped(summary.steps()), summary.epochs(),
      Grouped(
          static_cast<uint64_t>(std::llround(std::clamp(summary.images_per_second(), 0.0, 1e15)))),
      Elapsed(absl::Seconds(summary.seconds_to_first_step())), summary.final_loss());
  if (summary.test_loss() > 0)
    absl::StrAppendFormat(&text, ", test loss %.4f", summary.test_loss());
  if (summary.stall_seconds() > 0) {
    absl::StrAppend(&text, ", waited ", Elapsed(absl::Seconds(summary.stall_seconds())),
                    " for data");
    if (summary.data_wait_seconds() > kLoaderLimitShare * summary.median_step_seconds()) {
      absl::StrAppend(&text, " (the loader limits: raise train.loader.threads)");
    }
  }
  absl::StrAppend(&text, StepSharesText(summary), StepPhasesText(summary), StagesText(summary));
  // The default precision, O0, is not mentioned.
  if (!summary.precision().empty() && !absl::StartsWith(summary.precision(), "O0")) {
    absl::StrAppend(&text, ", ", Printable(summary.precision()));
  }
  if (!summary.device().empty() && summary.device() != "cpu") {
    absl::StrAppend(&text, ", on ", Printable(summary.device()));
  }
  if (summary.loss_scale() > 0) {
    absl::StrAppend(&text, ", ", LossScaleText(summary.loss_scale(), summary.skipped_steps()));
  }
  if (summary.peak_memory_bytes() > 0) {
    absl::StrAppend(&text, ", peak memory ", Bytes(summary.peak_memory_bytes()));
  }
  if (summary.differing_replicas() > 0) {
    absl::StrAppend(&text, "; WARNING: ", summary.differing_replicas(),
                    summary.differing_replicas() == 1 ? " rank" : " ranks",
                    " ended with weights that differ from rank 0's");
  }
  return text;
}

}  // namespace muster::cli
