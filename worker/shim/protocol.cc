#include "worker/shim/protocol.h"

#include <charconv>
#include <cstdlib>

#include "worker/shim/fields.h"

namespace muster::shim {
namespace {

template <typename Number>
bool Parse(const std::string& text, Number& number) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stop == end;
}

bool Parse(const std::string& text, bool& value) {
  if (text != "0" && text != "1") return false;
  value = text == "1";
  return true;
}

}  // namespace

std::string EncodeInstructions(const Instructions& instructions) {
  Fields fields;
  if (instructions.user.has_value()) {
    fields.emplace_back("user", EncodeCredentials(*instructions.user));
  }
  for (const std::string& argument : instructions.command) fields.emplace_back("arg", argument);
  for (const std::string& entry : instructions.environment) fields.emplace_back("env", entry);
  fields.emplace_back("workdir", instructions.workdir);
  fields.emplace_back("checkpoint_dir", instructions.checkpoint_dir);
  fields.emplace_back("stdout", instructions.stdout_path);
  fields.emplace_back("stderr", instructions.stderr_path);
  fields.emplace_back("joined_output", std::to_string(instructions.joined_output));
  fields.emplace_back("log_max_bytes", std::to_string(instructions.log_max_bytes));
  fields.emplace_back("failure_timeout_ms", std::to_string(instructions.failure_timeout_ms));
  fields.emplace_back("lease_deadline_ms", std::to_string(instructions.lease_deadline_ms));
  fields.emplace_back("stop_signal", std::to_string(instructions.stop_signal));
  fields.emplace_back("grace_ms", std::to_string(instructions.grace_ms));
  fields.emplace_back("kill_patience_ms", std::to_string(instructions.kill_patience_ms));
  fields.emplace_back("hang_timeout_ms", std::to_string(instructions.hang_timeout_ms));
  fields.emplace_back("memory_interval_ms", std::to_string(instructions.memory_interval_ms));
  fields.emplace_back("mark", std::to_string(instructions.mark));
  fields.emplace_back("cgroup", instructions.cgroup);
  fields.emplace_back("memory_bytes", std::to_string(instructions.limits.memory_bytes));
  fields.emplace_back("pids", std::to_string(instructions.limits.pids));
  for (const int cpu : instructions.cpus) fields.emplace_back("cpu", std::to_string(cpu));
  return EncodeFields(fields);
}

std::optional<Instructions> DecodeInstructions(const std::string& text) {
  const std::optional<Fields> fields = DecodeFields(text);
  if (!fields.has_value()) return std::nullopt;
  Instructions result;
  bool ok = true;
  for (const auto& [key, value] : *fields) {
    if (key == "user") ok = ok && (result.user = DecodeCredentials(value)).has_value();
    if (key == "arg") result.command.push_back(value);
    if (key == "env") result.environment.push_back(value);
    if (key == "workdir") result.workdir = value;
    if (key == "checkpoint_dir") result.checkpoint_dir = value;
    if (key == "stdout") result.stdout_path = value;
    if (key == "stderr") result.stderr_path = value;
    if (key == "joined_output") ok = ok && Parse(value, result.joined_output);
    if (key == "log_max_bytes") ok = ok && Parse(value, result.log_max_bytes);
    if (key == "failure_timeout_ms") ok = ok && Parse(value, result.failure_timeout_ms);
    if (key == "lease_deadline_ms") ok = ok && Parse(value, result.lease_deadline_ms);
    if (key == "stop_signal") ok = ok && Parse(value, result.stop_signal);
    if (key == "grace_ms") ok = ok && Parse(value, result.grace_ms);
    if (key == "kill_patience_ms") ok = ok && Parse(value, result.kill_patience_ms);
    if (key == "hang_timeout_ms") ok = ok && Parse(value, result.hang_timeout_ms);
    if (key == "memory_interval_ms") ok = ok && Parse(value, result.memory_interval_ms);
    if (key == "mark") ok = ok && Parse(value, result.mark);
    if (key == "cgroup") result.cgroup = value;
    if (key == "memory_bytes") ok = ok && Parse(value, result.limits.memory_bytes);
    if (key == "pids") ok = ok && Parse(value, result.limits.pids);
    int cpu = 0;
    if (key == "cpu" && (ok = ok && Parse(value, cpu))) result.cpus.push_back(cpu);
  }
  if (!ok || result.command.empty()) return std::nullopt;
  return result;
}

