#include "coordinator/service/http/json/job_json.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/text/checkpoint_texts.h"
#include "common/text/phase_text.h"
#include "common/time/proto_time.h"
#include "coordinator/core/owners/visibility.h"
#include "coordinator/service/http/json/json_text.h"
#include "google/protobuf/util/json_util.h"

namespace muster::service {
namespace {

constexpr int kRanksShown = 256;
constexpr size_t kRowTextBytes = 200;

double Seconds(const google::protobuf::Timestamp& time) {
  return absl::ToDoubleSeconds(FromProto(time) - absl::UnixEpoch());
}

double Seconds(const google::protobuf::Duration& duration) {
  return absl::ToDoubleSeconds(FromProto(duration));
}

std::string StateName(v1::JobState state) {
  return absl::AsciiStrToLower(v1::JobState_Name(state));
}

// Cuts a text at the beginning of a UTF-8 character.
std::string Shortened(const std::string& text) {
  if (text.size() <= kRowTextBytes) return text;
  size_t end = kRowTextBytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end) + "…";
}

template <typename List, typename Render>
std::string JsonList(const List& list, Render render) {
  return absl::StrCat("[",
                      absl::StrJoin(list, ",",
                                    [&](std::string* out, const auto& element) {
                                      absl::StrAppend(out, render(element));
                                    }),
                      "]");
}

std::string StringJson(const std::string& text) {
  std::string json;
  AppendJsonString(text, json);
  return json;
}

// Fields of a job that rows and pages have in common.
void AddState(const v1::Job& job, JsonObject& json) {
  json.Add("id", job.job_id())
      .Add("name", job.spec().name())
      .Add("owner", job.owner())
      .Add("state", StateName(job.state()))
      .Add("reason", job.reason())
      .Add("generation", uint64_t{job.generation()})
      .Add("restarts", job.restarts())
      .Add("world", uint64_t{job.world_size()})
      .Add("position", job.queue_position())
      .Add("array", job.array_id())
      .Add("submitted", Seconds(job.submit_time()), 15);
  if (job.has_start_time()) json.Add("started", Seconds(job.start_time()), 15);
  if (job.has_finish_time()) json.Add("finished", Seconds(job.finish_time()), 15);
  if (job.slowdown() > 0) json.Add("slowdown", job.slowdown(), 4);
}

void AddProgress(const v1::Job& job, JsonObject& json) {
  const v1::Progress& progress = job.progress();
  json.Add("phase", PhaseText(progress))
      .Add("step", uint64_t{progress.step()})
      .Add("steps", uint64_t{progress.total_steps()})
      .Add("epoch", progress.epoch(), 4)
      .Add("loss", progress.loss())
      .Add("rate", progress.images_per_second())
      .Add("accuracy", progress.test_accuracy());
}

std::string WaitJson(const v1::Wait& wait) {
  return JsonObject()
      .Add("what", wait.what())
      .Add("since", Seconds(wait.since()), 4)
      .AddRaw("missing", JsonList(wait.missing(),
                                  [](const v1::WaitedFor& missing) {
                                    JsonObject json;
                                    if (missing.has_rank()) {
                                      json.AddRaw("rank", absl::StrCat(missing.rank()));
                                    }
                                    return json.Add("node", missing.node())
                                        .Add("reason", missing.reason())
                                        .Add("remedy", missing.remedy())
                                        .Take();
                                  }))
      .Take();
}

std::string FailureJson(const v1::FirstFailure& failure) {
  JsonObject json;
  if (failure.has_rank()) json.AddRaw("rank", absl::StrCat(failure.rank()));
  return json.Add("generation", uint64_t{failure.generation()})
      .Add("reason", failure.reason())
      .Add("node", failure.node())
      .Add("message", failure.message())
      .Add("time", Seconds(failure.time()), 15)
      .Take();
}

std::string GoodputJson(const v1::Goodput& goodput) {
  return JsonObject()
      .Add("ratio", goodput.goodput_ratio(), 4)
      .Add("current", goodput.current_cause())
      .AddRaw("causes", JsonList(goodput.causes(),
                                 [](const v1::Goodput::Cause& cause) {
                                   return JsonObject()
                                       .Add("cause", cause.cause())
                                       .Add("node", cause.node())
                                       .Add("seconds", Seconds(cause.wall_time()))
                                       .Take();
                                 }))
      .Take();
}

std::string SummaryJson(const v1::TrainSummary& summary) {
  return JsonObject()
      .Add("steps", uint64_t{summary.steps()})
      .Add("epochs", summary.epochs())
      .Add("images/s", summary.images_per_second())
      .Add("seconds to first step", summary.seconds_to_first_step())
      .Add("final loss", summary.final_loss())
      .Add("test accuracy", summary.test_accuracy())
      .Add("test loss", summary.test_loss())
      .Add("peak memory bytes", uint64_t{summary.peak_memory_bytes()})
      .Add("parameters", uint64_t{summary.parameters()})
      .Add("strategy", summary.strategy())
      .Add("precision", summary.precision())
      .Add("device", summary.device())
      .Take();
}

bool HasFailed(const v1::RankStatus& rank) {
  return rank.phase() == v1::EXITED &&
         (!rank.has_exit() || rank.exit().signal() != 0 || rank.exit().exit_code() != 0);
}

std::string ExitText(const v1::RankStatus& rank) {
  if (rank.phase() != v1::EXITED) return "";
  if (!rank.has_exit()) return "lost";
  if (rank.exit().out_of_memory()) return "out of memory";
  if (rank.exit().signal() != 0) return absl::StrCat("signal ", rank.exit().signal());
  return absl::StrCat("code ", rank.exit().exit_code());
}

std::string RankJson(const v1::RankStatus& rank) {
  return JsonObject()
      .AddRaw("rank", absl::StrCat(rank.rank()))
      .Add("node", rank.node())
      .AddRaw("slots", JsonList(rank.slots(), [](uint32_t slot) { return absl::StrCat(slot); }))
      .Add("state", absl::AsciiStrToLower(v1::RankPhase_Name(rank.phase())))
      .Add("phase", PhaseText(rank.progress()))
      .Add("step", uint64_t{rank.progress().step()})
      .Add("memory", uint64_t{rank.memory_bytes()})
      .Add("slowdown", rank.slowdown(), 4)
      .Add("exit", ExitText(rank))
      .Add("failed", HasFailed(rank))
      .Add("unkillable", rank.unkillable())
      .Take();
}

}  // namespace

