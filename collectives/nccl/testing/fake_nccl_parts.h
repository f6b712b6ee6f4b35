// Runs the nccl backend without a GPU, on libfake_nccl.so and host streams; for tests.
#ifndef MUSTER_COLLECTIVES_NCCL_TESTING_FAKE_NCCL_PARTS_H_
#define MUSTER_COLLECTIVES_NCCL_TESTING_FAKE_NCCL_PARTS_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "collectives/nccl/nccl.h"
#include "kernels/device_stream.h"

namespace muster::collectives {

// Number of computations enqueued on and completed by a device.
struct HostCompute {
  std::atomic<uint64_t> given{0};
  std::atomic<uint64_t> done{0};
};

// Creates a stream on a kernels::HostQueue. `compute` must outlive it; null: the device computes
// nothing.
std::unique_ptr<kernels::DeviceStream> MakeHostStream(const HostCompute* compute = nullptr);

// Opens `library`, a file of collectives/nccl/testing, in this process, as a rank does. Aborts the
// process if that fails.
NcclParts FakeNcclParts(const HostCompute* compute = nullptr,
                        const std::string& library = "libfake_nccl.so");

// Returns the path of a library of collectives/nccl/testing.
std::string FakeNcclPath(const std::string& library = "libfake_nccl.so");

// Rules (see fake_nccl.cc) for the fake libraries of this process and of processes that it forks
// later. One instance at a time.
class FakeNcclRules {
 public:
  FakeNcclRules();
  ~FakeNcclRules();
  FakeNcclRules(const FakeNcclRules&) = delete;
  FakeNcclRules& operator=(const FakeNcclRules&) = delete;

  // Replaces all rules.
  void Become(const std::vector<std::string>& lines);

 private:
  const std::string path_;
};

}  // namespace muster::collectives

#endif  // MUSTER_COLLECTIVES_NCCL_TESTING_FAKE_NCCL_PARTS_H_