std::string EncodeExitRecord(const ExitRecord& record) {
  const auto flag = [](bool value) { return std::string(value ? "1" : "0"); };
  return EncodeFields({{"pid", std::to_string(record.pid)},
                       {"exit_code", std::to_string(record.exit_code)},
                       {"signal", std::to_string(record.signal)},
                       {"out_of_memory", flag(record.out_of_memory)},
                       {"stopped", flag(record.stopped)},
                       {"abandoned", flag(record.abandoned)},
                       {"lease_expired", flag(record.lease_expired)},
                       {"exec_errno", std::to_string(record.exec_errno)},
                       {"exec_error", record.exec_error},
                       {"stderr_tail", record.stderr_tail},
                       {"lost_log_lines", std::to_string(record.lost_output.lines)},
                       {"lost_log_bytes", std::to_string(record.lost_output.bytes)},
                       {"lost_log_reason", record.lost_output.reason},
                       {"time_unix_ms", std::to_string(record.time_unix_ms)}});
}

std::optional<ExitRecord> DecodeExitRecord(const std::string& text) {
  const std::optional<Fields> fields = DecodeFields(text);
  if (!fields.has_value() || fields->empty()) return std::nullopt;
  ExitRecord record;
  bool ok = true;
  for (const auto& [key, value] : *fields) {
    if (key == "pid") ok = ok && Parse(value, record.pid);
    if (key == "exit_code") ok = ok && Parse(value, record.exit_code);
    if (key == "signal") ok = ok && Parse(value, record.signal);
    if (key == "out_of_memory") ok = ok && Parse(value, record.out_of_memory);
    if (key == "stopped") ok = ok && Parse(value, record.stopped);
    if (key == "abandoned") ok = ok && Parse(value, record.abandoned);
    if (key == "lease_expired") ok = ok && Parse(value, record.lease_expired);
    if (key == "exec_errno") ok = ok && Parse(value, record.exec_errno);
    if (key == "exec_error") record.exec_error = value;
    if (key == "stderr_tail") record.stderr_tail = value;
    if (key == "lost_log_lines") ok = ok && Parse(value, record.lost_output.lines);
    if (key == "lost_log_bytes") ok = ok && Parse(value, record.lost_output.bytes);
    if (key == "lost_log_reason") record.lost_output.reason = value;
    if (key == "time_unix_ms") ok = ok && Parse(value, record.time_unix_ms);
  }
  if (!ok) return std::nullopt;
  return record;
}

std::string EncodeInspection(const Inspection& inspection) {
  return EncodeFields({{"state", inspection.state},
                       {"cpu_ratio", std::to_string(inspection.cpu_ratio)},
                       {"waits_in", inspection.waits_in},
                       {"stack", inspection.stack}});
}

std::optional<Inspection> DecodeInspection(const std::string& text) {
  const std::optional<Fields> fields = DecodeFields(text);
  if (!fields.has_value() || fields->empty()) return std::nullopt;
  Inspection inspection;
  for (const auto& [key, value] : *fields) {
    if (key == "state") inspection.state = value;
    if (key == "cpu_ratio") inspection.cpu_ratio = std::strtod(value.c_str(), nullptr);
    if (key == "waits_in") inspection.waits_in = value;
    if (key == "stack") inspection.stack = value;
  }
  return inspection;
}

}  // namespace muster::shim
