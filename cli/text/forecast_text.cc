#include "cli/text/forecast_text.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "cli/output/words.h"
#include "cli/text/blocker_text.h"
#include "common/proto_time.h"

namespace muster::cli {
namespace {

std::string EstimateLine(const v1::Forecast& forecast, absl::Time now) {
  const absl::string_view basis = forecast.estimate_basis();
  if (!forecast.has_estimated_start_time()) {
    const absl::string_view reason = absl::StripPrefix(basis, "unknown: ");
    return absl::StrCat("start time unknown", reason.empty() ? "" : ": ", reason);
  }
  const absl::Time start = FromProto(forecast.estimated_start_time());
  std::string line = "would start any moment";
  if (start > now) {
    line = absl::StrCat("would start within ", Age(start - now), ", at ",
                        absl::FormatTime("%H:%M:%S", start, absl::LocalTimeZone()));
  }
  if (!basis.empty()) absl::StrAppend(&line, "; estimated from ", basis);
  return line;
}

}  // namespace

std::string ForecastText(const v1::Forecast& forecast, absl::Time now) {
  std::string out;
  if (forecast.starts_now()) {
    out = absl::StrCat("would start now", forecast.nodes().empty() ? "" : " on ",
                       Printable(absl::StrJoin(forecast.nodes(), ", ")));
  } else {
    out = forecast.queue_position() > 0
              ? absl::StrCat("would wait at position ", forecast.queue_position(), " of the queue")
              : "would wait in the queue";
    if (!forecast.blockers().empty()) out += ":";
    out += "\n";
    for (const v1::WaitedFor& blocker : forecast.blockers()) out += BlockerLines(blocker);
    out += Printable(EstimateLine(forecast, now));
  }
  if (!forecast.preempted_job_ids().empty()) {
    absl::StrAppend(&out, "\nwould preempt ",
                    Printable(absl::StrJoin(forecast.preempted_job_ids(), ", ")));
  }
  return out;
}

}  // namespace muster::cli
