#include "worker/shim/hang_watch.h"

#include <unistd.h>

#include "worker/shim/inspect.h"
#include "worker/shim/protocol.h"

namespace muster::shim {

HangWatch::HangWatch(int64_t timeout_ms, int64_t now_ms) {
  if (timeout_ms > 0) activity_.emplace(timeout_ms, now_ms);
}

int64_t HangWatch::interval_ms() const {
  return activity_.has_value() ? activity_->sample_interval_ms() : -1;
}

std::string HangWatch::OnTimer(int64_t now_ms) {
  if (!activity_.has_value()) return "";
  // An inspector reads files on behalf of the shim, not of the rank.
  if (inspector_ < 0) activity_->OnSample(ReadTree(getpid()), now_ms);
  return Update(now_ms);
}

std::string HangWatch::OnOutput(int64_t now_ms) {
  if (!activity_.has_value()) return "";
  activity_->OnOutput(now_ms);
  return Update(now_ms);
}

std::string HangWatch::Update(int64_t now_ms) {
  const bool silent = activity_->IsSilent(now_ms);
  if (silent == silent_) return "";
  silent_ = silent;
  return silent ? StateLine(now_ms) : "active\n";
}

std::string HangWatch::StateLine(int64_t now_ms) const {
  if (!silent_) return "";
  return "silent " + std::to_string(activity_->SilenceMs(now_ms)) + "\n";
}

void HangWatch::Inspect(pid_t rank, const std::optional<Credentials>& user) {
  if (inspector_ >= 0) return;
  const double cpu_ratio = activity_.has_value() ? activity_->cpu_ratio() : 0;
  inspector_ = StartInspector(rank, user, cpu_ratio, kInspectionFile);
}

std::string HangWatch::OnReaped(pid_t child) {
  if (inspector_ < 0 || child != inspector_) return "";
  inspector_ = -1;
  if (activity_.has_value()) activity_->ForgetSample();
  return "inspected\n";
}

}  // namespace muster::shim
