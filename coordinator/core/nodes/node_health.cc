#include "coordinator/core/nodes/node_health.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/limits.h"
#include "common/text/utf8.h"
#include "common/time/proto_time.h"
#include "coordinator/core/steady_clock.h"

namespace muster::core {
namespace {

constexpr uint32_t kTolerated = 1;     // failed launches in a row without consequence
constexpr uint32_t kMostFailures = 3;  // failed launches in a row that cordon the node
constexpr absl::Duration kFirstDelay = absl::Seconds(30);
constexpr absl::Duration kLongestDelay = absl::Minutes(10);
// A worker answers within a minute.
constexpr absl::Duration kTestPatience = absl::Seconds(90);

absl::Duration Doubled(uint32_t times) {
  return std::min(kLongestDelay, kFirstDelay * (int64_t{1} << std::min(times, 16u)));
}

absl::Duration CoolDownAfter(uint32_t failed_launches) {
  if (failed_launches <= kTolerated) return absl::ZeroDuration();
  return Doubled(failed_launches - kTolerated - 1);
}

TimerKey CoolDownOf(const Node& node) { return {TimerKey::Kind::kCoolDown, node.record.name()}; }
TimerKey SelfTestOf(const Node& node) { return {TimerKey::Kind::kSelfTest, node.record.name()}; }

// Returns whether the worker can be asked to test itself now.
bool CanTestItself(const Node& node) {
  return node.session.has_value() && node.conflict.empty() && node.hello.tests_itself();
}

bool IsCoolDownOver(const Node& node, SteadyTime now) {
  return node.IsCoolingDown() && FromStored(node.record.cool_down_until()) <= now;
}

// The checks that failed: "disk: …"; empty: the node passed. GPUs do not count: no ranks are placed
// on the slot of an unhealthy one, and the node's other slots remain usable.
std::string FailureOf(const v1::SelfTestReport& report) {
  std::vector<std::string> failures;
  for (const v1::SelfTest::Check& check : report.checks()) {
    if (check.failure().empty() || absl::StartsWith(check.name(), "gpu ")) continue;
    failures.push_back(absl::StrCat(check.name(), ": ", check.failure()));
  }
  return absl::StrJoin(failures, "; ");
}

std::string Bounded(std::string text) {
  KeepFirst(limits::kCordonReasonBytes, text);
  return text;
}

}  // namespace

// ------------------------------------------------------------------------------------------------
// launches

void NodeHealth::NoteLaunchFailure(const NodeName& name, const std::string& why) {
  Node& node = nodes_.Edit(name);
  nodes_.MarkRecord(node);
  node.record.set_launch_failure(Bounded(why));
  // Launched before the cordon.
  if (node.record.cordoned_by_health()) return;
  const uint32_t failed = node.record.failed_launches() + 1;
  node.record.set_failed_launches(failed);
  const bool tests = CanTestItself(node) && !node.IsCordonedByOperator();
  if (tests && failed >= kMostFailures) {
    // Without the failure, which only admins see.
    CordonByHealth(node, absl::StrCat(failed, " launches in a row failed"));
    ScheduleSelfTest(node, Doubled(failed - kMostFailures));
    return;
  }
  // A test that fails cordons the node before more jobs fail on it.
  if (tests && !node.self_test.running) StartSelfTest(node);
  const absl::Duration cool_down = CoolDownAfter(failed);
  if (cool_down == absl::ZeroDuration()) return;
  *node.record.mutable_cool_down_until() = ToStored(context_.now.steady + cool_down);
  Restore(node);
  nodes_.MarkOffer(node);
  context_.Log(absl::StrCat("node ", name.value(), " failed to launch ranks ", failed,
                            " times in a row; no ranks will be placed on it for ",
                            absl::FormatDuration(cool_down), ": ", why));
}

void NodeHealth::NoteLaunchSuccess(const NodeName& name) {
  Node& node = nodes_.Edit(name);
  if (ForgetFailedLaunches(node)) nodes_.MarkOffer(node);
}

void NodeHealth::EndCoolDown(const NodeName& name) {
  Node* const found = nodes_.FindToEdit(name);
  if (found == nullptr || !found->IsCoolingDown()) return;
  Node& node = *found;
  if (!CanTestItself(node) || node.IsCordonedByOperator()) return FinishCoolDown(node);
  if (!node.self_test.running) StartSelfTest(node);  // the node returns if it passes
}

void NodeHealth::FinishCoolDown(Node& node) {
  if (!node.IsCoolingDown()) return;
  node.record.clear_cool_down_until();
  context_.timers.Cancel(CoolDownOf(node));
  nodes_.MarkRecord(node);
  nodes_.MarkOffer(node);
}

void NodeHealth::Restore(const Node& node) {
  if (!node.IsCoolingDown()) return;
  context_.timers.Set(CoolDownOf(node), FromStored(node.record.cool_down_until()));
}

bool NodeHealth::ForgetFailedLaunches(Node& node) {
  if (node.record.failed_launches() == 0) return false;
  node.record.clear_failed_launches();
  node.record.clear_launch_failure();
  node.record.clear_cool_down_until();
  context_.timers.Cancel(CoolDownOf(node));
  nodes_.MarkRecord(node);
  return true;
}

// ------------------------------------------------------------------------------------------------
// self-tests

void NodeHealth::Begin(Node& node) {
  AbortSelfTest(node);
  if (!node.conflict.empty()) return;
  if (CanTestItself(node)) return StartSelfTest(node);
  // An older worker: no self-test would end the cordon or the cool-down.
  if (IsCoolDownOver(node, context_.now.steady)) FinishCoolDown(node);
  if (node.record.cordoned_by_health()) UncordonByHealth(node, "its worker does not test itself");
}

absl::Status NodeHealth::TestNode(const NodeName& name) {
  Node* const found = nodes_.FindToEdit(name);
  if (found == nullptr) return absl::NotFoundError(absl::StrCat("no node ", name.value()));
  Node& node = *found;
  if (!node.session.has_value()) {
    return absl::FailedPreconditionError(
        absl::StrCat("node ", name.value(), " is not connected; start its worker"));
  }
  if (!node.conflict.empty()) {
    return absl::FailedPreconditionError(absl::StrCat("node ", name.value(),
                                                      " is in conflict: ", node.conflict,
                                                      "; muster admin recover ", name.value()));
  }
  if (!node.hello.tests_itself()) {
    return absl::FailedPreconditionError(absl::StrCat("the worker of node ", name.value(),
                                                      " (Muster ", node.hello.software_version(),
                                                      ") cannot test itself; upgrade it"));
  }
  if (!node.self_test.running) StartSelfTest(node);
  return absl::OkStatus();
}

void NodeHealth::AbortSelfTest(Node& node) {
  node.self_test.running = false;
  context_.timers.Cancel(SelfTestOf(node));
}

void NodeHealth::StartSelfTest(Node& node) {
  node.self_test.running = true;
  v1::CoordinatorMessage message;
  message.mutable_self_test()->set_id(++node.self_test.id);
  nodes_.Send(node, std::move(message));
  ScheduleSelfTest(node, kTestPatience);
}

void NodeHealth::ScheduleSelfTest(const Node& node, absl::Duration delay) {
  context_.timers.Set(SelfTestOf(node), context_.now.steady + delay);
}

void NodeHealth::OnSelfTestTimer(const NodeName& name) {
  Node* const found = nodes_.FindToEdit(name);
  if (found == nullptr) return;
  Node& node = *found;
  if (!node.self_test.running) {
    if (CanTestItself(node)) StartSelfTest(node);
    return;
  }
  v1::SelfTestReport report;
  report.set_id(node.self_test.id);
  v1::SelfTest::Check& check = *report.add_checks();
  check.set_name("worker");
  check.set_failure(absl::StrCat("no answer within ", absl::FormatDuration(kTestPatience)));
  *report.mutable_duration() = ToProto(kTestPatience);
  OnSelfTest(name, report);
}

void NodeHealth::OnSelfTest(const NodeName& name, const v1::SelfTestReport& report) {
  Node& node = nodes_.Edit(name);
  SelfTestState& test = node.self_test;
  if (!test.running || report.id() != test.id) return;  // not awaited any more
  AbortSelfTest(node);
  test.report = report;
  test.answered = context_.now.steady;
  const std::string failure = FailureOf(report);
  test.failures = failure.empty() ? 0 : test.failures + 1;
  if (failure.empty() || node.IsCordonedByOperator()) {
    if (node.record.cordoned_by_health()) UncordonByHealth(node, "it passed its self-test");
    if (IsCoolDownOver(node, context_.now.steady)) FinishCoolDown(node);
    return;
  }
  CordonByHealth(node, absl::StrCat("self-test: ", failure));
  ScheduleSelfTest(node, Doubled(test.failures - 1));
}

void NodeHealth::CordonByHealth(Node& node, std::string reason) {
  AbortSelfTest(node);
  FinishCoolDown(node);
  reason = Bounded(std::move(reason));
  v1::NodeRecord& record = node.record;
  if (record.cordoned_by_health() && record.cordon_reason() == reason) return;
  record.set_cordoned(true);
  record.set_cordoned_by_health(true);
  record.set_cordon_reason(reason);
  nodes_.MarkRecord(node);
  nodes_.MarkOffer(node);
  context_.Log(
      absl::StrCat("node ", record.name(), " was cordoned until it passes a self-test: ", reason));
}

void NodeHealth::UncordonByHealth(Node& node, const std::string& why) {
  node.record.clear_cordoned();
  node.record.clear_cordoned_by_health();
  node.record.clear_cordon_reason();
  nodes_.MarkRecord(node);
  nodes_.MarkOffer(node);
  context_.Log(absl::StrCat("node ", node.record.name(), " was uncordoned: ", why));
}

// ------------------------------------------------------------------------------------------------
// operators

void NodeHealth::Cordon(const NodeName& name, const std::string& reason) {
  Node* const found = nodes_.FindToEdit(name);
  if (found == nullptr) return;
  v1::NodeRecord& record = found->record;
  if (found->IsCordonedByOperator() && record.cordon_reason() == reason) return;
  record.set_cordoned(true);
  record.clear_cordoned_by_health();
  record.set_cordon_reason(reason);
  nodes_.MarkRecord(*found);
  nodes_.MarkOffer(*found);
  context_.Log(WithReason(absl::StrCat("node ", name.value(), " was cordoned"), reason));
}

void NodeHealth::SetDrainDeadline(const NodeName& name, std::optional<SteadyTime> until) {
  Node* const found = nodes_.FindToEdit(name);
  if (found == nullptr) return;
  v1::NodeRecord& record = found->record;
  if (!until.has_value() && !record.has_drain_until()) return;
  record.clear_drain_until();
  if (until.has_value()) *record.mutable_drain_until() = ToStored(*until);
  nodes_.MarkRecord(*found);
}

bool NodeHealth::Uncordon(const NodeName& name) {
  Node* const found = nodes_.FindToEdit(name);
  if (found == nullptr) return false;
  Node& node = *found;
  const bool had_failures = ForgetFailedLaunches(node);
  if (!node.record.cordoned() && !had_failures) return false;
  node.record.clear_cordoned();
  node.record.clear_cordoned_by_health();
  node.record.clear_cordon_reason();
  node.record.clear_drain_until();
  node.self_test.failures = 0;
  AbortSelfTest(node);
  nodes_.MarkRecord(node);
  nodes_.MarkOffer(node);
  context_.Log(absl::StrCat("node ", name.value(), " was uncordoned"));
  return true;
}

bool NodeHealth::SetLeaving(const NodeName& name) {
  Node& node = nodes_.Edit(name);
  if (std::exchange(node.leaving, true)) return false;
  nodes_.MarkOffer(node);
  context_.Log(absl::StrCat("node ", name.value(), " is leaving"));
  return true;
}

std::string WithReason(std::string text, const std::string& reason) {
  return reason.empty() ? text : absl::StrCat(text, ": ", reason);
}

}  // namespace muster::core
