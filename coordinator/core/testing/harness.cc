#include "coordinator/core/testing/harness.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/time/proto_time.h"
#include "common/version.h"
#include "coordinator/core/batches.h"
#include "coordinator/core/jobs/job.h"
#include "coordinator/core/records.h"
#include "gtest/gtest.h"

namespace muster::core::testing {

v1::JobSpec MakeSpec(uint32_t nodes, uint32_t ranks_per_node) {
  v1::JobSpec spec;
  spec.set_name("job");
  spec.mutable_train();
  spec.mutable_resources()->mutable_nodes()->set_min(nodes);
  spec.mutable_resources()->mutable_nodes()->set_max(nodes);
  spec.mutable_resources()->set_ranks_per_node(ranks_per_node);
  spec.mutable_restart()->set_max(3);
  *spec.mutable_failure_timeout() = ToProto(absl::Seconds(10));
  *spec.mutable_grace_period() = ToProto(absl::Seconds(30));
  return spec;
}

v1::JobSpec MakeCommandSpec(uint32_t nodes, uint32_t ranks_per_node) {
  v1::JobSpec spec = MakeSpec(nodes, ranks_per_node);
  spec.clear_train();
  spec.add_command("true");
  return spec;
}

v1::ExitInfo ExitWith(int code) {
  v1::ExitInfo exit;
  exit.set_exit_code(code);
  return exit;
}

v1::ExitInfo KilledBy(int signal) {
  v1::ExitInfo exit;
  exit.set_signal(signal);
  return exit;
}

Harness::Harness(Options options)
    : options_(std::move(options)),
      now_{SteadyTime(absl::Hours(1)), absl::FromUnixSeconds(1'700'000'000)} {
  Effects effects;
  core_ = Load(&effects);
  Apply(effects);
}

Options Harness::DefaultOptions() {
  Options options;
  options.incarnation = Incarnation(77);
  options.job_lease = options.lease;
  options.new_cluster_id = "cluster-1";
  options.boot_id = "boot";
  return options;
}

void Harness::ForgetPassedBarriers(const std::string& job, uint32_t node_rank) {
  const std::string key = PlacementKey(job, 1, node_rank);
  v1::PlacementRecord record;
  ASSERT_TRUE(record.ParseFromString(records_.at(key)));
  ASSERT_TRUE(record.placement().has_passed_barriers());
  record.mutable_placement()->clear_passed_barriers();
  PutRecord(key, record.SerializeAsString());
}

std::vector<store::Record> Harness::StoredRecords() const {
  std::vector<store::Record> records;
  for (const auto& [key, value] : records_) records.push_back({key, value});
  return records;
}

std::unique_ptr<Core> Harness::Load(Effects* effects) const {
  auto core = std::make_unique<Core>(options_);
  absl::StatusOr<Effects> loaded = core->Load(StoredRecords(), now_);
  EXPECT_TRUE(loaded.ok()) << loaded.status();
  if (effects != nullptr && loaded.ok()) *effects = *std::move(loaded);
  return core;
}

namespace {

void CheckBounds(const std::vector<store::Mutation>& batch) {
  EXPECT_LE(batch.size(), kBatchOperations);
  size_t bytes = 0;
  std::set<std::string> keys;
  for (const store::Mutation& write : batch) {
    EXPECT_TRUE(keys.insert(write.key).second) << write.key << " is written twice";
    const size_t value_bytes = write.value.has_value() ? write.value->size() : 0;
    EXPECT_LT(value_bytes, kBatchBytes) << write.key;
    bytes += write.key.size() + value_bytes;
  }
  EXPECT_LE(bytes, kBatchBytes);
}

}  // namespace

void Harness::Apply(const Effects& effects) {
  const std::vector<std::vector<store::Mutation>> batches = SplitIntoBatches(effects.writes);
  std::vector<std::map<std::string, std::string>> states;  // as a coordinator reads the records
  if (batches.size() > 1) states.push_back(records_);
  size_t committed = 0;
  for (const std::vector<store::Mutation>& batch : batches) {
    CheckBounds(batch);
    for (const store::Mutation& write : batch) {
      records_.erase(write.key);
      if (write.value.has_value()) records_[write.key] = *write.value;
    }
    if (batches.size() == 1) break;
    if (++committed % 8 != 0 && batches.size() > 64) continue;  // takes too long
    const absl::StatusOr<Unstaged> unstaged = Unstage(StoredRecords());
    ASSERT_TRUE(unstaged.ok()) << unstaged.status();
    std::map<std::string, std::string> state;
    for (const store::Record& record : unstaged->records) state[record.key] = record.value;
    if (state != states.back()) states.push_back(std::move(state));
  }
  // The whole step counts from one of its batches on.
  EXPECT_TRUE(batches.size() <= 1 || (states.size() == 2 && states.back() == records_));
  for (const Reply& reply : effects.replies) {
    replies_.emplace(reply.request.value(), reply.job);
  }
}

// The time of a job must add up to its age, and a coordinator that starts now must find the same
// sum. How it is divided may differ: records are written less often.
void Harness::CheckTime(const Core& again, const JobId& id) const {
  const v1::Goodput found = core_->GetJob(id, /*detailed=*/true, now_)->goodput();
  const v1::Goodput recorded = again.GetJob(id, /*detailed=*/true, now_)->goodput();
  absl::Duration sum;
  for (const v1::Goodput::Cause& cause : found.causes()) sum += FromProto(cause.wall_time());
  const absl::Duration rounding = absl::Microseconds(1);
  EXPECT_LE(absl::AbsDuration(sum - FromProto(found.wall_time())), rounding)
      << found.ShortDebugString();
  EXPECT_LE(absl::AbsDuration(FromProto(recorded.wall_time()) - FromProto(found.wall_time())),
            rounding)
      << found.ShortDebugString() << "\n"
      << recorded.ShortDebugString();
  const v1::Job job = Get(id.value());
  // Jobs of old stores that had ended, and recovered ones, have no account or no submission.
  if (!job.has_submit_time() || !job.has_goodput() || !wall_clock_is_right_) return;
  const absl::Time end = job.has_finish_time() ? FromProto(job.finish_time()) : now_.wall;
  EXPECT_LE(absl::AbsDuration(end - FromProto(job.submit_time()) - sum), rounding)
      << job.ShortDebugString();
}

void Harness::CheckRecords() const {
  const std::unique_ptr<Core> again = Load();
  v1::ListJobsRequest all;
  all.set_include_finished(true);
  const std::vector<v1::Job> expected = core_->ListJobs(all, now_);
  const std::vector<v1::Job> found = again->ListJobs(all, now_);
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    v1::Job of_now = expected[i];
    v1::Job of_record = found[i];
    of_now.clear_hang();         // detected again
    of_now.clear_slowdown();     // known again after a few windows of steps
    of_now.clear_unplaceable();  // known again once the nodes have reconnected
    of_record.clear_unplaceable();
    if (IsActive(of_now.state())) {  // the workers report its progress again
      of_now.clear_progress();
      of_record.clear_progress();
    }
    EXPECT_EQ(of_record.SerializeAsString(), of_now.SerializeAsString())
        << of_record.ShortDebugString() << "\n"
        << of_now.ShortDebugString();
    EXPECT_EQ(again->ListEvents(JobId(of_now.job_id()), 0)->size(),
              core_->ListEvents(JobId(of_now.job_id()), 0)->size());
    CheckTime(*again, JobId(of_now.job_id()));
  }
}

Effects Harness::Step(const Event& event, bool more) {
  Effects effects = core_->Step(event, now_, more);
  Apply(effects);
  if (checks_each_step_ || !effects.writes.empty()) CheckRecords();
  return effects;
}

Effects Harness::TickAtDeadline() {
  const SteadyTime deadline = core_->NextDeadline();
  EXPECT_LT(deadline, SteadyTime::Infinite());
  if (deadline > now_.steady) Advance(deadline - now_.steady);
  return Step(Tick{});
}

Effects Harness::Run(absl::Duration by, const std::vector<std::string>& alive) {
  Effects all;
  const SteadyTime end = now_.steady + by;
  checks_each_step_ = false;
  while (now_.steady < end) {
    Advance(std::min(absl::Milliseconds(500), end - now_.steady));
    for (const std::string& node : alive) SendHeartbeat(node);
    if (core_->NextDeadline() > now_.steady) continue;
    Effects effects = Step(Tick{});
    std::move(effects.sends.begin(), effects.sends.end(), std::back_inserter(all.sends));
    std::move(effects.logs.begin(), effects.logs.end(), std::back_inserter(all.logs));
  }
  checks_each_step_ = true;
  CheckRecords();
  return all;
}

void Harness::Restart() {
  sessions_.clear();
  options_.incarnation = Incarnation(options_.incarnation.value() + 1);
  Effects effects;
  core_ = Load(&effects);
  Apply(effects);
}

void Harness::Reboot() {
  now_.steady = SteadyTime();
  options_.boot_id += "'";
  Restart();
}

std::string Harness::Submit(v1::JobSpec spec, const std::string& idempotency_key) {
  const uint64_t request = next_request_++;
  Step(SubmitJob{RequestId(request), JobId(absl::StrCat("job", next_job_++)), std::move(spec),
                 idempotency_key});
  const absl::StatusOr<v1::Job>& reply = replies_.at(request);
  EXPECT_TRUE(reply.ok()) << reply.status();
  return reply.ok() ? reply->job_id() : "";
}

std::string Harness::SubmitArray(v1::JobSpec spec, uint32_t count, uint32_t concurrency,
                                 const std::string& idempotency_key) {
  const uint64_t request = next_request_++;
  SubmitJob event{RequestId(request), JobId(absl::StrCat("job", next_job_++)), spec,
                  idempotency_key};
  event.spec.mutable_array()->set_count(count);
  event.spec.mutable_array()->set_concurrency(concurrency);
  event.tasks.assign(count, {std::make_shared<const v1::JobSpec>(std::move(spec))});
  Step(event);
  const absl::StatusOr<v1::Job>& reply = replies_.at(request);
  EXPECT_TRUE(reply.ok()) << reply.status();
  return reply.ok() ? reply->array_id() : "";
}

absl::StatusOr<v1::Job> Harness::TrySubmit(v1::JobSpec spec) {
  const uint64_t request = next_request_++;
  Step(SubmitJob{RequestId(request), JobId(absl::StrCat("job", next_job_++)), std::move(spec), ""});
  return replies_.at(request);
}

absl::StatusOr<v1::Job> Harness::CancelArray(const std::string& array) {
  const uint64_t request = next_request_++;
  Step(core::CancelArray{RequestId(request), array, std::nullopt});
  return replies_.at(request);
}

v1::JobArray Harness::GetArray(const std::string& array) const {
  return core_->GetArray(array).value_or(v1::JobArray());
}

absl::StatusOr<v1::Job> Harness::Cancel(const std::string& job) {
  const uint64_t request = next_request_++;
  Step(CancelJob{RequestId(request), job, std::nullopt});
  return replies_.at(request);
}

absl::StatusOr<v1::Job> Harness::Hold(const std::string& job) {
  const uint64_t request = next_request_++;
  Step(HoldJob{RequestId(request), job});
  return replies_.at(request);
}

absl::StatusOr<v1::Job> Harness::Release(const std::string& job) {
  const uint64_t request = next_request_++;
  Step(ReleaseJob{RequestId(request), job});
  return replies_.at(request);
}

absl::StatusOr<v1::Job> Harness::Requeue(const std::string& job) {
  const uint64_t request = next_request_++;
  Step(RequeueJob{RequestId(request), job});
  return replies_.at(request);
}

v1::Job Harness::Get(const std::string& job) const {
  absl::StatusOr<v1::Job> found = core_->GetJob(JobId(job), /*detailed=*/true, now_);
  EXPECT_TRUE(found.ok()) << found.status();
  return found.ok() ? *std::move(found) : v1::Job();
}

std::vector<std::string> Harness::EventTypes(const std::string& job) const {
  std::vector<std::string> types;
  const absl::StatusOr<std::vector<v1::JobEvent>> events = core_->ListEvents(JobId(job), 0);
  for (const v1::JobEvent& event : *events) types.push_back(event.type());
  return types;
}

v1::Hello Harness::MakeHello(const std::string& node, uint32_t slots, uint64_t incarnation) const {
  v1::Hello hello;
  hello.set_protocol_version(kProtocolVersion);
  hello.set_node_name(node);
  hello.set_incarnation(incarnation);
  hello.set_metrics_address(":9100");
  hello.set_cluster_id(core_->store().cluster_id);
  for (uint32_t i = 0; i < slots; ++i) {
    v1::Slot& slot = *hello.add_slots();
    slot.set_index(i);
    slot.set_kind("cpu");
  }
  return hello;
}

Effects Harness::Open(const v1::Hello& hello) {
  const SessionId session(next_session_++);
  Effects effects = Step(SessionOpened{session, hello, absl::StrCat("10.0.0.", session.value())});
  const bool refused =
      std::any_of(effects.closes.begin(), effects.closes.end(),
                  [session](const CloseSession& close) { return close.session == session; });
  if (!refused) sessions_[hello.node_name()] = session;
  return effects;
}

Effects Harness::CloseStream(const std::string& node) {
  return Step(SessionClosed{sessions_.at(node)});
}

Effects Harness::SendMessage(const std::string& node, v1::WorkerMessage message) {
  return Step(SessionMessage{sessions_.at(node), std::move(message)});
}

Effects Harness::SendHeartbeat(const std::string& node) {
  v1::WorkerMessage message;
  message.mutable_heartbeat()->set_sequence(1);
  return SendMessage(node, std::move(message));
}

Effects Harness::SendLeaving(const std::string& node) {
  v1::WorkerMessage message;
  message.mutable_leaving();
  return SendMessage(node, std::move(message));
}

Effects Harness::Arrive(const std::string& node, const std::string& job,
                        std::vector<uint32_t> ranks, uint64_t sequence, const std::string& group) {
  v1::WorkerMessage message;
  v1::ArriveBarrier& arrive = *message.mutable_arrive_barrier();
  arrive.set_job_id(job);
  arrive.set_generation(Get(job).generation());
  arrive.mutable_barrier()->set_group(group);
  arrive.mutable_barrier()->set_sequence(sequence);
  for (const uint32_t rank : ranks) arrive.add_ranks(rank);
  return SendMessage(node, std::move(message));
}

Effects Harness::Report(const std::string& node, const std::string& job,
                        const v1::RankReport& rank) {
  v1::WorkerMessage message;
  *message.mutable_report() = MakeInventory(job, {rank});
  return SendMessage(node, std::move(message));
}

v1::RankReport Harness::MakeReport(uint32_t rank, v1::RankPhase phase) {
  v1::RankReport report;
  report.set_rank(rank);
  report.set_phase(phase);
  if (phase >= v1::STARTED) report.set_pid(1000 + rank);
  if (phase == v1::JOINED || phase == v1::CONNECTED) report.mutable_join()->set_layout_digest("x");
  return report;
}

Effects Harness::ReportPhase(const std::string& node, const std::string& job, uint32_t rank,
                             v1::RankPhase phase) {
  return Report(node, job, MakeReport(rank, phase));
}

Effects Harness::ReportExit(const std::string& node, const std::string& job, uint32_t rank,
                            v1::ExitInfo exit) {
  v1::RankReport report = MakeReport(rank, v1::EXITED);
  *report.mutable_exit() = std::move(exit);
  return Report(node, job, report);
}

void Harness::ReportPhaseOfAll(const std::string& job, v1::RankPhase phase) {
  const v1::Job before = Get(job);
  for (const v1::RankStatus& rank : before.ranks()) {
    ReportPhase(rank.node(), job, rank.rank(), phase);
  }
}

void Harness::BringUp(const std::string& job) {
  ReportPhaseOfAll(job, v1::STARTED);
  ReportPhaseOfAll(job, v1::JOINED);
  ReportPhaseOfAll(job, v1::CONNECTED);
}

void Harness::ExitAll(const std::string& job, const v1::ExitInfo& exit) {
  const v1::Job before = Get(job);
  for (const v1::RankStatus& rank : before.ranks()) {
    if (rank.phase() != v1::EXITED) ReportExit(rank.node(), job, rank.rank(), exit);
  }
}

v1::GenerationReport Harness::MakeInventory(const std::string& job,
                                            std::vector<v1::RankReport> ranks) const {
  v1::GenerationReport report;
  report.set_job_id(job);
  report.set_generation(Get(job).generation());
  for (v1::RankReport& rank : ranks) *report.add_ranks() = std::move(rank);
  return report;
}

v1::Node Harness::GetNode(const std::string& node) const {
  return core_->GetNode(NodeName(node), now_).value_or(v1::Node());
}

const v1::CoordinatorMessage* FindSent(const Effects& effects, SessionId session,
                                       v1::CoordinatorMessage::KindCase kind) {
  for (const Send& send : effects.sends) {
    if (send.session == session && send.message.kind_case() == kind) return &send.message;
  }
  return nullptr;
}

int CountSent(const Effects& effects, SessionId session, v1::CoordinatorMessage::KindCase kind) {
  return static_cast<int>(
      std::count_if(effects.sends.begin(), effects.sends.end(), [&](const Send& send) {
        return send.session == session && send.message.kind_case() == kind;
      }));
}

}  // namespace muster::core::testing
