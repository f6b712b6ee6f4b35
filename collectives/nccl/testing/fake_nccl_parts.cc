#include "collectives/nccl/testing/fake_nccl_parts.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/testing/host_queue.h"

namespace muster::collectives {
namespace {

constexpr size_t kAddressableBytes = size_t{1} << 47;  // limit of a process's address space
constexpr size_t kAlignment = 64;

class HostStream final : public kernels::DeviceStream {
 public:
  explicit HostStream(const HostCompute* compute) : compute_(compute) {}

  absl::Status Enter() override { return absl::OkStatus(); }
  void* native() override { return queue_.native(); }

  absl::StatusOr<Mark> RecordComputeEvent() override {
    return compute_ == nullptr ? Mark{0} : compute_->given.load();
  }
  absl::Status AwaitCompute(Mark mark) override {
    if (compute_ != nullptr) {
      queue_.Push([this, mark] { return compute_->done.load() >= mark; });
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Mark> Record() override { return queue_.given(); }
  absl::StatusOr<bool> Reached(Mark mark) override { return queue_.Reached(mark); }
  absl::Status MakeComputeWait(Mark mark) override {
    queue_.Await(mark);
    return absl::OkStatus();
  }
  bool IsCapturing() override { return false; }

  absl::Status Copy(void* to, const void* from, size_t bytes) override {
    queue_.Push([=] {
      std::memcpy(to, from, bytes);
      return true;
    });
    return absl::OkStatus();
  }

  absl::StatusOr<void*> Allocate(size_t bytes) override {
    void* const data = bytes < kAddressableBytes
                           ? std::aligned_alloc(kAlignment, (bytes / kAlignment + 1) * kAlignment)
                           : nullptr;
    if (data != nullptr) return data;
    return absl::ResourceExhaustedError(absl::StrCat("cannot allocate ", bytes, " bytes"));
  }
  void Free(void* data) override { std::free(data); }

  std::atomic<uint32_t>& flag() override { return flag_; }

 private:
  const HostCompute* const compute_;
  kernels::HostQueue queue_;
  std::atomic<uint32_t> flag_{0};
};

}  // namespace

std::unique_ptr<kernels::DeviceStream> MakeHostStream(const HostCompute* compute) {
  return std::make_unique<HostStream>(compute);
}

std::string FakeNcclPath(const std::string& library) {
  return absl::StrCat("collectives/nccl/testing/", library);
}

NcclParts FakeNcclParts(const HostCompute* compute, const std::string& library) {
  NcclParts parts;
  auto opened = OpenNcclLibrary(FakeNcclPath(library));
  if (!opened.ok()) {
    std::fprintf(stderr, "%s\n", opened.status().ToString().c_str());
    std::abort();
  }
  parts.library = *std::move(opened);
  parts.make_stream = [compute] { return MakeHostStream(compute); };
  return parts;
}

FakeNcclRules::FakeNcclRules()
    : path_(absl::StrCat(std::getenv("TEST_TMPDIR"), "/fake-nccl-rules-", getpid())) {
  Become({});
  setenv("FAKE_NCCL", path_.c_str(), 1);
}

FakeNcclRules::~FakeNcclRules() {
  unsetenv("FAKE_NCCL");
  unlink(path_.c_str());
}

void FakeNcclRules::Become(const std::vector<std::string>& lines) {
  const std::string next = path_ + ".next";
  std::ofstream(next) << absl::StrJoin(lines, "\n") << "\n";
  if (rename(next.c_str(), path_.c_str()) != 0) std::abort();
}

}  // namespace muster::collectives
