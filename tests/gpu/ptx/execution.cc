#include "tests/gpu/ptx/execution.h"

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status.h"
#include "tests/gpu/ptx/launch_memory.h"
#include "tests/gpu/ptx/thread.h"

namespace muster::ptx {
namespace {

constexpr uint32_t kMaxThreads = 1024;
constexpr uint32_t kMaxGridYZ = 65535;
constexpr size_t kMaxStaticSharedBytes = 48 << 10;
constexpr size_t kMaxSharedBytes = 227 << 10;

std::string NameOf(const Dim3& at) { return absl::StrFormat("(%d,%d,%d)", at.x, at.y, at.z); }

class Launch {
 public:
  Launch(const Kernel& kernel, const LaunchConfig& config, DeviceMemory& global)
      : kernel_(kernel),
        config_(config),
        global_(global),
        memory_(kernel, kernel.static_shared_bytes + config.dynamic_shared_bytes, global),
        thread_(memory_),
        threads_(config.block.x * config.block.y * config.block.z),
        // Without barriers, threads run one after the other and can use the same registers.
        register_files_(kernel.has_barrier ? threads_ : 1),
        registers_(new uint64_t[size_t{kernel.slots} * register_files_]) {}

  absl::Status Run(absl::Span<const void* const> arguments, Counters& counters) {
    for (size_t i = 0; i < arguments.size(); ++i) {
      const Parameter& parameter = kernel_.parameters[i];
      std::memcpy(memory_.parameters().data() + parameter.offset, arguments[i], parameter.bytes);
    }
    for (uint32_t i = 0; i < register_files_; ++i) {
      uint64_t* const file = &registers_[size_t{i} * kernel_.slots];
      for (const Constant& each : kernel_.constants) file[each.slot] = each.value;
    }
    thread_.accessor.order = &memory_.order();
    thread_.accessor.launch_begin = PhaseStamp(global_.NextPhase());
    absl::Status status;
    uint64_t blocks = 0;
    Dim3 block;
    for (block.z = 0; block.z < config_.grid.z && status.ok(); ++block.z) {
      for (block.y = 0; block.y < config_.grid.y && status.ok(); ++block.y) {
        for (block.x = 0; block.x < config_.grid.x && status.ok(); ++block.x) {
          status = RunBlock(block);
          ++blocks;
        }
      }
    }
    ++counters.launches;
    counters.blocks += blocks;
    counters.threads += blocks * threads_;
    counters.instructions += instructions_;
    return status;
  }

 private:
  // A thread of the current block between two barriers.
  struct Progress {
    const Instruction* at;
    uint64_t instructions = 0;
    Stop stop = Stop::kNone;
  };

  absl::Status RunBlock(const Dim3& block) {
    BeginPhase();
    thread_.accessor.block_begin = thread_.accessor.phase_begin;
    memory_.order().BeginBlock(thread_.accessor.block_begin);
    progress_.assign(threads_, {kernel_.code.data()});
    for (uint32_t i = 0; i < threads_; ++i) {
      SelectThread(i);
      SetCoordinates(block, i);
      RETURN_IF_ERROR(RunThread(block, i));
    }
    while (kernel_.has_barrier && progress_[0].stop == Stop::kBarrier) {
      RETURN_IF_ERROR(CheckBarrier(block));
      BeginPhase();
      for (uint32_t i = 0; i < threads_; ++i) {
        SelectThread(i);
        RETURN_IF_ERROR(RunThread(block, i));
      }
    }
    return CheckBarrier(block);
  }

  void BeginPhase() { thread_.accessor.phase_begin = PhaseStamp(global_.NextPhase()); }

  void SelectThread(uint32_t index) {
    thread_.registers = &registers_[kernel_.has_barrier ? size_t{index} * kernel_.slots : 0];
    thread_.accessor.self = thread_.accessor.phase_begin | index;
  }

  void SetCoordinates(const Dim3& block, uint32_t index) {
    const Dim3 at = ThreadAt(index);
    const std::array<uint32_t, kSpecialRegisters> values = {
        at.x,    at.y,    at.z,    config_.block.x, config_.block.y, config_.block.z,
        block.x, block.y, block.z, config_.grid.x,  config_.grid.y,  config_.grid.z};
    for (uint32_t slot = 0; slot < kSpecialRegisters; ++slot) thread_.Set(slot, values[slot]);
  }

  Dim3 ThreadAt(uint32_t index) const {
    const Dim3& size = config_.block;
    return {index % size.x, index / size.x % size.y, index / size.x / size.y};
  }