std::string JobRowJson(const v1::Job& job) {
  JsonObject json;
  AddState(job, json);
  v1::Job texts;  // all viewers share the row
  texts.set_reason(job.reason());
  texts.set_message(job.message());
  *texts.mutable_first_failure() = job.first_failure();
  *texts.mutable_progress() = job.progress();
  core::RemovePrivate(texts);
  AddProgress(texts, json);
  const std::string& note = job.unplaceable().empty() ? texts.message() : job.unplaceable();
  return json.Add("note", Shortened(note)).Take();
}

std::string JobJson(const v1::Job& job) {
  JsonObject json;
  AddState(job, json);
  AddProgress(job, json);
  std::string checkpoint = NewestCheckpointPath(job.checkpoint());
  if (checkpoint.empty()) checkpoint = job.checkpoint().dir();
  json.Add("message", job.message())
      .Add("output", job.spec().output())
      .Add("unplaceable", job.unplaceable())
      .Add("checkpoint", checkpoint)
      .Add("checkpoint_failures", CheckpointFailures(job.checkpoint()))
      .Add("hang", job.hang().message())
      .Add("preemptions", job.preemptions())
      .Add("time_left", Seconds(job.progress().time_left()), 4)
      .AddRaw("exit_code", absl::StrCat(job.exit_code()))
      .AddRaw("waits", JsonList(job.waits(), WaitJson))
      .AddRaw("stragglers",
              JsonList(job.stragglers(),
                       [](const v1::Straggler& one) { return StringJson(one.message()); }))
      .AddRaw("warnings", JsonList(job.warnings(), StringJson))
      .AddRaw("values", JsonList(job.array_values(), [](const v1::ArrayValue& value) {
                return JsonObject().Add("field", value.field()).Add("value", value.value()).Take();
              }));
  if (job.has_estimated_start_time()) {
    json.Add("estimate", Seconds(job.estimated_start_time()), 15);
  }
  if (job.has_first_failure()) json.AddRaw("failure", FailureJson(job.first_failure()));
  if (job.has_goodput()) json.AddRaw("goodput", GoodputJson(job.goodput()));
  if (job.has_summary()) json.AddRaw("summary", SummaryJson(job.summary()));
  return json.Take();
}

