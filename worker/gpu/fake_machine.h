// A fake machine for tests, with worker/gpu/testing/fake_nvml.c as its NVML.
#ifndef MUSTER_WORKER_GPU_FAKE_MACHINE_H_
#define MUSTER_WORKER_GPU_FAKE_MACHINE_H_

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "worker/gpu/nvml.h"

namespace muster::gpu {

// Only one instance at a time, because the library finds the machine's file through the
// environment.
class FakeMachine {
 public:
  explicit FakeMachine(const std::vector<std::string>& lines) {
    Become(lines);
    setenv("FAKE_NVML", path_.c_str(), 1);
  }

  // Replaces the machine's state; the format is described in fake_nvml.c.
  void Become(const std::vector<std::string>& lines) {
    const std::string next = path_ + ".next";
    std::ofstream(next) << absl::StrJoin(lines, "\n") << "\n";
    EXPECT_EQ(rename(next.c_str(), path_.c_str()), 0);
  }

  static std::string Library(const char* name = "libfake_nvml.so") {
    return absl::StrCat("worker/gpu/testing/", name);
  }

  std::unique_ptr<Nvml> Open(const char* library = "libfake_nvml.so") const {
    auto nvml = Nvml::Open(Library(library));
    EXPECT_TRUE(nvml.ok()) << nvml.status();
    return nvml.ok() ? *std::move(nvml) : nullptr;
  }

 private:
  const std::string path_ = testing::TempDir() + "/machine";
};

}  // namespace muster::gpu

#endif  // MUSTER_WORKER_GPU_FAKE_MACHINE_H_
