#include "worker/agent/generation/error_file.h"

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/limits.h"
#include "nlohmann/json.hpp"
#include "worker/agent/user_files.h"

namespace muster::agent {
namespace {

using nlohmann::json;

// PyTorch writes the message twice, and messages may contain whole tensors.
constexpr size_t kMaxFileBytes = 64 << 20;
// Limit of the JSON values in a file. Parsed, they take up to 80 times the size of the file, so a
// job could otherwise exhaust the memory of its worker.
constexpr size_t kMaxValues = 10'000;
constexpr auto kLargestStatusCode = static_cast<uint32_t>(absl::StatusCode::kUnauthenticated);
constexpr absl::string_view kTraceback = "Traceback (most recent call last):";
constexpr absl::string_view kFrame = "  File \"";

// Messages of Gloo, NCCL and PyTorch's store.
constexpr absl::string_view kLostPeer[] = {
    "Connection closed by peer",
    "Connection reset by peer",
    "Broken pipe",
    "remote process exited or there was a network error",
    "remote process has terminated",
    "NCCL communicator was aborted",
    "Socket closed by remote peer",
    "Failed to recv, got 0 bytes",
};

std::string Text(const json& object, const char* key) {
  if (!object.is_object()) return "";
  const auto it = object.find(key);
  return it != object.end() && it->is_string() ? it->get<std::string>() : std::string();
}

// An integer from 0 to `most`.
std::optional<uint32_t> Number(const json& object, const char* key, uint32_t most) {
  const auto it = object.find(key);
  if (it == object.end() || !it->is_number_unsigned()) return std::nullopt;
  const auto number = it->get<uint64_t>();
  if (number > most) return std::nullopt;
  return static_cast<uint32_t>(number);
}

bool HasTooManyValues(absl::string_view json) {
  size_t values = 0;
  bool in_string = false;
  for (size_t i = 0; i < json.size() && values <= kMaxValues; ++i) {
    if (json[i] == '"') in_string = !in_string;
    if (json[i] == '\\') ++i;  // only in strings; skips an escaped quotation mark
    if (!in_string && i < json.size() && absl::StrContains("[{,", json[i])) ++values;
  }
  return values > kMaxValues;
}

}  // namespace

std::optional<ProgramError> ReadErrorFile(const std::string& path, std::optional<uid_t> uid) {
  const std::optional<std::string> text = ReadUserFile(path, kMaxFileBytes, uid);
  if (!text.has_value() || HasTooManyValues(*text)) return std::nullopt;
  const json file = json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!file.is_object() || !file.contains("message")) return std::nullopt;
  const json& message = file["message"];
  ProgramError error;
  error.message = Text(file, "message");
  if (message.is_object()) {
    error.message = Text(message, "message");
    if (message.contains("extraInfo")) {
      error.traceback = Text(message["extraInfo"], "py_callstack");
    }
  }
  if (error.message.empty()) return std::nullopt;
  error.peer_rank = Number(file, "peer_rank", limits::kRanksPerJob - 1);
  if (const auto code = Number(file, "status_code", kLargestStatusCode); code.value_or(0) != 0) {
    error.status_code = static_cast<int>(*code);
  }
  return error;
}

std::optional<std::string> PythonError(absl::string_view lines) {
  const size_t start = lines.rfind(kTraceback);
  if (start != absl::string_view::npos) {
    lines.remove_prefix(start + kTraceback.size());
  } else {
    // The tail of a long traceback contains only its last frames.
    const size_t frame =
        absl::StartsWith(lines, kFrame) ? 0 : lines.find(absl::StrCat("\n", kFrame));
    if (frame == absl::string_view::npos) return std::nullopt;
    lines.remove_prefix(frame);
  }
  // Frames are indented; the first line that is not indented is the exception.
  for (const absl::string_view line : absl::StrSplit(lines, '\n', absl::SkipWhitespace())) {
    if (line[0] != ' ') return std::string(absl::StripTrailingAsciiWhitespace(line));
  }
  return std::nullopt;
}

bool IsPeerLostMessage(absl::string_view message) {
  for (const absl::string_view text : kLostPeer) {
    if (absl::StrContains(message, text)) return true;
  }
  return false;
}

}  // namespace muster::agent
