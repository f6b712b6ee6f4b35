// Each fault that the interpreter detects, in a kernel that has it and in its correct twin.
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/gpu/ptx/test_kernel.h"

namespace muster::ptx {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class FaultsTest : public ::testing::Test {
 protected:
  // An array of initialised 4-byte elements.
  uint32_t* Array(size_t elements) {
    auto* const array = static_cast<uint32_t*>(*memory_.Allocate(elements * 4));
    std::memset(array, 0, elements * 4);
    memory_.MarkInitialized(array, elements * 4);
    return array;
  }
  absl::Status Run(std::string_view body, const void* a, const void* b = nullptr, uint32_t n = 0,
                   uint32_t blocks = 1, uint32_t threads = 8) {
    return RunKernel(body, {.grid = {blocks}, .block = {threads}}, memory_, a, b, n);
  }

  DeviceMemory memory_;
};

void ExpectFault(const absl::Status& status, absl::StatusCode code, std::string_view text) {
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(std::string(text)));
}

// b[thread + 1] = a[thread]: the last thread writes beyond 8 elements.
constexpr std::string_view kShift = R"(
  ld.global.u32 %r10, [%rd3];
  st.global.u32 [%rd4+4], %r10;
)";

TEST_F(FaultsTest, OutOfBoundsGlobalAccess) {
  ExpectFault(Run(kShift, Array(8), Array(8)), absl::StatusCode::kOutOfRange,
              "write of 4 bytes at global address");
  EXPECT_EQ(Run(kShift, Array(8), Array(9)), absl::OkStatus());
}

TEST_F(FaultsTest, NamesThePlaceOfAFault) {
  const absl::Status status = Run(kShift, Array(8), Array(8));
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("test, block (0,0,0), thread (7,0,0), PTX line 27"),
                    HasSubstr("`st.global.u32 [%rd4+4], %r10;`"), HasSubstr("byte 32"),
                    HasSubstr("allocation 2 at 0x"), HasSubstr("of 32 bytes")));
}

TEST_F(FaultsTest, AccessBeforeAnAllocation) {
  ExpectFault(Run("ld.global.u32 %r10, [%rd3+-4];", Array(8)), absl::StatusCode::kOutOfRange,
              "byte -4 of allocation 1");
}

TEST_F(FaultsTest, AccessToHostMemory) {
  uint32_t value = 0;
  constexpr std::string_view kRead = "ld.global.u32 %r10, [%rd1];";
  ExpectFault(Run(kRead, &value), absl::StatusCode::kOutOfRange, "all allocations");
  ExpectFault(Run(kRead, nullptr), absl::StatusCode::kOutOfRange, "address 0");
  ASSERT_EQ(memory_.RegisterHost(&value, sizeof(value)), absl::OkStatus());
  EXPECT_EQ(Run(kRead, &value), absl::OkStatus());
  ASSERT_EQ(memory_.UnregisterHost(&value), absl::OkStatus());
  ExpectFault(Run(kRead, &value), absl::StatusCode::kOutOfRange, "all allocations");
}

TEST_F(FaultsTest, OutOfBoundsSharedAccess) {
  const auto body = [](int elements) {
    return ".shared .align 4 .b8 buffer[" + std::to_string(4 * elements) + R"(];
      mov.u32 %r10, buffer;
      shl.b32 %r11, %r2, 2;
      add.s32 %r12, %r10, %r11;
      st.shared.u32 [%r12], %r2;)";
  };
  ExpectFault(Run(body(7), nullptr), absl::StatusCode::kOutOfRange, "shared memory of 28 bytes");
  EXPECT_EQ(Run(body(8), nullptr), absl::OkStatus());
}

TEST_F(FaultsTest, OutOfBoundsParameterAccess) {
  const auto body = [](int offset) {
    return "mov.b64 %rd10, test_param_2; ld.param.u32 %r10, [%rd10+" + std::to_string(offset) +
           "];";
  };
  ExpectFault(Run(body(4), nullptr), absl::StatusCode::kOutOfRange, "parameter address");
  EXPECT_EQ(Run(body(0), nullptr), absl::OkStatus());
}

TEST_F(FaultsTest, MisalignedVectorAccess) {
  constexpr std::string_view kLoad = "ld.global.v4.u32 {%r10, %r11, %r12, %r13}, [%rd1];";
  const uint32_t* const array = Array(8);
  ExpectFault(Run(kLoad, array + 1), absl::StatusCode::kInvalidArgument,
              "misaligned read of 16 bytes");
  EXPECT_EQ(Run(kLoad, array + 4), absl::OkStatus());
}