  // Runs the thread until it reaches a barrier or ends.
  absl::Status RunThread(const Dim3& block, uint32_t index) {
    Progress& progress = progress_[index];
    const uint64_t left = config_.max_instructions_per_thread - progress.instructions;
    uint64_t executed = 0;
    const Instruction* instruction = progress.at;
    const Instruction* last = instruction;
    while (instruction != nullptr && executed < left) {
      last = instruction;
      instruction = instruction->run(*instruction, thread_);
      ++executed;
    }
    progress.instructions += executed;
    instructions_ += executed;
    if (instruction != nullptr) {
      thread_.Fail(*last, absl::StatusCode::kDeadlineExceeded,
                   absl::StrCat("the thread executed ", progress.instructions,
                                " instructions: probably an infinite loop"));
    }
    progress.stop = thread_.stop;
    progress.at = thread_.at + 1;
    if (thread_.stop != Stop::kFault) return absl::OkStatus();
    return absl::Status(thread_.fault.code(), absl::StrCat(Place(block, index, *thread_.at), ": ",
                                                           thread_.fault.message()));
  }

  // All threads of the block must wait at the same barrier, or all must have ended.
  absl::Status CheckBarrier(const Dim3& block) const {
    for (uint32_t i = 1; i < threads_; ++i) {
      const bool same_place =
          progress_[0].stop == Stop::kExit || progress_[i].at == progress_[0].at;
      if (progress_[i].stop == progress_[0].stop && same_place) continue;
      const uint32_t waiting = progress_[i].stop == Stop::kBarrier ? i : 0;
      const uint32_t other = waiting == 0 ? i : 0;
      const std::string what =
          progress_[other].stop == Stop::kExit
              ? "has ended"
              : absl::StrCat("waits at line ", LineOf(*(progress_[other].at - 1)));
      return absl::AbortedError(absl::StrCat(Place(block, waiting, *(progress_[waiting].at - 1)),
                                             ": divergent barrier: thread ",
                                             NameOf(ThreadAt(other)), " ", what));
    }
    return absl::OkStatus();
  }

  uint32_t LineOf(const Instruction& instruction) const {
    return kernel_.lines[&instruction - kernel_.code.data()];
  }

  std::string Place(const Dim3& block, uint32_t thread, const Instruction& instruction) const {
    const uint32_t line = LineOf(instruction);
    return absl::StrCat(kernel_.name, ", block ", NameOf(block), ", thread ",
                        NameOf(ThreadAt(thread)), ", PTX line ", line, " `",
                        std::string(kernel_.source->Line(line)), "`");
  }

  const Kernel& kernel_;
  const LaunchConfig& config_;
  DeviceMemory& global_;
  LaunchMemory memory_;
  Thread thread_;
  const uint32_t threads_;  // per block
  const uint32_t register_files_;
  // Uninitialised: the decoder checks that registers are written before they are read.
  const std::unique_ptr<uint64_t[]> registers_;
  std::vector<Progress> progress_;  // progress of the block's threads
  uint64_t instructions_ = 0;
};

absl::Status Check(const Kernel& kernel, const LaunchConfig& config,
                   absl::Span<const void* const> arguments) {
  const auto invalid = [&](absl::string_view problem) {
    return absl::InvalidArgumentError(absl::StrCat(kernel.name, ": ", problem));
  };
  if (arguments.size() != kernel.parameters.size()) {
    return invalid(absl::StrCat(arguments.size(), " arguments, the kernel has ",
                                kernel.parameters.size(), " parameters"));
  }
  for (const void* argument : arguments) {
    if (argument == nullptr) return invalid("an argument is null");
  }
  const Dim3& grid = config.grid;
  const Dim3& block = config.block;
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > INT32_MAX || grid.y > kMaxGridYZ ||
      grid.z > kMaxGridYZ) {
    return invalid(absl::StrCat("invalid grid ", NameOf(grid)));
  }
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  if (threads == 0 || threads > kMaxThreads || threads > kernel.max_threads || block.z > 64) {
    return invalid(absl::StrCat("invalid block ", NameOf(block), ", the kernel is limited to ",
                                kernel.max_threads, " threads"));
  }
  const size_t shared = kernel.static_shared_bytes + config.dynamic_shared_bytes;
  if (kernel.static_shared_bytes > kMaxStaticSharedBytes || shared > kMaxSharedBytes) {
    return invalid(absl::StrCat(shared, " bytes of shared memory"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Run(const Kernel& kernel, const LaunchConfig& config,
                 absl::Span<const void* const> arguments, DeviceMemory& memory,
                 Counters* counters) {
  RETURN_IF_ERROR(Check(kernel, config, arguments));
  Counters ignored;
  return Launch(kernel, config, memory).Run(arguments, counters != nullptr ? *counters : ignored);
}

}  // namespace muster::ptx
