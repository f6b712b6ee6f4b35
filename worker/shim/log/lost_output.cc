#include "worker/shim/log/lost_output.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <optional>

#include "worker/shim/fields.h"

namespace muster::shim {
namespace {

constexpr char kSuffix[] = ".lost";
// All records have the same size, so that a new one replaces the old one whole.
constexpr size_t kRecordBytes = 256;

}  // namespace

void LostOutput::Add(const LostOutput& other) {
  lines += other.lines;
  bytes += other.bytes;
  unmarked_lines += other.unmarked_lines;
  if (reason.empty()) reason = other.reason;
}

void LostOutput::AddBytes(std::string_view data, std::string_view why) {
  const auto ended = static_cast<uint64_t>(std::count(data.begin(), data.end(), '\n'));
  lines += ended;
  unmarked_lines += ended;
  bytes += data.size();
  reason = why;
}

std::string LinesText(uint64_t lines) {
  if (lines == 0) return "part of a line";
  return std::to_string(lines) + (lines == 1 ? " line" : " lines");
}

std::string LostText(const LostOutput& lost) {
  return LinesText(lost.lines) + " (" + std::to_string(lost.bytes) +
         " bytes) could not be stored: " + lost.reason;
}

LostOutput ReadLostOutput(const std::string& log_path) {
  LostOutput lost;
  const std::optional<std::string> text = ReadFile(log_path + kSuffix);
  if (!text.has_value() || text->size() != kRecordBytes) return lost;
  int reason = 0;
  if (std::sscanf(text->c_str(), "%" SCNu64 " %" SCNu64 " %" SCNu64 " %n", &lost.lines, &lost.bytes,
                  &lost.unmarked_lines, &reason) != 3) {
    return LostOutput();
  }
  lost.reason = text->substr(reason, text->find_last_not_of(" \n") + 1 - reason);
  return lost;
}

LostOutputFile::~LostOutputFile() {
  if (file_.get() >= 0 && empty_) unlink(path_.c_str());
}

LostOutput LostOutputFile::Open(const std::string& log_path) {
  path_ = log_path + kSuffix;
  file_ = OwnedFd(open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0640));
  LostOutput lost = ReadLostOutput(log_path);
  empty_ = lost.bytes == 0;
  // A file system that cannot reserve space may be able to write the record nevertheless.
  if (file_.get() >= 0) fallocate(file_.get(), FALLOC_FL_KEEP_SIZE, 0, kRecordBytes);
  return lost;
}

void LostOutputFile::Write(const LostOutput& lost) {
  if (file_.get() < 0) return;
  std::string record = std::to_string(lost.lines) + " " + std::to_string(lost.bytes) + " " +
                       std::to_string(lost.unmarked_lines) + " " + lost.reason;
  record.resize(kRecordBytes - 1, ' ');
  record += '\n';
  empty_ = pwrite(file_.get(), record.data(), record.size(), 0) <= 0 && empty_;
}

}  // namespace muster::shim
