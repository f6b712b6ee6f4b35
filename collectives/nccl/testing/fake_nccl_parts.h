// For tests: the nccl backend without a GPU, on libfake_nccl.so and streams of the host.
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

// What a device has been given to compute and what it has done of it, as counts.
struct HostCompute {
  std::atomic<uint64_t> given{0};
  std::atomic<uint64_t> done{0};
};

// On a kernels::HostQueue. `compute` outlives it; null: the device computes nothing.
std::unique_ptr<kernels::DeviceStream> MakeHostStream(const HostCompute* compute = nullptr);

// Opened in this process, as a rank does; checked by the test. `library` is a file of
// collectives/nccl/testing.
NcclParts FakeNcclParts(const HostCompute* compute = nullptr,
                        const std::string& library = "libfake_nccl.so");

// The path of a library of collectives/nccl/testing.
std::string FakeNcclPath(const std::string& library = "libfake_nccl.so");

// What the fake libraries of this process and of those that it forks from now on do; see
// fake_nccl.cc. One at a time.
class FakeNcclRules {
 public:
  FakeNcclRules();
  ~FakeNcclRules();
  FakeNcclRules(const FakeNcclRules&) = delete;
  FakeNcclRules& operator=(const FakeNcclRules&) = delete;

  // From now on these and no others.
  void Become(const std::vector<std::string>& lines);

 private:
  const std::string path_;
};

}  // namespace muster::collectives

#endif  // MUSTER_COLLECTIVES_NCCL_TESTING_FAKE_NCCL_PARTS_H_