TEST_F(FaultsTest, MisalignedSharedAccess) {
  const auto body = [](int offset) {
    return R"(.shared .align 8 .b8 buffer[16];
      mov.u32 %r10, buffer;
      setp.ne.s32 %p1, %r2, 0;
      @%p1 bra $end;
      mov.u64 %rd10, 1;
      st.shared.u64 [%r10+)" +
           std::to_string(offset) + "], %rd10;\n$end:";
  };
  ExpectFault(Run(body(4), nullptr), absl::StatusCode::kInvalidArgument,
              "misaligned write of 8 bytes");
  EXPECT_EQ(Run(body(8), nullptr), absl::OkStatus());
}

TEST_F(FaultsTest, UseAfterFree) {
  constexpr std::string_view kRead = "ld.global.u32 %r10, [%rd3];";
  uint32_t* const array = Array(8);
  EXPECT_EQ(Run(kRead, array), absl::OkStatus());
  ASSERT_EQ(memory_.Free(array), absl::OkStatus());
  ExpectFault(Run(kRead, array), absl::StatusCode::kFailedPrecondition, "after free: allocation 1");
  // New allocations do not get the freed addresses.
  for (int i = 0; i < 8; ++i) Array(8);
  ExpectFault(Run(kRead, array), absl::StatusCode::kFailedPrecondition, "after free: allocation 1");
}

TEST_F(FaultsTest, UninitialisedGlobalRead) {
  constexpr std::string_view kRead = "ld.global.u32 %r10, [%rd3];";
  auto* const array = static_cast<uint32_t*>(*memory_.Allocate(32));
  ExpectFault(Run(kRead, array), absl::StatusCode::kFailedPrecondition, "read of 4 uninitialised");
  memory_.MarkInitialized(array, 31);
  EXPECT_EQ(Run(kRead, array, nullptr, 0, 1, 7), absl::OkStatus());
  ExpectFault(Run("ld.global.u8 %rs1, [%rd3+3];", array), absl::StatusCode::kFailedPrecondition,
              "thread (7,0,0)");
  // A write by a kernel initialises, too.
  EXPECT_EQ(Run("st.global.u32 [%rd3], %r2;", array), absl::OkStatus());
  EXPECT_EQ(Run(kRead, array), absl::OkStatus());
}

TEST_F(FaultsTest, UninitialisedSharedRead) {
  // The first block leaves values in shared memory; those are not the second one's.
  constexpr std::string_view kBody = R"(
    .shared .align 4 .b8 buffer[32];
    shl.b32 %r10, %r2, 2;
    mov.u32 %r11, buffer;
    add.s32 %r12, %r10, %r11;
    setp.ge.u32 %p1, %r3, %r1;
    @%p1 bra $read;
    st.shared.u32 [%r12], %r2;
  $read:
    ld.shared.u32 %r13, [%r12];)";
  ExpectFault(Run(kBody, nullptr, nullptr, /*n=*/1, /*blocks=*/2),
              absl::StatusCode::kFailedPrecondition, "block (1,0,0)");
  EXPECT_EQ(Run(kBody, nullptr, nullptr, /*n=*/2, /*blocks=*/2), absl::OkStatus());
}

TEST_F(FaultsTest, UninitialisedRegister) {
  // The register is written on one of two paths only.
  constexpr std::string_view kBody = R"(
    setp.ge.u32 %p1, %r2, %r1;
    @%p1 bra $use;
    mov.u32 %r10, 7;
  $use:
    add.s32 %r11, %r10, 1;)";
  ExpectFault(Run(kBody, nullptr, nullptr, /*n=*/7), absl::StatusCode::kFailedPrecondition,
              "uninitialised register");
  EXPECT_EQ(Run(kBody, nullptr, nullptr, /*n=*/8), absl::OkStatus());
  ExpectFault(Run("add.s32 %r11, %r10, 1;", nullptr), absl::StatusCode::kFailedPrecondition,
              "uninitialised register");
}

TEST_F(FaultsTest, UninitialisedSelectedRegister) {
  // Thread 7 of 8 selects the register that it has not written if there are only 7 elements.
  const auto body = [](std::string_view operands) {
    return absl::StrCat(R"(
    setp.ge.u32 %p1, %r2, %r1;
    @%p1 bra $use;
    mov.u32 %r10, 7;
  $use:
    selp.u32 %r11, )", std::string(operands), R"(, %p1;
    add.s32 %r12, %r11, 1;)");
  };
  EXPECT_EQ(Run(body("0, %r10"), nullptr, nullptr, /*n=*/7), absl::OkStatus());
  ExpectFault(Run(body("%r10, 0"), nullptr, nullptr, /*n=*/7),
              absl::StatusCode::kFailedPrecondition, "uninitialised register");
  EXPECT_EQ(Run(body("%r10, 0"), nullptr, nullptr, /*n=*/8), absl::OkStatus());
}

