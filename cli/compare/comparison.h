// Compares jobs: differences of their specs and environments, and their results.
#ifndef MUSTER_CLI_COMPARE_COMPARISON_H_
#define MUSTER_CLI_COMPARE_COMPARISON_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "nlohmann/json.hpp"
#include "proto/muster/v1/job.pb.h"

namespace muster::cli {

// A property of the jobs. `values` has an element per job; null: the job does not have it.
struct ComparedRow {
  std::string name;
  std::vector<nlohmann::ordered_json> values;

  bool Differs() const;
};

// The jobs' curves at one step. Elements are null for jobs without points around the step.
struct CurveRow {
  uint64_t step = 0;
  std::vector<nlohmann::ordered_json> loss;
  std::vector<nlohmann::ordered_json> test_accuracy;  // of the latest evaluation before the step
};

struct Comparison {
  std::vector<v1::Job> jobs;
  std::vector<ComparedRow> spec;              // fields that some of the jobs have, as dotted paths
  std::vector<ComparedRow> environment;       // software and machines
  std::vector<ComparedRow> results;           // units are part of the names
  std::vector<ComparedRow> seconds_by_cause;  // wall time; docs/operate/goodput.md
  std::vector<CurveRow> curves;               // at steps that all jobs with curves have reached
};

// `curve_steps`: maximum number of elements of `curves`. `now` ends the duration of running jobs.
Comparison Compare(absl::Span<const v1::JobHistory> histories, size_t curve_steps, absl::Time now);

// Everything: spec and environment have only rows that differ, unless `with_equal`.
nlohmann::ordered_json ComparisonJson(const Comparison& comparison, bool with_equal);

}  // namespace muster::cli

#endif  // MUSTER_CLI_COMPARE_COMPARISON_H_
