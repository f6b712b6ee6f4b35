// Loss, accuracy and throughput of a job over its steps, in a bounded number of points.
//
// A new point is started for each progress report until there are limits::kCurvePoints. Then
// neighbours are merged in pairs and each new point takes twice as many reports, so that points
// stay evenly spread over the run. Not thread-safe.
#ifndef MUSTER_COORDINATOR_CORE_JOBS_CURVES_H_
#define MUSTER_COORDINATOR_CORE_JOBS_CURVES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "proto/muster/v1/job.pb.h"
#include "proto/muster/v1/store.pb.h"

namespace muster::core {

class Curves {
 public:
  Curves() = default;
  // Continues stored curves, whose lists may be damaged: extra elements are ignored.
  explicit Curves(const v1::CurvesRecord& record);

  // Adds rank 0's progress in a generation, reported `age` after the job was submitted. Ignores a
  // report without a completed step, and one whose step the generation has reported before, except
  // for its test accuracy. Returns whether the curves have changed.
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

  // The mean of both, with the step, time, generation and test accuracy of the later one.
  static Point Merge(const Point& earlier, const Point& later);
  // Merges neighbours in pairs. The last of an odd number stays.
  static std::vector<Point> Halve(const std::vector<Point>& points);

  std::vector<Point> points_;  // by step
  uint32_t reports_per_point_ = 1;
  uint64_t reports_ = 0;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_JOBS_CURVES_H_