// Thread i writes element i of shared memory and reads that of thread i + 1 (mod 8).
std::string Exchange(std::string_view between) {
  return R"(
    .shared .align 4 .b8 buffer[32];
    shl.b32 %r10, %r2, 2;
    mov.u32 %r11, buffer;
    add.s32 %r12, %r10, %r11;
    st.shared.u32 [%r12], %r2;)" +
         std::string(between) + R"(
    add.s32 %r13, %r10, 4;
    and.b32 %r14, %r13, 31;
    add.s32 %r15, %r14, %r11;
    ld.shared.u32 %r16, [%r15];
    st.global.u32 [%rd3], %r16;)";
}

TEST_F(FaultsTest, SharedRaceWithoutBarrier) {
  // The last thread reads what the first one wrote.
  const std::string racing = R"(
    .shared .align 4 .b8 buffer[32];
    mov.u32 %r11, buffer;
    shl.b32 %r10, %r2, 2;
    add.s32 %r12, %r10, %r11;
    st.shared.u32 [%r12], %r2;
    ld.shared.u32 %r16, [%r11];)";
  ExpectFault(Run(racing, nullptr), absl::StatusCode::kAborted,
              "and a write by thread 0 of the same block");
  uint32_t* const result = Array(8);
  ASSERT_EQ(Run(Exchange("bar.sync 0;"), result), absl::OkStatus());
  EXPECT_EQ(std::vector<uint32_t>(result, result + 8),
            (std::vector<uint32_t>{1, 2, 3, 4, 5, 6, 7, 0}));
}

TEST_F(FaultsTest, SharedRaceOfAWriteWithAnEarlierRead) {
  const auto body = [](std::string_view between) {
    return R"(
      .shared .align 4 .b8 buffer[4];
      mov.u32 %r11, buffer;
      setp.ne.s32 %p1, %r2, 0;
      @%p1 bra $joined;
      st.shared.u32 [%r11], %r2;
    $joined:
      bar.sync 0;
      ld.shared.u32 %r12, [%r11];)" +
           std::string(between) + R"(
      setp.ne.s32 %p2, %r2, 7;
      @%p2 bra $done;
      st.shared.u32 [%r11], %r2;
    $done:)";
  };
  ExpectFault(Run(body(""), nullptr), absl::StatusCode::kAborted, "a read by several threads");
  EXPECT_EQ(Run(body("bar.sync 0;"), nullptr), absl::OkStatus());
}

TEST_F(FaultsTest, GlobalRaceWithinABlock) {
  ExpectFault(Run("st.global.u32 [%rd1], %r2;", Array(8)), absl::StatusCode::kAborted,
              "this write of 4 bytes");
  EXPECT_EQ(Run("st.global.u32 [%rd3], %r2;", Array(8)), absl::OkStatus());
  // Neighbouring bytes are no race.
  EXPECT_EQ(Run(R"(
    cvt.u64.u32 %rd10, %r2;
    add.s64 %rd11, %rd1, %rd10;
    cvt.u16.u32 %rs1, %r2;
    st.global.u8 [%rd11], %rs1;)",
                Array(8)),
            absl::OkStatus());
}

// Thread 0 of each block reads a[0], and that of block n writes it.
constexpr std::string_view kBlocksShareAnElement = R"(
    setp.ne.s32 %p1, %r2, 0;
    @%p1 bra $end;
    ld.global.u32 %r10, [%rd1];
    setp.ne.s32 %p2, %r3, %r1;
    @%p2 bra $end;
    st.global.u32 [%rd1], %r3;
  $end:)";

TEST_F(FaultsTest, GlobalRaceBetweenBlocks) {
  ExpectFault(Run(kBlocksShareAnElement, Array(1), nullptr, /*n=*/0, /*blocks=*/3),
              absl::StatusCode::kAborted, "a write by thread 0 of another block");
  ExpectFault(Run(kBlocksShareAnElement, Array(1), nullptr, /*n=*/2, /*blocks=*/3),
              absl::StatusCode::kAborted, "a read by");
  EXPECT_EQ(Run(kBlocksShareAnElement, Array(1), nullptr, /*n=*/3, /*blocks=*/3), absl::OkStatus());
}

