#include "worker/agent/logs/log_tail.h"

#include <algorithm>
#include <utility>

#include "common/limits.h"
#include "worker/agent/logs/log_file_reader.h"
#include "worker/shim/lost_output.h"

namespace muster::agent {

std::optional<v1::LogChunk> ReadLogTail(const std::string& path) {
  const auto reader = LogFileReader::Open(path, /*create=*/false);
  if (!reader.ok() || !(*reader)->SeekLastBytes(limits::kLogTailBytes).ok()) return std::nullopt;
  const bool whole = (*reader)->offset() == 0;
  absl::StatusOr<LogPiece> piece = (*reader)->Read(limits::kLogTailBytes);
  if (!piece.ok()) return std::nullopt;
  const shim::LostOutput lost = shim::ReadLostOutput(path);
  if (piece->data.empty() && lost.bytes == 0) return std::nullopt;
  // Starts at a line, unless that would leave nothing.
  const size_t newline = whole ? std::string::npos : piece->data.find('\n');
  const size_t start = newline >= piece->data.size() - 1 ? 0 : newline + 1;
  v1::LogChunk chunk;
  chunk.set_offset(piece->offset + start);
  chunk.set_data(piece->data.substr(start));
  chunk.set_end(true);
  if (lost.bytes > 0) chunk.set_notice(shim::LostText(lost));
  const size_t known = std::min(piece->lines.size(), limits::kLogTailLines);
  for (auto line = piece->lines.end() - known; line != piece->lines.end(); ++line) {
    if (line->offset < chunk.offset()) continue;
    v1::LineTime& time = *chunk.add_lines();
    time.set_offset(line->offset);
    time.set_unix_micros(line->unix_micros);
  }
  return chunk;
}

}  // namespace muster::agent
