// The history of jobs' runs, kept beside the jobs themselves: curves, and the
// software and hardware of the nodes. It outlives the nodes and is deleted with
// the job.
//
// A history is written when a generation begins or ends, and at most once a
// minute in between, so that progress reports cost no commits. Bounded in total
// (limits::kHistoryBytesInTotal); beyond that, those of the oldest jobs are
// deleted. Not thread-safe.
#ifndef MUSTER_COORDINATOR_CORE_JOBS_HISTORIES_H_
#define MUSTER_COORDINATOR_CORE_JOBS_HISTORIES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/limits.h"
#include "common/time/time.h"
#include "coordinator/core/context.h"
#include "coordinator/core/jobs/job.h"
#include "proto/muster/v1/job.pb.h"
#include "proto/muster/v1/store.pb.h"

namespace muster::core {

// Loss, accuracy and throughput of a job over its steps, in a bounded number of
// points.
//
// A new point is started for each progress report until there are
// limits::kCurvePoints. Then neighbours are merged in pairs and each new point
// takes twice as many reports, so that points stay evenly spread over the run.
class Curves {
 public:
  Curves() = default;
  // Continues stored curves, whose lists may be damaged: extra elements are
  // ignored.
  explicit Curves(const v1::CurvesRecord& record);

  // Adds rank 0's progress in a generation, reported `age` after the job was
  // submitted. Ignores a report without a completed step, and one whose step
  // the generation has reported before, except for its test accuracy. Returns
  // whether the curves have changed.
  bool Add(const v1::Progress& progress, uint64_t generation, absl::Duration age);

  // At most `max_points` points; 0: all.
  v1::Curves View(size_t max_points = 0) const;
  v1::CurvesRecord ToRecord() const;
  size_t ByteSize() const { return points_.size() * sizeof(Point); }

 private:
  // Values as in CurvePoint.
  struct Point {
    uint64_t step = 0;
    uint64_t generation = 0;
    float seconds = 0;
    float loss = 0;
    float train_accuracy = 0;
    float test_accuracy = 0;
    float images_per_second = 0;
    uint32_t reports = 1;  // merged into it
  };

  // The mean of both, with the step, time, generation and test accuracy of the
  // later one.
  static Point Merge(const Point& earlier, const Point& later);
  // Merges neighbours in pairs. The last of an odd number stays.
  static std::vector<Point> Halve(const std::vector<Point>& points);

  std::vector<Point> points_;  // by step
  uint32_t reports_per_point_ = 1;
  uint64_t reports_ = 0;
};

class Histories {
 public:
  // `max_bytes` is smaller in tests only.
  explicit Histories(Context& context, size_t max_bytes = limits::kHistoryBytesInTotal)
      : context_(context), max_bytes_(max_bytes) {}

  // The job's newest generation begins on these nodes.
  void BeginGeneration(const Job& job, std::vector<v1::NodeEnvironmentRecord> nodes);
  void EndGeneration(const Job& job);
  // Adds the progress that rank 0 of the living generation has reported.
  void AddProgress(const Job& job);

  // Without the job. Empty for a job without a history.
  v1::JobHistory View(const Job& job, size_t max_points) const;

  // ---- Records
  void Restore(const Job& job, const v1::HistoryRecord& record);
  // Removes the history of a job that is being deleted; returns the key of its
  // record, if it has one.
  std::optional<std::string> Remove(const Job& job);
  void WriteChanges();

 private:
  struct History {
    std::string job_id;
    v1::HistoryRecord nodes;  // without the curves
    Curves curves;
    SteadyTime next_write;
    size_t bytes = 0;  // as counted in bytes_
  };
  using Table = std::map<uint64_t, History>;  // by queue sequence number: older
                                              // jobs come first

  // Call after each change.
  void NoteChange(Table::iterator entry);
  void DeleteOldest();

  Context& context_;
  const size_t max_bytes_;
  Table histories_;
  std::set<uint64_t> due_;  // to be written in this step
  size_t bytes_ = 0;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_JOBS_HISTORIES_H_