// Each of n blocks writes b[block]; the one that arrives last at the counter a[0] reads them all.
std::string LastBlockReads(std::string_view release, std::string_view acquire) {
  return R"(
    .shared .align 4 .b8 last[4];
    mul.wide.u32 %rd10, %r3, 4;
    add.s64 %rd11, %rd2, %rd10;
    setp.ne.s32 %p1, %r2, 0;
    @%p1 bra $written;
    st.global.u32 [%rd11], %r3;
  $written:)" +
         std::string(release) + R"(
    bar.sync 0;
    @%p1 bra $arrived;
    sub.s32 %r10, %r1, 1;
    atom.global.inc.u32 %r11, [%rd1], %r10;)" +
         std::string(acquire) + R"(
    setp.eq.s32 %p2, %r11, %r10;
    selp.u32 %r12, 1, 0, %p2;
    st.shared.u32 [last], %r12;
  $arrived:
    bar.sync 0;
    ld.shared.u32 %r13, [last];
    setp.eq.s32 %p3, %r13, 0;
    @%p3 bra $end;
    setp.ge.u32 %p4, %r2, %r1;
    @%p4 bra $end;
    ld.global.u32 %r14, [%rd4];
  $end:)";
}

TEST_F(FaultsTest, BlocksOrderedByFencesAndAtomics) {
  const auto run = [&](std::string_view release, std::string_view acquire, uint32_t* counter) {
    return Run(LastBlockReads(release, acquire), counter, Array(4), /*n=*/4, /*blocks=*/4);
  };
  uint32_t* const counter = Array(1);
  for (int launch = 0; launch < 2; ++launch) {
    EXPECT_EQ(run("membar.gl;", "membar.gl;", counter), absl::OkStatus());
    EXPECT_EQ(*counter, 0u);
  }
  ExpectFault(run("", "membar.gl;", Array(1)), absl::StatusCode::kAborted,
              "a write by thread 0 of another block");
  ExpectFault(run("membar.gl;", "", Array(1)), absl::StatusCode::kAborted,
              "a write by thread 0 of another block");
  // The counter must be initialised.
  ExpectFault(run("membar.gl;", "membar.gl;", static_cast<uint32_t*>(*memory_.Allocate(4))),
              absl::StatusCode::kFailedPrecondition, "uninitialised");
}

TEST_F(FaultsTest, AtomicsRaceWithOtherAccesses) {
  EXPECT_EQ(Run("atom.global.add.u32 %r10, [%rd1], 1;", Array(1), nullptr, 0, 2), absl::OkStatus());
  ExpectFault(Run("atom.global.add.u32 %r10, [%rd1], 1; ld.global.u32 %r11, [%rd1];", Array(1)),
              absl::StatusCode::kAborted, "data race");
  ExpectFault(Run("ld.global.u32 %r11, [%rd1]; atom.global.add.u32 %r10, [%rd1], 1;", Array(1)),
              absl::StatusCode::kAborted, "data race");
}

TEST_F(FaultsTest, LaunchesAreOrdered) {
  uint32_t* const array = Array(8);
  EXPECT_EQ(Run("st.global.u32 [%rd3], %r2;", array), absl::OkStatus());
  EXPECT_EQ(Run("ld.global.v4.u32 {%r10, %r11, %r12, %r13}, [%rd1];", array), absl::OkStatus());
  EXPECT_EQ(Run("st.global.u32 [%rd3], %r2;", array), absl::OkStatus());
}

TEST_F(FaultsTest, BarrierThatSomeThreadsDoNotReach) {
  constexpr std::string_view kBody = R"(
    setp.ge.u32 %p1, %r2, %r1;
    @%p1 bra $end;
    bar.sync 0;
  $end:)";
  ExpectFault(Run(kBody, nullptr, nullptr, /*n=*/5), absl::StatusCode::kAborted,
              "divergent barrier: thread (5,0,0) has ended");
  ExpectFault(Run("setp.lt.u32 %p1, %r2, %r1; @%p1 ret; bar.sync 0;", nullptr, nullptr, /*n=*/5),
              absl::StatusCode::kAborted, "divergent barrier: thread (0,0,0) has ended");
  EXPECT_EQ(Run(kBody, nullptr, nullptr, /*n=*/8), absl::OkStatus());
  EXPECT_EQ(Run(kBody, nullptr, nullptr, /*n=*/0), absl::OkStatus());
}

