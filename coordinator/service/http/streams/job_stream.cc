#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status.h"
#include "coordinator/core/owners/visibility.h"
#include "coordinator/service/http/json/job_json.h"
#include "coordinator/service/http/json/json_text.h"
#include "coordinator/service/http/streams/core_query.h"
#include "coordinator/service/http/streams/line_delta.h"
#include "coordinator/service/http/streams/streams.h"

namespace muster::service {
namespace {

constexpr absl::Duration kCurvesAge = absl::Seconds(2);
constexpr absl::Duration kEnvironmentAge = absl::Seconds(5);
constexpr size_t kEventsShown = 200;

// A job, and whether the viewer may see what is private of it.
struct Viewed {
  JobId id;
  bool all = false;
};

absl::StatusOr<std::string> DetailsJson(CoreLoop& loop, const Viewed& viewed) {
  return AskCore<std::string>(
      loop, [viewed](core::Core& core, const Time& now) -> absl::StatusOr<std::string> {
        ASSIGN_OR_RETURN(v1::Job job, core.GetJob(viewed.id, /*detailed=*/true, now));
        if (!viewed.all) core::RemovePrivate(job);
        return absl::StrCat("{\"job\":", JobJson(job), ",\"ranks\":", RanksJson(job), "}");
      });
}

// One point per line.
absl::StatusOr<std::string> CurveLines(CoreLoop& loop, const Viewed& viewed) {
  return AskCore<std::string>(
      loop, [id = viewed.id](core::Core& core, const Time& now) -> absl::StatusOr<std::string> {
        ASSIGN_OR_RETURN(const v1::Curves curves, core.GetCurves(id, /*max_points=*/0));
        std::vector<std::string> lines;
        for (const v1::CurvePoint& point : curves.points()) lines.push_back(CurvePointJson(point));
        return absl::StrJoin(lines, "\n");
      });
}

// One event per line, the newest last.
absl::StatusOr<std::string> EventLines(CoreLoop& loop, const Viewed& viewed) {
  return AskCore<std::string>(
      loop, [viewed](core::Core& core, const Time& now) -> absl::StatusOr<std::string> {
        ASSIGN_OR_RETURN(std::vector<v1::JobEvent> events, core.ListEvents(viewed.id, 0));
        std::vector<std::string> lines;
        const size_t first = events.size() > kEventsShown ? events.size() - kEventsShown : 0;
        for (size_t i = first; i < events.size(); ++i) {
          if (!viewed.all) core::RemovePrivate(events[i]);
          lines.push_back(EventJson(events[i]));
        }
        return absl::StrJoin(lines, "\n");
      });
}

absl::StatusOr<std::string> HistoryJson(CoreLoop& loop, const Viewed& viewed) {
  return AskCore<std::string>(
      loop, [id = viewed.id](core::Core& core, const Time& now) -> absl::StatusOr<std::string> {
        ASSIGN_OR_RETURN(const v1::JobHistory history, core.GetJobHistory(id, 1, now));
        return EnvironmentJson(history);
      });
}

// The job as the viewer may see it: {"spec": …, "private": whether it is complete}.
absl::StatusOr<std::string> SpecText(CoreLoop& loop, const Viewed& viewed) {
  return AskCore<std::string>(
      loop, [viewed](core::Core& core, const Time& now) -> absl::StatusOr<std::string> {
        ASSIGN_OR_RETURN(v1::Job job, core.GetJob(viewed.id, /*detailed=*/false, now));
        if (!viewed.all) core::RemovePrivate(job);
        return absl::StrCat("{\"private\":", viewed.all ? "true" : "false",
                            ",\"spec\":", SpecJson(job.spec()), "}");
      });
}

absl::StatusOr<Viewed> Resolve(CoreLoop& loop, const core::Actor& viewer, const std::string& name) {
  return AskCore<Viewed>(loop,
                         [viewer, name](core::Core& core, const Time&) -> absl::StatusOr<Viewed> {
                           ASSIGN_OR_RETURN(const JobId id, core.ResolveJob(name));
                           return Viewed{id, core::MayUse(*core.ListEntry(id), viewer)};
                         });
}

}  // namespace

void StreamJob(PageSources& sources, const core::Actor& viewer, const std::string& name,
               EventWriter& out) {
  CoreLoop& loop = sources.loop;
  const absl::StatusOr<Viewed> viewed = Resolve(loop, viewer, name);
  if (!viewed.ok()) {
    out.SendProblem(viewed.status());
    return;
  }
  // Viewers who see the same share the text.
  const auto get = [&](const char* kind, absl::Duration max_age, auto render) {
    return sources.texts.Get(
        absl::StrCat(viewed->all ? "private " : "", kind, "/", viewed->id.value()), max_age,
        [&] { return render(loop, *viewed); });
  };
  const absl::StatusOr<std::string> spec = SpecText(loop, *viewed);
  if (spec.ok()) out.Send("spec", *spec);
  TextCache::Text details, environment;
  LineDelta curves, events;
  do {
    const auto job = get("job", kPageInterval, DetailsJson);
    out.SendIfNew("job", job, details);
    if (absl::IsNotFound(job.status())) return;  // removed
    if (const auto lines = get("curves", kCurvesAge, CurveLines); lines.ok()) {
      curves.Send("curves", *lines, out);
    }
    if (const auto lines = get("events", kPageInterval, EventLines); lines.ok()) {
      events.Send("events", *lines, out);
    }
    out.SendIfNew("environment", get("environment", kEnvironmentAge, HistoryJson), environment);
    out.Tick();
  } while (sources.ticker.Wait(out));
}

}  // namespace muster::service
