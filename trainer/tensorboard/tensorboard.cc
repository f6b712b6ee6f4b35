#include "trainer/tensorboard/tensorboard.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/status.h"
#include "trainer/exit_code.h"

namespace muster::train {
namespace {

namespace fs = std::filesystem;

constexpr char kPrefix[] = "events.out.tfevents.";
constexpr char kFileVersion[] = "brain.Event:2";

absl::Status PathStatus(const std::error_code& error, const char* verb, const std::string& path) {
  return ErrnoStatus(error.value(), absl::StrCat(verb, " ", path));
}

// Seconds for the new file's name. Readers process files in name order, so this is later than the
// newest file's even if the clock went back or two writers started in the same second.
absl::StatusOr<int64_t> SecondsForName(const std::string& directory, absl::Time now) {
  int64_t seconds = absl::ToUnixSeconds(now);
  std::error_code error;
  fs::directory_iterator entries(directory, error);
  for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
    const std::string name = entries->path().filename().string();
    if (!absl::StartsWith(name, kPrefix)) continue;
    const std::vector<std::string> parts =
        absl::StrSplit(absl::string_view(name).substr(sizeof(kPrefix) - 1), '.');
    int64_t taken = 0;
    if (absl::SimpleAtoi(parts[0], &taken)) seconds = std::max(seconds, taken + 1);
  }
  if (error) return PathStatus(error, "read", directory);
  return seconds;
}

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "localhost";
}

absl::StatusOr<std::unique_ptr<RecordFile>> CreateFile(const std::string& directory,
                                                       absl::Time now) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) return PathStatus(error, "create", directory);
  ASSIGN_OR_RETURN(const int64_t seconds, SecondsForName(directory, now));
  return RecordFile::Create(
      absl::StrFormat("%s/%s%010d.%s.%d", directory, kPrefix, seconds, HostName(), getpid()));
}

}  // namespace

TensorBoardWriter::TensorBoardWriter(std::unique_ptr<RecordFile> file,
                                     std::function<absl::Time()> wall_clock)
    : file_(std::move(file)), wall_clock_(std::move(wall_clock)) {}

absl::StatusOr<std::unique_ptr<TensorBoardWriter>> TensorBoardWriter::Create(
    const std::string& directory, uint64_t first_step, std::function<absl::Time()> wall_clock) {
  auto file = CreateFile(directory, wall_clock());
  if (!file.ok()) return WithExitCode(file.status(), kExitCannotCreate);
  std::unique_ptr<TensorBoardWriter> writer(
      new TensorBoardWriter(*std::move(file), std::move(wall_clock)));

  tensorboard::Event version;
  version.set_file_version(kFileVersion);
  RETURN_IF_ERROR(writer->Append(version));
  tensorboard::Event start;
  start.set_step(static_cast<int64_t>(first_step));
  start.mutable_session_log()->set_status(tensorboard::SessionLog::START);
  RETURN_IF_ERROR(writer->Append(start));
  return writer;
}

absl::Status TensorBoardWriter::AddScalars(uint64_t step, absl::Span<const Scalar> scalars) {
  tensorboard::Event event;
  event.set_step(static_cast<int64_t>(step));
  for (const auto& [tag, value] : scalars) {
    tensorboard::Summary::Value& entry = *event.mutable_summary()->add_value();
    entry.set_tag(tag);
    entry.set_simple_value(static_cast<float>(value));
  }
  return Append(event);
}

absl::Status TensorBoardWriter::Append(tensorboard::Event& event) {
  event.set_wall_time(absl::ToDoubleSeconds(wall_clock_() - absl::UnixEpoch()));
  return WithExitCode(file_->Append(event.SerializeAsString()), kExitCannotCreate);
}

absl::Status TensorBoardWriter::Flush() { return WithExitCode(file_->Sync(), kExitCannotCreate); }

}  // namespace muster::train
