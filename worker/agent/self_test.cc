#include "worker/agent/self_test.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/files/replace_file.h"
#include "common/status.h"
#include "common/time/now.h"
#include "common/time/proto_time.h"
#include "worker/shim/fields.h"

namespace muster::agent {
namespace {

constexpr size_t kFileBytes = size_t{1} << 20;
constexpr uint64_t kFreeBytes = uint64_t{64} << 20;
// A smaller file system needs only this part of its size.
constexpr uint64_t kFreePart = 8;
constexpr char kFileName[] = "/self-test";

absl::Status CheckContent(int file, const std::string& path, const std::string& content) {
  // Drops the pages, so that they are read from the disk; a file system may ignore this.
  posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  std::string found(content.size(), '\0');
  for (size_t read = 0; read < found.size();) {
    const ssize_t size =
        pread(file, found.data() + read, found.size() - read, static_cast<off_t>(read));
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return ErrnoStatus(errno, absl::StrCat("read ", path));
    if (size == 0) return absl::DataLossError(absl::StrCat("read ", path, ": the file is short"));
    read += static_cast<size_t>(size);
  }
  if (found == content) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("read ", path, ": the contents have changed"));
}

std::string MebibytesText(uint64_t bytes) { return absl::StrCat(bytes >> 20, " MiB"); }

v1::SelfTest::Check MakeCheck(const std::string& name, const absl::Status& status) {
  v1::SelfTest::Check check;
  check.set_name(name);
  check.set_failure(std::string(status.message()));
  return check;
}

}  // namespace

uint32_t CpuCount() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return static_cast<uint32_t>(CPU_COUNT(&set));
  return static_cast<uint32_t>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
}

uint64_t MemoryBytes() {
  return static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<uint64_t>(sysconf(_SC_PAGE_SIZE));
}

absl::StatusOr<uint64_t> AvailableMemoryBytes(const std::string& meminfo) {
  const std::string text = shim::ReadFile(meminfo).value_or("");
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::ConsumePrefix(&line, "MemAvailable:")) continue;
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    uint64_t kibibytes = 0;
    if (!words.empty() && absl::SimpleAtoi(words[0], &kibibytes)) return kibibytes << 10;
  }
  return absl::NotFoundError(absl::StrCat(meminfo, " has no MemAvailable"));
}

absl::Status CheckDisk(const std::string& folder) {
  const std::string path = absl::StrCat(folder, kFileName);
  const OwnedFd file(open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (file.get() < 0) return ErrnoStatus(errno, absl::StrCat("create ", path));
  const absl::Cleanup remove = [&path] { unlink(path.c_str()); };
  std::string content(kFileBytes, '\0');
  for (size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * 31 + (i >> 8));
  if (!WriteAll(file.get(), content)) return ErrnoStatus(errno, absl::StrCat("write ", path));
  if (fsync(file.get()) != 0) return ErrnoStatus(errno, absl::StrCat("sync ", path));
  RETURN_IF_ERROR(CheckContent(file.get(), path, content));
  struct statvfs space;
  if (statvfs(folder.c_str(), &space) != 0) {
    return ErrnoStatus(errno, absl::StrCat("read the free space of ", folder));
  }
  const uint64_t needed = std::min(kFreeBytes, space.f_blocks * space.f_frsize / kFreePart);
  // The file is not removed yet, but ranks can use its space.
  const uint64_t free = space.f_bavail * space.f_frsize + kFileBytes;
  if (free >= needed) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(folder, " has ", MebibytesText(free),
                                                   " free; at least ", MebibytesText(needed),
                                                   " are needed"));
}

absl::Status CheckMemory(const std::string& meminfo) {
  const absl::StatusOr<uint64_t> available = AvailableMemoryBytes(meminfo);
  // Without the file there is no evidence against the node.
  if (!available.ok() || *available >= kFreeBytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(MebibytesText(*available),
                                                   " available; at least ",
                                                   MebibytesText(kFreeBytes), " are needed"));
}

std::vector<v1::SelfTest::Check> CheckHost(const std::string& data_dir) {
  return {MakeCheck("disk", CheckDisk(data_dir)), MakeCheck("memory", CheckMemory())};
}

SelfTester::SelfTester(EventLoop& loop, Checks checks, std::string name, absl::Duration limit)
    : loop_(loop),
      checks_(std::move(checks)),
      name_(std::move(name)),
      limit_(limit),
      shared_(std::make_shared<Shared>()) {
  absl::MutexLock lock(&shared_->mutex);
  shared_->tester = this;
}

SelfTester::~SelfTester() {
  if (request_.has_value()) loop_.Cancel(request_->timeout);
  absl::MutexLock lock(&shared_->mutex);
  shared_->tester = nullptr;
}

void SelfTester::Run(uint64_t id, std::vector<v1::SelfTest::Check> others, Done done) {
  if (request_.has_value()) loop_.Cancel(request_->timeout);
  request_ = Request{id, std::move(others), std::move(done), Now().steady,
                     loop_.RunAfter(limit_, [this] { OnTimeout(); })};
  if (running_) return;
  running_ = true;
  std::thread([shared = shared_, checks = checks_] {
    std::vector<v1::SelfTest::Check> results = checks();
    absl::MutexLock lock(&shared->mutex);
    if (shared->tester == nullptr) return;
    // The object may be destroyed before the closure runs.
    shared->tester->loop_.Post([shared, results = std::move(results)] {
      SelfTester* tester = nullptr;
      {
        absl::MutexLock lock(&shared->mutex);
        tester = shared->tester;
      }
      if (tester == nullptr) return;
      tester->running_ = false;
      tester->Answer(results);
    });
  }).detach();
}

void SelfTester::OnTimeout() {
  Answer({MakeCheck(name_, absl::DeadlineExceededError(absl::StrCat(
                               "the check has not ended after ", absl::FormatDuration(limit_))))});
}

void SelfTester::Answer(std::vector<v1::SelfTest::Check> checks) {
  if (!request_.has_value()) return;
  Request request = *std::move(request_);
  request_.reset();
  loop_.Cancel(request.timeout);
  v1::SelfTestReport report;
  report.set_id(request.id);
  for (v1::SelfTest::Check& check : checks) *report.add_checks() = std::move(check);
  for (v1::SelfTest::Check& check : request.others) *report.add_checks() = std::move(check);
  *report.mutable_duration() = ToProto(Now().steady - request.start);
  request.done(std::move(report));
}

}  // namespace muster::agent
