#include "coordinator/core/jobs/histories.h"

#include <algorithm>
#include <utility>

#include "common/limits.h"
#include "common/time/proto_time.h"
#include "common/version.h"
#include "coordinator/core/records.h"

namespace muster::core {
namespace {

constexpr absl::Duration kWriteInterval = absl::Minutes(1);
// The most bytes of a job's node environments that are kept.
constexpr size_t kEnvironmentBytes = 512 << 10;

// The mean of values of `a` and `b` reports, of which those that are 0 were not
// reported.
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

void Histories::BeginGeneration(const Job& job, std::vector<v1::NodeEnvironmentRecord> nodes) {
  const auto entry = histories_.try_emplace(job.queue_sequence).first;
  History& history = entry->second;
  history.job_id = job.status.job_id();
  history.nodes.Clear();
  history.nodes.set_node_count(nodes.size());
  history.nodes.set_coordinator_version(kSoftwareVersion);
  if (nodes.size() > limits::kHistoryNodes) nodes.resize(limits::kHistoryNodes);
  size_t bytes = 0;
  for (v1::NodeEnvironmentRecord& node : nodes) {
    bytes += node.ByteSizeLong();
    if (bytes > kEnvironmentBytes) break;
    *history.nodes.add_nodes() = std::move(node);
  }
  due_.insert(job.queue_sequence);
  NoteChange(entry);
}

void Histories::EndGeneration(const Job& job) {
  if (histories_.count(job.queue_sequence) != 0) due_.insert(job.queue_sequence);
}

void Histories::AddProgress(const Job& job) {
  const auto entry = histories_.find(job.queue_sequence);
  if (entry == histories_.end()) return;  // deleted, beyond the limit
  History& history = entry->second;
  const absl::Duration age = context_.now.steady - job.submitted;
  if (!history.curves.Add(job.status.progress(), job.status.generation(), age)) return;
  if (context_.now.steady >= history.next_write) due_.insert(job.queue_sequence);
  NoteChange(entry);
}

v1::JobHistory Histories::View(const Job& job, size_t max_points) const {
  v1::JobHistory view;
  const auto entry = histories_.find(job.queue_sequence);
  if (entry == histories_.end()) return view;
  const History& history = entry->second;
  *view.mutable_curves() = history.curves.View(max_points);
  for (const v1::NodeEnvironmentRecord& node : history.nodes.nodes()) {
    v1::NodeEnvironment& shown = *view.add_nodes();
    shown.set_node(node.node());
    shown.set_software_version(node.software_version());
    shown.set_cpu_count(node.cpu_count());
    shown.set_memory_bytes(node.memory_bytes());
    *shown.mutable_devices() = node.devices();
    shown.set_driver_version(node.driver_version());
  }
  view.set_node_count(history.nodes.node_count());
  view.set_coordinator_version(history.nodes.coordinator_version());
  return view;
}

void Histories::Restore(const Job& job, const v1::HistoryRecord& record) {
  const auto entry = histories_.try_emplace(job.queue_sequence).first;
  History& history = entry->second;
  history.job_id = record.job_id();
  history.curves = Curves(record.curves());
  history.nodes = record;
  history.nodes.clear_job_id();
  history.nodes.clear_curves();
  NoteChange(entry);
}

std::optional<std::string> Histories::Remove(const Job& job) {
  const auto entry = histories_.find(job.queue_sequence);
  if (entry == histories_.end()) return std::nullopt;
  std::string key = HistoryKey(entry->second.job_id);
  bytes_ -= entry->second.bytes;
  due_.erase(job.queue_sequence);
  histories_.erase(entry);
  return key;
}

void Histories::WriteChanges() {
  if (context_.space.IsLow()) return;
  for (const uint64_t sequence : std::exchange(due_, {})) {
    History& history = histories_.at(sequence);
    v1::HistoryRecord record = history.nodes;
    record.set_job_id(history.job_id);
    *record.mutable_curves() = history.curves.ToRecord();
    context_.effects.writes.push_back(Put(record));
    history.next_write = context_.now.steady + kWriteInterval;
  }
}

void Histories::NoteChange(Table::iterator entry) {
  History& history = entry->second;
  bytes_ -= history.bytes;
  history.bytes = sizeof(History) + history.curves.ByteSize() + history.nodes.ByteSizeLong();
  bytes_ += history.bytes;
  while (bytes_ > max_bytes_ && histories_.size() > 1) DeleteOldest();
}

void Histories::DeleteOldest() {
  const auto oldest = histories_.begin();
  context_.effects.writes.push_back({HistoryKey(oldest->second.job_id), std::nullopt});
  bytes_ -= oldest->second.bytes;
  due_.erase(oldest->first);
  histories_.erase(oldest);
}

}  // namespace muster::core
