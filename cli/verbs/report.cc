// `muster report`.
#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "cli/context.h"
#include "cli/exit_code.h"
#include "cli/output/json.h"
#include "cli/text/report_text.h"
#include "cli/verb.h"
#include "nlohmann/json.hpp"

namespace muster::cli {
namespace {

int Report(Context& context, uint32_t days) {
  ClusterClient client(context.client_options());
  const absl::StatusOr<v1::GetReportResponse> report = client.GetReport(days);
  if (!report.ok()) return context.Fail(report.status());
  if (context.structured()) {
    nlohmann::ordered_json json = ToJson(*report);
    json.erase("next_page_token");
    context.Print(json);
  } else if (context.output == Output::kName) {
    for (const auto& owner : report->owners()) {
      context.console.Out(absl::StrCat(owner.owner(), "\n"));
    }
  } else {
    context.console.Out(ReportText(*report, context.output == Output::kWide));
  }
  return kExitSuccess;
}

}  // namespace

void AddReportVerb(CLI::App& app, Context& context) {
  Verb& verb = AddVerb(
      app, "report", kJobVerbs,
      {.summary = "Report usage by owner, utilization and waits",
       .usage = "[OPTIONS]",
       .paragraphs = {"Per owner: hours of CPU and GPU slots, jobs that were submitted, that "
                      "failed, were cancelled and timed out, and the median and 95th percentile of "
                      "the time from submission to the first start. Utilization is the share of "
                      "the time of all present slots in which they were in use.",
                      "GOODPUT is the productive share of the slot hours of jobs. The second table "
                      "shows what the others were spent on: starting, preparing DATA, steps that "
                      "were REDONE, EVALuation, checkpoints (STALL), RECOVERY from failures, lost "
                      "NODES and failed launches, REQUEUEs and preemptions, and STOPPING."},
       .examples = {{"muster report", "the last 7 days, today included"},
                    {"muster report --days 30 -o json | jq .owners", "a month, as JSON"}}});
  auto days = std::make_shared<uint32_t>(7);
  verb.add_option("--days", *days, "Number of days, today included")
      ->type_name("N")
      ->check(AboveZero)
      ->capture_default_str();
  SetAction(verb, context, days, Report);
}

}  // namespace muster::cli
