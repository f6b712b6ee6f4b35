#include "coordinator/core/jobs/curves.h"

#include <algorithm>

#include "common/limits.h"

namespace muster::core {
namespace {

// The mean of values of `a` and `b` reports, of which those that are 0 were not reported.
float Mean(float value_a, uint32_t a, float value_b, uint32_t b) {
  if (value_a == 0) return value_b;
  if (value_b == 0) return value_a;
  const double reports = static_cast<double>(a) + b;
  return static_cast<float>((double{value_a} * a + double{value_b} * b) / reports);
}

}  // namespace

Curves::Curves(const v1::CurvesRecord& record)
    : reports_per_point_(std::max(1u, record.reports_per_point())), reports_(record.reports()) {
  const int count = std::min({record.steps_size(), record.seconds_size(), record.losses_size(),
                              record.train_accuracies_size(), record.test_accuracies_size(),
                              record.images_per_second_size(), record.generations_size(),
                              static_cast<int>(limits::kCurvePoints)});
  points_.reserve(count);
  for (int i = 0; i < count; ++i) {
    points_.push_back({record.steps(i), record.generations(i), record.seconds(i), record.losses(i),
                       record.train_accuracies(i), record.test_accuracies(i),
                       record.images_per_second(i), reports_per_point_});
  }
}

bool Curves::Add(const v1::Progress& progress, uint64_t generation, absl::Duration age) {
  if (progress.step() == 0) return false;
  const auto test_accuracy = static_cast<float>(progress.test_accuracy());
  if (!points_.empty() && points_.back().generation == generation &&
      progress.step() <= points_.back().step) {
    Point& last = points_.back();
    if (progress.step() < last.step || last.test_accuracy == test_accuracy) return false;
    last.test_accuracy = test_accuracy;
    return true;
  }
  // The generation repeats these steps.
  while (!points_.empty() && points_.back().step >= progress.step()) points_.pop_back();
  const Point point{progress.step(),
                    generation,
                    static_cast<float>(absl::ToDoubleSeconds(age)),
                    static_cast<float>(progress.loss()),
                    static_cast<float>(progress.train_accuracy()),
                    test_accuracy,
                    static_cast<float>(progress.images_per_second())};
  ++reports_;
  if (!points_.empty() && points_.back().reports < reports_per_point_) {
    points_.back() = Merge(points_.back(), point);
    return true;
  }
  if (points_.size() == limits::kCurvePoints) {
    points_ = Halve(points_);
    reports_per_point_ *= 2;
  }
  points_.push_back(point);
  return true;
}

Curves::Point Curves::Merge(const Point& earlier, const Point& later) {
  Point merged = later;
  const uint32_t a = earlier.reports;
  const uint32_t b = later.reports;
  merged.loss = Mean(earlier.loss, a, later.loss, b);
  merged.train_accuracy = Mean(earlier.train_accuracy, a, later.train_accuracy, b);
  merged.images_per_second = Mean(earlier.images_per_second, a, later.images_per_second, b);
  merged.reports = a + b;
  return merged;
}

std::vector<Curves::Point> Curves::Halve(const std::vector<Point>& points) {
  std::vector<Point> half;
  half.reserve(limits::kCurvePoints);
  for (size_t i = 0; i + 1 < points.size(); i += 2) {
    half.push_back(Merge(points[i], points[i + 1]));
  }
  if (points.size() % 2 == 1) half.push_back(points.back());
  return half;
}

v1::Curves Curves::View(size_t max_points) const {
  std::vector<Point> points = points_;
  while (max_points > 0 && points.size() > std::max<size_t>(max_points, 1)) points = Halve(points);
  v1::Curves view;
  view.set_reports(reports_);
  for (const Point& point : points) {
    v1::CurvePoint& shown = *view.add_points();
    shown.set_step(point.step);
    shown.set_generation(point.generation);
    shown.set_seconds(point.seconds);
    shown.set_loss(point.loss);
    shown.set_train_accuracy(point.train_accuracy);
    shown.set_test_accuracy(point.test_accuracy);
    shown.set_images_per_second(point.images_per_second);
  }
  return view;
}

v1::CurvesRecord Curves::ToRecord() const {
  v1::CurvesRecord record;
  for (const Point& point : points_) {
    record.add_steps(point.step);
    record.add_generations(point.generation);
    record.add_seconds(point.seconds);
    record.add_losses(point.loss);
    record.add_train_accuracies(point.train_accuracy);
    record.add_test_accuracies(point.test_accuracy);
    record.add_images_per_second(point.images_per_second);
  }
  record.set_reports_per_point(reports_per_point_);
  record.set_reports(reports_);
  return record;
}

}  // namespace muster::core
