#include "coordinator/service/relay/log_tail_chunk.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "common/limits.h"
#include "common/time/proto_time.h"

namespace muster::service {
namespace {

// Position of the last `lines` lines.
size_t StartOfLines(absl::string_view data, uint64_t lines) {
  for (size_t end = data.size(); end > 0; --end) {
    // A newline at the end does not start a line.
    if (data[end - 1] == '\n' && end < data.size() && --lines == 0) return end;
  }
  return 0;
}

// Position of the first line from this time on; lines without a known time count as earlier, unless
// no time is known.
size_t StartSince(const v1::LogChunk& chunk, absl::Time since) {
  if (chunk.lines().empty()) return 0;
  for (const v1::LineTime& line : chunk.lines()) {
    if (line.unix_micros() >= absl::ToUnixMicros(since)) return line.offset() - chunk.offset();
  }
  return chunk.data().size();
}

}  // namespace

v1::LogChunk LogTailChunk(const v1::ReadLogRequest& request, const v1::LogTail& tail,
                          absl::string_view reason) {
  v1::LogChunk chunk = request.stream() == v1::STDOUT ? tail.stdout_end() : tail.stderr_end();
  const std::string& data = chunk.data();
  size_t start = 0;
  if (request.tail_lines() > 0) {
    start = StartOfLines(data, request.tail_lines());
  } else if (request.offset() > chunk.offset()) {
    start = request.offset() - chunk.offset();
  }
  if (request.has_since()) start = std::max(start, StartSince(chunk, FromProto(request.since())));
  start = std::min(start, data.size());
  chunk.mutable_data()->erase(0, start);
  chunk.set_offset(chunk.offset() + start);
  auto& lines = *chunk.mutable_lines();
  lines.erase(lines.begin(), std::find_if(lines.begin(), lines.end(), [&](const v1::LineTime& l) {
                return l.offset() >= chunk.offset();
              }));
  chunk.set_end(true);
  chunk.set_generation(tail.generation());
  std::vector<std::string> notices;
  if (!data.empty()) {
    notices.push_back(absl::StrCat(reason, "; the coordinator kept only the last ",
                                   limits::kLogTailBytes >> 10, "KiB of each log"));
  }
  if (!chunk.notice().empty()) {
    notices.push_back(
        absl::StrCat("rank ", tail.rank(), ", ",
                     request.stream() == v1::STDOUT ? "stdout: " : "stderr: ", chunk.notice()));
  }
  chunk.set_notice(absl::StrJoin(notices, "; "));
  return chunk;
}

}  // namespace muster::service
