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
#include "common/process/find_program.h"
#include "nlohmann/json.hpp"
#include "spec/spec.h"

namespace muster::cli {
namespace {

struct ExplainPlanFlags {
  std::string path;
  std::vector<std::string> overrides;
  uint32_t ranks = 0;  // 0: the spec's number of ranks
  bool time = false;
  bool kernels = false;
  std::string device;
  std::string rank_binary;
};

void PrintReport(Context& context, const ExplainPlanFlags& flags, const v1::PlanReport& report) {
  if (context.structured()) {
    context.Print(ToJson(report));
  } else if (context.output == Output::kName) {
    for (const v1::PlanOperation& operation : report.operations()) {
      context.console.Out(absl::StrCat(operation.name(), "\n"));
    }
  } else {
    const std::string table = flags.kernels ? PlanKernelTable(report)
                                            : PlanTable(report, context.output == Output::kWide);
    context.console.Out(absl::StrCat(table, "\n", PlanTotals(report)));
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
        absl::InvalidArgumentError("the spec has no train section: only train jobs have a plan"),
        kExitBadSpec);
  }
  const absl::StatusOr<std::string> program =
      FindProgram(flags.rank_binary, "trainer", "muster-rank", "--rank-binary");
  if (!program.ok()) return context.Fail(program.status(), kExitNoInput);
  PlanRequest request;
  request.ranks = flags.ranks > 0 ? flags.ranks : spec::MaxWorldSize(*spec);
  request.time = flags.time;
  request.kernels = flags.kernels;
  request.device = flags.device;
  request.spec = *std::move(spec);
  const absl::StatusOr<v1::PlanReport> report = RequestPlan(*program, request);
  if (!report.ok()) return context.Fail(report.status(), PlanExitCode(report.status()));
  PrintReport(context, flags, *report);
  return kExitSuccess;
}

}  // namespace

void AddExplainPlanVerb(CLI::App& group, Context& context) {
  Verb& verb = AddVerb(
      group, "explain-plan", kSpecVerbs,
      {.summary = "Show how a rank computes the spec's model",
       .usage = "FILE [OPTIONS]",
       .paragraphs =
           {"Prints one line per operation of the model, in forward order: the layers that it "
            "fuses, the input and output shapes of one sample, the kernel chosen for this "
            "machine's CPU or GPU, its parameters, the size of its output and its offset in the "
            "rank's memory arena, and its floating-point operations in the forward pass of one "
            "step. BYTES and FLOPS are those of the rank with the largest share of the batch.",
            "With --time, steps run on random data, and the table adds each operation's forward "
            "and backward time in microseconds (medians over the steps) and its share of the step. "
            "The input pipeline and communication are not included.",
            "With --device h100 or h200, which need no GPU, the table adds the work of a training "
            "step on that GPU: the nodes of its captured CUDA graph (kernels, copies and memsets), "
            "the bytes that forward and backward read and write, FLOPs, and the microseconds that "
            "the kernels need at 90 % of the GPU's published rates, each limited by its memory "
            "traffic or by its arithmetic. A call of cuDNN or cuBLASLt counts as one node. Rows "
            "for work outside the operations have no backward pass.",
            "With --kernels, the table has one row per node instead, in the order of a step, with "
            "the kernel's name as a profiler prints it, but without namespaces, and its bytes, "
            "FLOPs and microseconds, to be compared with a profile line by line. The time of an "
            "operation that takes several nodes is that of the first. With -o json, the work of "
            "each operation lists its kernels.",
            "Neither a coordinator nor data is needed, except the folder of an image_folder, whose "
            "classes are counted."},
       .exits = {{"0", "The plan is on stdout"},
                 {"1", "--device cuda was given, but this machine has no usable GPU"},
                 {"66", "FILE, the image folder or muster-rank cannot be read"},
                 {"78", "The spec is invalid, or its layers' shapes do not match"}},
       .examples = {{"muster spec explain-plan job.yaml", "show kernels, memory and operations"},
                    {"muster spec explain-plan job.yaml --time --ranks 4",
                     "measure a step with a quarter of the batch"},
                    {"muster spec explain-plan job.yaml --device h200",
                     "predict a step on an H200, without a GPU"},
                    {"muster spec explain-plan job.yaml --device h200 --kernels",
                     "the same, kernel by kernel"},
                    {"muster spec explain-plan job.yaml --set train.model.name=resnet50 -o json",
                     "another model, as JSON"}}});
  auto flags = std::make_shared<ExplainPlanFlags>();
  AddSpecOptions(verb, flags->path, flags->overrides, /*required=*/true);
  verb.add_flag("--time", flags->time, "Run steps on random data and print times");
  verb.add_flag("--kernels", flags->kernels,
                "Print one row per kernel; with --device h100 or h200, or on such a GPU");
  verb.add_option("--ranks", flags->ranks,
                  "Number of ranks that share the batch (default: the spec's)")
      ->type_name("N")
      ->check(AboveZero);
  verb.add_option("--device", flags->device,
                  "cpu, cuda, h100 or h200 (default: cuda if the spec has device gpu and this "
                  "machine has a GPU, else cpu)")
      ->type_name("DEVICE")
      ->check(OneOf({"cpu", "cuda", "h100", "h200"}));
  verb.add_option("--rank-binary", flags->rank_binary,
                  "Path of muster-rank (default: next to this program)")
      ->type_name("FILE");
  SetAction(verb, context, flags, ExplainPlan);
}

}  // namespace muster::cli
