#include "worker/c10d_store/status_file.h"

#include <charconv>

#include "worker/shim/fields.h"

namespace muster::c10d_store {
namespace {

// Each wait and each problem begins with its text; the other records belong to the latest one.
constexpr char kWait[] = "wait";
constexpr char kSince[] = "since_boot_ms";
constexpr char kMissing[] = "missing";
constexpr char kReason[] = "reason";
constexpr char kProblem[] = "problem";
constexpr char kClient[] = "client";
constexpr char kProblemRank[] = "problem_rank";

template <typename Number>
bool Parse(const std::string& text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

bool DecodeWaitField(const std::string& name, const std::string& value, WaitReport& wait) {
  if (name == kSince) return Parse(value, wait.since_boot_ms);
  if (name == kMissing) return Parse(value, wait.missing.emplace_back());
  if (name != kReason) return false;
  wait.reason = value;
  return true;
}

}  // namespace

std::string EncodeStatus(const Status& status) {
  shim::Fields fields;
  for (const WaitReport& wait : status.waits) {
    fields.emplace_back(kWait, wait.what);
    fields.emplace_back(kSince, std::to_string(wait.since_boot_ms));
    for (const uint32_t rank : wait.missing) fields.emplace_back(kMissing, std::to_string(rank));
    if (!wait.reason.empty()) fields.emplace_back(kReason, wait.reason);
  }
  for (const ClientProblem& problem : status.problems) {
    fields.emplace_back(kProblem, problem.text);
    fields.emplace_back(kClient, problem.client);
    if (problem.rank.has_value()) {
      fields.emplace_back(kProblemRank, std::to_string(*problem.rank));
    }
  }
  return shim::EncodeFields(fields);
}

std::optional<Status> DecodeStatus(const std::string& text) {
  const std::optional<shim::Fields> fields = shim::DecodeFields(text);
  if (!fields.has_value()) return std::nullopt;
  Status status;
  for (const auto& [name, value] : *fields) {
    if (name == kWait) {
      status.waits.emplace_back().what = value;
    } else if (name == kProblem) {
      status.problems.emplace_back().text = value;
    } else if (name == kClient) {
      if (status.problems.empty()) return std::nullopt;
      status.problems.back().client = value;
    } else if (name == kProblemRank) {
      if (status.problems.empty()) return std::nullopt;
      if (!Parse(value, status.problems.back().rank.emplace())) return std::nullopt;
    } else if (status.waits.empty() || !DecodeWaitField(name, value, status.waits.back())) {
      return std::nullopt;
    }
  }
  return status;
}

}  // namespace muster::c10d_store
