#include "worker/shim/rank/rank_output.h"

#include <unistd.h>

#include <cerrno>
#include <utility>

#include "common/limits.h"
#include "worker/shim/clock.h"

namespace muster::shim {
namespace {

constexpr size_t kReadsPerTurn = 16;  // from one pipe before the workers are served again
// Shortest time between reports of lost output.
constexpr int64_t kLostIntervalMs = 5000;

}  // namespace

RankOutput::RankOutput(const Instructions& instructions, Events events)
    : instructions_(instructions),
      events_(std::move(events)),
      tail_(limits::kStderrTailLines, limits::kStderrTailBytes) {}

bool RankOutput::Open() {
  return out_.log.Open(instructions_.stdout_path, instructions_.log_max_bytes) &&
         err_.log.Open(instructions_.stderr_path, instructions_.log_max_bytes);
}

void RankOutput::SetPipes(OwnedFd out, OwnedFd err) {
  out_.pipe = std::move(out);
  err_.pipe = std::move(err);
}

void RankOutput::OnReadable(int fd) {
  if (fd == out_.pipe.get()) return Read(out_, false);
  if (fd == err_.pipe.get()) Read(err_, false);
}

bool RankOutput::AddNote(std::string_view line) {
  // Not added to the tail, which contains only the rank's output.
  const bool waiting = err_.log.has_waiting_notes();
  err_.log.AddNote(line, WallMicros());
  return !waiting && err_.log.has_waiting_notes();
}

void RankOutput::WriteNotes() { err_.log.WriteNotes(WallMicros()); }

void RankOutput::Finish() {
  Read(out_, true);
  Read(err_, true);
  out_.log.Finish(WallMicros());
  err_.log.Finish(WallMicros());
}

std::string RankOutput::StateLines() const {
  return out_.LimitLine() + err_.LimitLine() + LostLine();
}

LostOutput RankOutput::Lost() const {
  LostOutput lost = out_.log.lost();
  lost.Add(err_.log.lost());
  return lost;
}

std::string RankOutput::LostLine() const {
  const LostOutput lost = Lost();
  if (lost.bytes == 0) return "";
  return "lost " + std::to_string(lost.lines) + " " + std::to_string(lost.bytes) + " " +
         lost.reason + "\n";
}

std::string RankOutput::Stream::LimitLine() const {
  if (drops.empty()) return "";
  return std::string("log-limit ").append(name).append(" ").append(drops).append("\n");
}

void RankOutput::Read(Stream& stream, bool all) {
  char buffer[64 << 10];
  for (size_t i = 0; stream.pipe.get() >= 0 && (all || i < kReadsPerTurn); ++i) {
    const ssize_t n = read(stream.pipe.get(), buffer, sizeof(buffer));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) return stream.pipe.Close();
    const std::string_view data(buffer, static_cast<size_t>(n));
    stream.log.Append(data, WallMicros());
    if (std::exchange(stream.drops, stream.log.drops()) != stream.drops) {
      events_.on_line(stream.LimitLine());
    }
    const uint64_t lost_bytes = stream.log.lost().bytes;
    if (std::exchange(stream.lost_bytes, lost_bytes) != lost_bytes &&
        MonotonicMs() >= next_lost_report_ms_) {
      next_lost_report_ms_ = MonotonicMs() + kLostIntervalMs;
      events_.on_line(LostLine());
    }
    if (instructions_.joined_output == (&stream == &out_)) tail_.Append(data);
    events_.on_output();
  }
}

}  // namespace muster::shim