std::string RanksJson(const v1::Job& job) {
  std::vector<const v1::RankStatus*> ranks;
  for (const v1::RankStatus& rank : job.ranks()) ranks.push_back(&rank);
  const v1::RankStatus* slowest = nullptr;
  for (const v1::RankStatus* const rank : ranks) {
    if (rank->slowdown() > (slowest == nullptr ? 1.0 : slowest->slowdown())) slowest = rank;
  }
  if (ranks.size() > kRanksShown) {
    std::stable_sort(ranks.begin(), ranks.end(),
                     [](const v1::RankStatus* a, const v1::RankStatus* b) {
                       if (HasFailed(*a) != HasFailed(*b)) return HasFailed(*a);
                       if (a->phase() != b->phase()) return a->phase() < b->phase();
                       return a->slowdown() > b->slowdown();
                     });
    ranks.resize(kRanksShown);
  }
  JsonObject json;
  json.AddRaw("total", absl::StrCat(job.ranks_size()));
  if (slowest != nullptr) json.AddRaw("slowest", absl::StrCat(slowest->rank()));
  return json
      .AddRaw("ranks", JsonList(ranks, [](const v1::RankStatus* rank) { return RankJson(*rank); }))
      .Take();
}

std::string CurvePointJson(const v1::CurvePoint& point) {
  const auto value = [](double number) {
    return number == 0 ? std::string("null") : JsonNumber(number);
  };
  return absl::StrCat("[", point.step(), ",", JsonNumber(point.seconds()), ",", value(point.loss()),
                      ",", value(point.train_accuracy()), ",", value(point.test_accuracy()), ",",
                      value(point.images_per_second()), "]");
}

std::string EventJson(const v1::JobEvent& event) {
  return JsonObject()
      .Add("sequence", uint64_t{event.sequence()})
      .Add("time", Seconds(event.time()), 15)
      .Add("generation", uint64_t{event.generation()})
      .Add("type", event.type())
      .Add("message", event.message())
      .Take();
}

std::string SpecJson(const v1::JobSpec& spec) {
  v1::JobSpec shown = spec;
  shown.clear_files();
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string json;
  const auto status = google::protobuf::util::MessageToJsonString(shown, &json, options);
  return status.ok() ? json : "{}";
}

std::string EnvironmentJson(const v1::JobHistory& history) {
  return JsonObject()
      .Add("coordinator", history.coordinator_version())
      .Add("count", history.node_count())
      .AddRaw("nodes", JsonList(history.nodes(),
                                [](const v1::NodeEnvironment& node) {
                                  return JsonObject()
                                      .Add("node", node.node())
                                      .Add("version", node.software_version())
                                      .Add("cpus", node.cpu_count())
                                      .Add("memory", uint64_t{node.memory_bytes()})
                                      .Add("devices", absl::StrJoin(node.devices(), ", "))
                                      .Add("driver", node.driver_version())
                                      .Take();
                                }))
      .Take();
}

}  // namespace muster::service
