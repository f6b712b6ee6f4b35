#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/status.h"
#include "coordinator/core/owners/visibility.h"
#include "coordinator/service/http/json/job_json.h"
#include "coordinator/service/http/json/json_text.h"
#include "coordinator/service/http/streams/core_query.h"
#include "coordinator/service/http/streams/streams.h"

namespace muster::service {
namespace {

constexpr size_t kJobsCompared = 32;
constexpr size_t kPointsPerJob = 128;
constexpr absl::Duration kComparisonAge = absl::Seconds(2);

// {"job": …, "curve": points}
std::string ComparedJson(const core::Core& core, const core::Actor& viewer, v1::Job job) {
  core::HidePrivate(viewer, job);
  std::vector<std::string> points;
  const absl::StatusOr<v1::Curves> curves = core.GetCurves(JobId(job.job_id()), kPointsPerJob);
  if (curves.ok()) {
    for (const v1::CurvePoint& point : curves->points()) points.push_back(CurvePointJson(point));
  }
  return absl::StrCat("{\"job\":", JobJson(job), ",\"curve\":[", absl::StrJoin(points, ","), "]}");
}

// {"title", "total": number of jobs, "jobs": the first ones of them}
absl::StatusOr<std::string> ComparisonJson(core::Core& core, const core::Actor& viewer,
                                           const std::string& names, const std::string& array,
                                           const Time& now) {
  std::string title = "Comparison";
  size_t total = 0;
  std::vector<std::string> jobs;
  if (!array.empty()) {
    ASSIGN_OR_RETURN(const v1::JobArray found, core.GetArray(array));
    title = absl::StrCat("Array ", found.array_id());
    const std::vector<JobId> tasks = core.ListTasks(found.array_id());
    total = tasks.size();
    for (const JobId& id : tasks) {
      if (jobs.size() == kJobsCompared) break;
      ASSIGN_OR_RETURN(v1::Job task, core.GetJob(id, /*detailed=*/false, now));
      jobs.push_back(ComparedJson(core, viewer, std::move(task)));
    }
  } else {
    const std::vector<std::string> ids = absl::StrSplit(names, ',', absl::SkipEmpty());
    total = ids.size();
    for (const std::string& name : ids) {
      if (jobs.size() == kJobsCompared) break;
      ASSIGN_OR_RETURN(const JobId id, core.ResolveJob(name));
      ASSIGN_OR_RETURN(v1::Job job, core.GetJob(id, /*detailed=*/false, now));
      jobs.push_back(ComparedJson(core, viewer, std::move(job)));
    }
  }
  return JsonObject()
      .Add("title", title)
      .AddRaw("total", absl::StrCat(total))
      .AddRaw("jobs", absl::StrCat("[", absl::StrJoin(jobs, ","), "]"))
      .Take();
}

}  // namespace

void StreamComparison(PageSources& sources, const core::Actor& viewer, const std::string& jobs,
                      const std::string& array, EventWriter& out) {
  // Names of users have no line breaks.
  const std::string user = viewer.is_admin ? "admin" : absl::StrCat("user ", viewer.name);
  const std::string key = absl::StrCat("comparison/", user, "\n", array, "/", jobs);
  TextCache::Text sent;
  do {
    const auto text = sources.texts.Get(key, kComparisonAge, [&] {
      return AskCore<std::string>(sources.loop, [=](core::Core& core, const Time& now) {
        return ComparisonJson(core, viewer, jobs, array, now);
      });
    });
    out.SendIfNew("comparison", text, sent);
    out.Tick();
  } while (sources.ticker.Wait(out));
}

}  // namespace muster::service
