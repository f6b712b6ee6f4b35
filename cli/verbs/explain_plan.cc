// `muster spec explain-plan`.
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "cli/context.h"
#include "cli/exit_code.h"
#include "cli/output/json.h"
#include "cli/spec/job_options.h"
#include "cli/spec/plan_process.h"
#include "cli/spec/spec_file.h"
#include "cli/text/plan_text.h"
#include "cli/verb.h"
#include "common/find_program.h"
#include "nlohmann/json.hpp"
#include "spec/spec.h"

namespace muster::cli {
namespace {

struct ExplainPlanFlags {
  std::string path;
  std::vector<std::string> overrides;
  uint32_t ranks = 0;  // 0: as many as the spec has
  bool time = false;
  std::string device;
  std::string rank_binary;
};

void PrintReport(Context& context, const v1::PlanReport& report) {
  if (context.structured()) {
    context.Print(ToJson(report));
  } else if (context.output == Output::kName) {
    for (const v1::PlanOperation& operation : report.operations()) {
      context.console.Out(absl::StrCat(operation.name(), "\n"));
    }
  } else {
    context.console.Out(
        absl::StrCat(PlanTable(report, context.output == Output::kWide), "\n", PlanTotals(report)));
  }
}

int ExplainPlan(Context& context, const ExplainPlanFlags& flags) {
  absl::StatusOr<v1::JobSpec> spec = ReadSpecFile(flags.path, flags.overrides);
  if (!spec.ok()) return context.Fail(spec.status(), SpecExitCode(spec.status()));
  spec::ApplyDefaults(*spec);
  const absl::Status valid = spec::Validate(*spec);
  if (!valid.ok()) return context.Fail(valid, kExitBadSpec);
  if (!spec->has_train()) {
    return context.Fail(
        absl::InvalidArgumentError("a command job has no plan: the spec has no train"),
        kExitBadSpec);
  }
  const absl::StatusOr<std::string> program =
      FindProgram(flags.rank_binary, "trainer", "muster-rank", "--rank-binary");
  if (!program.ok()) return context.Fail(program.status(), kExitNoInput);
  PlanQuestion question;
  question.ranks = flags.ranks > 0 ? flags.ranks : spec::MaxWorldSize(*spec);
  question.time = flags.time;
  question.device = flags.device;
  question.spec = *std::move(spec);
  const absl::StatusOr<v1::PlanReport> report = AskForPlan(*program, question);
  if (!report.ok()) return context.Fail(report.status(), PlanExitCode(report.status()));
  PrintReport(context, *report);
  return kExitSuccess;
}

}  // namespace

void AddExplainPlanVerb(CLI::App& group, Context& context) {
  Verb& verb = AddVerb(
      group, "explain-plan", kSpecVerbs,
      {.summary = "Show how a rank computes the spec's model",
       .usage = "FILE [OPTIONS]",
       .paragraphs =
           {"One line for each operation of a step, in the order of forward: the layers that it "
            "computes together, what goes in and comes out of one row, the kernel that this "
            "machine's processor or GPU has for it, its parameters, the bytes of its output and "
            "their "
            "place in the rank's one block of memory, and its floating-point operations in one "
            "step forward. BYTES and FLOPS are of the rank with the largest share of the batch.",
            "With --time, steps are run on random data: forward and backward of each operation in "
            "microseconds, medians over the steps, and its share of the step. Neither the input "
            "pipeline nor communication is in there.",
            "Needs neither a coordinator nor data, but for the classes of an image_folder."},
       .exits = {{"0", "The plan is on stdout"},
                 {"1", "--device cuda, and no GPU of this machine can be used"},
                 {"66", "FILE, the image folder or muster-rank cannot be read"},
                 {"78", "The spec is wrong, or its layers do not fit together"}},
       .examples = {{"muster spec explain-plan job.yaml", "kernels, memory and operations"},
                    {"muster spec explain-plan job.yaml --time --ranks 4",
                     "where the time of a step goes with a quarter of the batch"},
                    {"muster spec explain-plan job.yaml --set train.model.name=resnet50 -o json",
                     "another model, for a program"}}});
  auto flags = std::make_shared<ExplainPlanFlags>();
  AddSpecOptions(verb, flags->path, flags->overrides, /*required=*/true);
  verb.add_flag("--time", flags->time, "Run steps on random data and show their times");
  verb.add_option("--ranks", flags->ranks, "Divide the batch among so many, not the spec's own")
      ->type_name("N")
      ->check(AboveZero);
  verb.add_option("--device", flags->device,
                  "cpu or cuda; without it the GPU where the spec has device gpu and this machine "
                  "one, else cpu")
      ->type_name("DEVICE")
      ->check(OneOf({"cpu", "cuda"}));
  verb.add_option("--rank-binary", flags->rank_binary, "Instead of muster-rank beside this program")
      ->type_name("FILE");
  verb.callback([&context, flags] {
    context.action = [&context, flags] { return ExplainPlan(context, *flags); };
  });
}

}  // namespace muster::cli