TEST_F(FaultsTest, ThreadsAtDifferentBarriers) {
  constexpr std::string_view kBody = R"(
    setp.ge.u32 %p1, %r2, %r1;
    @%p1 bra $other;
    bar.sync 0;
    ret;
  $other:
    bar.sync 0;)";
  ExpectFault(Run(kBody, nullptr, nullptr, /*n=*/5), absl::StatusCode::kAborted,
              "divergent barrier: thread (0,0,0) waits at line 28");
  EXPECT_EQ(Run(kBody, nullptr, nullptr, /*n=*/8), absl::OkStatus());
}

TEST_F(FaultsTest, WrongNumberOfArguments) {
  const auto module = Module::Parse(KernelText(""));
  ASSERT_EQ(module.status(), absl::OkStatus());
  const uint64_t value = 0;
  const void* const arguments[] = {&value, &value, &value};
  const Kernel& kernel = *module->Find("test");
  ExpectFault(ptx::Run(kernel, {}, absl::MakeConstSpan(arguments, 2), memory_),
              absl::StatusCode::kInvalidArgument, "2 arguments, the kernel has 3 parameters");
  const void* const with_null[] = {&value, &value, nullptr};
  ExpectFault(ptx::Run(kernel, {}, with_null, memory_), absl::StatusCode::kInvalidArgument, "null");
  EXPECT_EQ(ptx::Run(kernel, {}, arguments, memory_), absl::OkStatus());
}

TEST_F(FaultsTest, InvalidLaunch) {
  const auto run = [&](Dim3 grid, Dim3 block, size_t shared) {
    return RunKernel("", {grid, block, shared}, memory_, nullptr);
  };
  ExpectFault(run({0}, {1}, 0), absl::StatusCode::kInvalidArgument, "invalid grid (0,1,1)");
  ExpectFault(run({1, 65536}, {1}, 0), absl::StatusCode::kInvalidArgument, "invalid grid");
  ExpectFault(run({1}, {1025}, 0), absl::StatusCode::kInvalidArgument, "invalid block");
  ExpectFault(run({1}, {1}, 228 << 10), absl::StatusCode::kInvalidArgument, "shared memory");
  EXPECT_EQ(run({1, 65535}, {1}, 227 << 10), absl::OkStatus());
}

TEST_F(FaultsTest, UnknownInstruction) {
  ExpectFault(Run("popcount.b32 %r10, %r2;", nullptr), absl::StatusCode::kUnimplemented,
              "test: PTX line 25 `popcount.b32 %r10, %r2;");
  // An instruction is known in certain forms only.
  ExpectFault(Run("add.rz.f64 %fd1, 0d3FF0000000000000, 0d3FF0000000000000;", nullptr),
              absl::StatusCode::kUnimplemented, "unsupported instruction add.rz.f64");
  ExpectFault(Run("ld.const.u32 %r10, [%rd1];", nullptr), absl::StatusCode::kUnimplemented,
              "unsupported instruction ld.const.u32");
  ExpectFault(Run("bar.sync 1;", nullptr), absl::StatusCode::kUnimplemented, "barrier");
  ExpectFault(Run("mov.u32 %r10, %laneid;", nullptr), absl::StatusCode::kUnimplemented,
              "unsupported operand %laneid");
  EXPECT_EQ(Run("popc.b32 %r10, %r2;", nullptr), absl::OkStatus());
}

TEST_F(FaultsTest, OperandsOfAWrongWidth) {
  ExpectFault(Run("add.s64 %rd10, %rd1, %r2;", nullptr), absl::StatusCode::kInvalidArgument,
              "%r2 has 32 bits, the operand has 64");
  ExpectFault(Run("add.s32 %r10, %r2;", nullptr), absl::StatusCode::kInvalidArgument,
              "expected 3 operands");
  ExpectFault(Run("st.global.v2.u32 [%rd1], {%r1, %r2, %r3};", nullptr),
              absl::StatusCode::kInvalidArgument, "vector");
}

TEST_F(FaultsTest, InfiniteLoop) {
  constexpr std::string_view kBody = R"(
    mov.u32 %r10, 0;
  $again:
    add.s32 %r10, %r10, 1;
    setp.ne.s32 %p1, %r10, %r1;
    @%p1 bra $again;)";
  LaunchConfig config;
  config.max_instructions_per_thread = 1000;
  ExpectFault(RunKernel(kBody, config, memory_, nullptr, nullptr, /*n=*/0),
              absl::StatusCode::kDeadlineExceeded, "infinite loop");
  EXPECT_EQ(RunKernel(kBody, config, memory_, nullptr, nullptr, /*n=*/300), absl::OkStatus());
}

TEST_F(FaultsTest, Trap) { ExpectFault(Run("trap;", nullptr), absl::StatusCode::kAborted, "trap"); }

}  // namespace
}  // namespace muster::ptx
