#include "cli/text/plan_text.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/output/table.h"
#include "cli/output/words.h"

namespace muster::cli {
namespace {

std::string ShapeText(const v1::PlanShape& shape) {
  return absl::StrCat(shape.height(), "x", shape.width(), "x", shape.channels());
}

std::string ShapesText(const google::protobuf::RepeatedPtrField<v1::PlanShape>& shapes) {
  std::vector<std::string> texts;
  for (const v1::PlanShape& shape : shapes) texts.push_back(ShapeText(shape));
  return absl::StrJoin(texts, " + ");
}

// "1.82 G".
std::string Scaled(double number) {
  for (const char* unit : {"", " k", " M", " G", " T"}) {
    if (number < 1000) return absl::StrFormat("%.3g%s", number, unit);
    number /= 1000;
  }
  return absl::StrFormat("%.3g P", number);
}

// "float32 > bfloat16" if an input has another type than the output.
std::string TypesText(const v1::PlanOperation& operation) {
  for (const std::string& input : operation.input_dtypes()) {
    if (input != operation.dtype()) return absl::StrCat(input, " > ", operation.dtype());
  }
  return operation.dtype();
}

std::string Microseconds(double us) { return absl::StrFormat("%.1f", us); }
std::string Percent(double share) { return absl::StrFormat("%.1f%%", share); }

// Columns of PlanReport.work: nodes, bytes of forward and backward, FLOPs, time of forward and
// backward.
const std::vector<std::string> kWorkHeads = {"NODES",      "FORWARD_BYTES", "BACKWARD_BYTES",
                                             "STEP_FLOPS", "FORWARD_US*",   "BACKWARD_US*"};

std::vector<std::string> WorkCells(const v1::PlanPhaseWork& forward,
                                   const v1::PlanPhaseWork& backward) {
  return {Grouped(forward.nodes() + backward.nodes()),
          Bytes(forward.bytes()),
          Bytes(backward.bytes()),
          Scaled(static_cast<double>(forward.flops() + backward.flops())),
          Microseconds(forward.us()),
          Microseconds(backward.us())};
}

std::vector<std::string> OperationRow(const v1::PlanOperation& operation, bool wide, bool worked,
                                      bool timed) {
  std::vector<std::string> row = {operation.name(),
                                  operation.kind(),
                                  ShapesText(operation.inputs()),
                                  ShapeText(operation.output()),
                                  TypesText(operation),
                                  operation.compute_dtype(),
                                  operation.kernel(),
                                  operation.parameters() > 0 ? Grouped(operation.parameters()) : "",
                                  Bytes(operation.activation_bytes()),
                                  Scaled(static_cast<double>(operation.forward_flops())),
                                  Grouped(operation.arena_offset())};
  if (wide) {
    row.insert(row.end(),
               {operation.saved_bytes() > 0 ? Bytes(operation.saved_bytes()) : "",
                operation.workspace_bytes() > 0 ? Bytes(operation.workspace_bytes()) : "",
                operation.evaluation(), operation.recomputed()});
  }
  if (worked) {
    const auto cells = WorkCells(operation.forward_work(), operation.backward_work());
    row.insert(row.end(), cells.begin(), cells.end());
  }
  if (timed) {
    row.push_back(Microseconds(operation.forward_us()));
    row.push_back(Microseconds(operation.backward_us()));
    row.push_back(Percent(operation.share()));
  }
  return row;
}

// Adds rows for the work outside the plan's operations, whose cells begin at column `first`.
void AddWorkRows(const v1::PlanWork& work, size_t first, size_t columns, Table& table) {
  const auto add = [&](const char* name, const v1::PlanPhaseWork& phase) {
    std::vector<std::string> row(columns);
    row[0] = name;
    const auto cells = WorkCells(phase, {});
    std::copy(cells.begin(), cells.end(), row.begin() + static_cast<std::ptrdiff_t>(first));
    table.AddRow(std::move(row));
  };
  add("(model)", work.other());
  add("(objective)", work.objective());
  add("(optimizer)", work.optimizer());
}

// Adds rows for the phases of a step outside the plan's operations, and the sum.
void AddOtherRows(const v1::PlanReport& report, size_t columns, Table& table) {
  const v1::PlanTimes& times = report.times();
  const auto add = [&](const char* name, const std::string& forward, const std::string& backward,
                       double share) {
    std::vector<std::string> row(columns);
    row[0] = name;
    row[columns - 3] = forward;
    row[columns - 2] = backward;
    row[columns - 1] = Percent(share);
    table.AddRow(std::move(row));
  };
  add("(objective)", Microseconds(times.objective_us()), "", times.objective_share());
  add("(optimizer)", Microseconds(times.optimizer_us()), "", times.optimizer_share());
  double forward = times.objective_us() + times.optimizer_us();
  double backward = 0;
  double share = times.objective_share() + times.optimizer_share();
  for (const v1::PlanOperation& operation : report.operations()) {
    forward += operation.forward_us();
    backward += operation.backward_us();
    share += operation.share();
  }
  add("(sum)", Microseconds(forward), Microseconds(backward), share);
}

}  // namespace

std::string PlanTable(const v1::PlanReport& report, bool wide) {
  std::vector<std::string> heads = {"LAYER",  "KIND",       "INPUT", "OUTPUT", "DTYPE", "COMPUTE",
                                    "KERNEL", "PARAMETERS", "BYTES", "FLOPS",  "OFFSET"};
  if (wide) heads.insert(heads.end(), {"SAVED", "WORKSPACE", "EVALUATION", "RECOMPUTED"});
  const bool worked = report.has_work();
  const size_t work_column = heads.size();
  if (worked) heads.insert(heads.end(), kWorkHeads.begin(), kWorkHeads.end());
  const bool timed = report.has_times();
  if (timed) heads.insert(heads.end(), {"FORWARD_US", "BACKWARD_US", "SHARE"});
  Table table(heads);
  for (const v1::PlanOperation& operation : report.operations()) {
    table.AddRow(OperationRow(operation, wide, worked, timed));
  }
  if (worked) AddWorkRows(report.work(), work_column, heads.size(), table);
  if (timed) AddOtherRows(report, heads.size(), table);
  return table.Text();
}

std::string PlanKernelTable(const v1::PlanReport& report) {
  Table table({"LAYER", "PHASE", "KERNEL", "BYTES", "FLOPS", "US*"});
  const auto add = [&](const std::string& layer, const char* phase, const v1::PlanPhaseWork& work) {
    for (const v1::PlanKernel& kernel : work.kernels()) {
      table.AddRow({layer, phase, kernel.name(), Grouped(kernel.bytes()), Grouped(kernel.flops()),
                    Microseconds(kernel.us())});
    }
  };
  for (const v1::PlanOperation& operation : report.operations()) {
    add(operation.name(), "forward", operation.forward_work());
  }
  add("(objective)", "", report.work().objective());
  for (int i = report.operations_size(); i-- > 0;) {
    add(report.operations(i).name(), "backward", report.operations(i).backward_work());
  }
  add("(model)", "", report.work().other());
  add("(optimizer)", "", report.work().optimizer());
  return table.Text();
}

std::string PlanTotals(const v1::PlanReport& report) {
  std::string out = absl::StrCat(
      Grouped(report.parameters()), " parameters; for each image ",
      Scaled(static_cast<double>(report.forward_flops_per_image())), "FLOPs forward and ",
      Scaled(static_cast<double>(report.training_flops_per_image())), "FLOPs in a training step\n");
  absl::StrAppend(&out, report.rows(), " samples", report.ranks() > 1 ? " at most on each of " : "",
                  report.ranks() > 1 ? absl::StrCat(report.ranks(), " ranks") : "");
  if (report.views() > 1) absl::StrAppend(&out, ", ", report.views(), " views of each image");
  if (report.accumulation_steps() > 1) {
    absl::StrAppend(&out, ", ", report.accumulation_steps(), " accumulation steps");
  }
  if (!report.device().empty() && report.device() != "cpu") {
    absl::StrAppend(&out, ", on ", report.device());
  }
  absl::StrAppend(&out, "; activations take ", Bytes(report.arena_bytes()),
                  ", parameters, gradients and optimizer state ", Bytes(report.parameter_bytes()),
                  "\n");
  if (report.activation_bytes_size() > 0) {
    std::vector<std::string> types;
    for (const v1::PlanTypeBytes& type : report.activation_bytes()) {
      types.push_back(absl::StrCat(Bytes(type.bytes()), " of ", type.dtype()));
    }
    absl::StrAppend(&out, "batch and activations: ", absl::StrJoin(types, ", "), "\n");
  }
  if (report.has_work()) {
    const v1::PlanWork& work = report.work();
    absl::StrAppendFormat(&out,
                          "a step has %s graph nodes, moves %s, %.2f times the convolutions' "
                          "outputs, and computes %sFLOPs\n",
                          Grouped(work.total().nodes()), Bytes(work.total().bytes()),
                          work.bytes_per_convolution_output(),
                          Scaled(static_cast<double>(work.total().flops())));
    if (!work.gpu().empty()) {
      absl::StrAppendFormat(
          &out, "(*) at 90 %% of the published rates of an %s: a step of %.2f ms, %s images/s\n",
          absl::AsciiStrToUpper(work.gpu()), work.total().us() / 1000,
          Grouped(static_cast<uint64_t>(std::llround(work.images_per_second()))));
    }
  }
  if (report.has_times()) {
    const v1::PlanTimes& times = report.times();
    absl::StrAppendFormat(
        &out,
        "a step takes %.2f ms, %s images/s on this rank (median of %d steps, without data "
        "loading and communication)\n",
        times.step_us() / 1000,
        Grouped(static_cast<uint64_t>(std::llround(std::min(times.images_per_second(), 1e15)))),
        times.steps());
  }
  return out;
}

}  // namespace muster::cli
