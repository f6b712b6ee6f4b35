// Results of whole kernels.
#include "tests/gpu/ptx/execution.h"

#include <cstdint>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/gpu/ptx/test_kernel.h"

namespace muster::ptx {
namespace {

template <typename T>
class Array {
 public:
  Array(DeviceMemory& memory, const std::vector<T>& values) : count_(values.size()) {
    data_ = static_cast<T*>(*memory.Allocate(count_ * sizeof(T)));
    std::memcpy(data_, values.data(), count_ * sizeof(T));
    memory.MarkInitialized(data_, count_ * sizeof(T));
  }
  T* data() const { return data_; }
  std::vector<T> values() const { return {data_, data_ + count_}; }

 private:
  T* data_;
  size_t count_;
};

TEST(ExecutionTest, VectorsOfAllWidths) {
  DeviceMemory memory;
  const Array<uint32_t> from(memory, {0x04030201, 0x08070605, 0x84838281, 0x88878685});
  const Array<uint32_t> to(memory, std::vector<uint32_t>(12));
  ASSERT_EQ(RunKernel(R"(
    ld.global.v4.u32 {%r10, %r11, %r12, %r13}, [%rd1];
    st.global.v4.u32 [%rd2], {%r13, %r12, %r11, %r10};
    ld.global.v4.u8 {%rs1, %rs2, %rs3, %rs4}, [%rd1+8];
    st.global.v4.u8 [%rd2+16], {%rs4, %rs3, %rs2, %rs1};
    ld.global.v2.u16 {%rs1, %rs2}, [%rd1];
    st.global.v2.u16 [%rd2+20], {%rs2, %rs1};
    ld.global.s8 %r14, [%rd1+8];
    ld.global.u8 %r15, [%rd1+8];
    st.global.v2.u32 [%rd2+24], {%r14, %r15};
    ld.global.v2.f64 {%fd1, %fd2}, [%rd1];
    st.global.v2.f64 [%rd2+32], {%fd2, %fd1};)",
                      {}, memory, from.data(), to.data()),
            absl::OkStatus());
  EXPECT_EQ(to.values(), (std::vector<uint32_t>{0x88878685, 0x84838281, 0x08070605, 0x04030201,
                                                0x81828384, 0x02010403, 0xffffff81, 0x81,
                                                0x84838281, 0x88878685, 0x04030201, 0x08070605}));
}

TEST(ExecutionTest, PacksAndUnpacks) {
  DeviceMemory memory;
  const Array<uint32_t> to(memory, std::vector<uint32_t>(4));
  ASSERT_EQ(RunKernel(R"(
    mov.u32 %r10, 0x22221111;
    mov.b32 {%rs1, %rs2}, %r10;
    mov.b32 %r11, {%rs2, %rs1};
    st.global.u32 [%rd1], %r11;
    mov.b64 %fd1, {%r10, %r11};
    {
      .reg .b32 %temp;
      mov.b64 {%temp, %r12}, %fd1;
    }
    st.global.u32 [%rd1+4], %r12;
    mov.f32 %f1, 0f3F800000;
    mov.b32 %r13, %f1;
    st.global.u32 [%rd1+8], %r13;
    mov.u16 %rs3, -1;
    cvt.u32.u16 %r14, %rs3;
    st.global.u32 [%rd1+12], %r14;)",
                      {}, memory, to.data()),
            absl::OkStatus());
  EXPECT_EQ(to.values(), (std::vector<uint32_t>{0x11112222, 0x11112222, 0x3f800000, 0xffff}));
}

TEST(ExecutionTest, PredicatedInstructions) {
  DeviceMemory memory;
  const Array<uint32_t> to(memory, std::vector<uint32_t>(4));
  ASSERT_EQ(RunKernel(R"(
    setp.lt.u32 %p1, %r2, 2;
    mov.u32 %r10, 5;
    @%p1 mov.u32 %r10, 6;
    @!%p1 add.s32 %r10, %r10, %r2;
    st.global.u32 [%rd3], %r10;)",
                      {.block = {4}}, memory, to.data()),
            absl::OkStatus());
  EXPECT_EQ(to.values(), (std::vector<uint32_t>{6, 6, 7, 8}));
}

TEST(ExecutionTest, CoordinatesOfThreadsAndBlocks) {
  DeviceMemory memory;
  const Array<uint32_t> to(memory, std::vector<uint32_t>(2 * 3 * 2 * 2));
  // Element (block.y * 3 + block.x) * 4 + thread.y * 2 + thread.x.
  ASSERT_EQ(RunKernel(R"(
    mov.u32 %r10, %tid.y;
    mov.u32 %r11, %ntid.x;
    mad.lo.s32 %r12, %r10, %r11, %r2;
    mov.u32 %r13, %ctaid.y;
    mov.u32 %r14, %nctaid.x;
    mad.lo.s32 %r15, %r13, %r14, %r3;
    mad.lo.s32 %r16, %r15, 4, %r12;
    mul.wide.u32 %rd10, %r16, 4;
    add.s64 %rd11, %rd1, %rd10;
    st.global.u32 [%rd11], %r16;)",
                      {{3, 2}, {2, 2}}, memory, to.data()),
            absl::OkStatus());
  std::vector<uint32_t> expected(24);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(to.values(), expected);
}

// Sums over a block in shared memory, in a loop of barriers.
TEST(ExecutionTest, ReducesOverSharedMemory) {
  DeviceMemory memory;
  std::vector<uint32_t> values(64);
  std::iota(values.begin(), values.end(), 1);
  const Array<uint32_t> from(memory, values);
  const Array<uint32_t> to(memory, {0, 0});
  Counters counters;
  ASSERT_EQ(RunKernel(R"(
    .shared .align 4 .b8 buffer[256];
    ld.global.u32 %r10, [%rd3];
    mov.u32 %r11, buffer;
    shl.b32 %r12, %r2, 2;
    add.s32 %r13, %r11, %r12;
    st.shared.u32 [%r13], %r10;
    mov.u32 %r14, 32;
  $loop:
    bar.sync 0;
    setp.ge.u32 %p1, %r2, %r14;
    @%p1 bra $next;
    shl.b32 %r15, %r14, 2;
    add.s32 %r16, %r13, %r15;
    ld.shared.u32 %r17, [%r16];
    ld.shared.u32 %r18, [%r13];
    add.s32 %r19, %r17, %r18;
    st.shared.u32 [%r13], %r19;
  $next:
    shr.u32 %r14, %r14, 1;
    setp.ne.s32 %p2, %r14, 0;
    @%p2 bra $loop;
    setp.ne.s32 %p3, %r2, 0;
    @%p3 bra $end;
    ld.shared.u32 %r20, [buffer];
    mul.wide.u32 %rd10, %r3, 4;
    add.s64 %rd11, %rd2, %rd10;
    st.global.u32 [%rd11], %r20;
  $end:)",
                      {{2}, {64}}, memory, from.data(), to.data(), 0, &counters),
            absl::OkStatus());
  EXPECT_EQ(to.values(), (std::vector<uint32_t>{64 * 65 / 2, 64 * 65 / 2}));
  EXPECT_EQ(counters.launches, 1u);
  EXPECT_EQ(counters.blocks, 2u);
  EXPECT_EQ(counters.threads, 128u);
  EXPECT_GT(counters.instructions, 128u * 40);
}

TEST(ExecutionTest, DynamicSharedMemoryFollowsTheStaticOne) {
  DeviceMemory memory;
  const Array<uint32_t> to(memory, {0});
  const auto module = Module::Parse(R"(
    .extern .shared .align 16 .b8 dynamic[];
    .entry test(.param .u64 test_param_0) {
      .shared .align 4 .b8 fixed[4];
      .reg .b32 %r<3>;
      .reg .b64 %rd<2>;
      ld.param.u64 %rd1, [test_param_0];
      mov.u32 %r1, dynamic;
      st.shared.u32 [%r1+4], %r1;
      st.shared.u32 [fixed], 7;
      ld.shared.u32 %r2, [dynamic+4];
      st.global.u32 [%rd1], %r2;
      ret;
    })");
  ASSERT_EQ(module.status(), absl::OkStatus());
  const uint32_t* const pointer = to.data();
  const void* const arguments[] = {&pointer};
  const Kernel& kernel = *module->Find("test");
  ASSERT_EQ(ptx::Run(kernel, {.dynamic_shared_bytes = 8}, arguments, memory), absl::OkStatus());
  EXPECT_EQ(to.values(), std::vector<uint32_t>{16});
  EXPECT_EQ(ptx::Run(kernel, {.dynamic_shared_bytes = 4}, arguments, memory).code(),
            absl::StatusCode::kOutOfRange);
}

TEST(ExecutionTest, CallsAreInlined) {
  DeviceMemory memory;
  const Array<double> to(memory, {0});
  const auto module = Module::Parse(R"(
    .func (.param .b64 func_retval0) larger(.param .b64 larger_param_0, .param .b64 larger_param_1);
    .entry test(.param .u64 test_param_0) {
      .reg .b64 %rd<2>;
      .reg .f64 %fd<3>;
      ld.param.u64 %rd1, [test_param_0];
      mov.f64 %fd1, 0d4000000000000000;
      {
      .param .b64 param0;
      st.param.f64 [param0+0], %fd1;
      .param .b64 param1;
      st.param.f64 [param1+0], 0d4008000000000000;
      .param .b64 retval0;
      call.uni (retval0), larger, (param0, param1);
      ld.param.f64 %fd2, [retval0+0];
      }
      st.global.f64 [%rd1], %fd2;
      ret;
    }
    .func (.param .b64 func_retval0) larger(.param .b64 larger_param_0, .param .b64 larger_param_1) {
      .reg .pred %p<2>;
      .reg .f64 %fd<3>;
      ld.param.f64 %fd1, [larger_param_0];
      ld.param.f64 %fd2, [larger_param_1];
      setp.gt.f64 %p1, %fd1, %fd2;
      @%p1 bra $first;
      st.param.f64 [func_retval0+0], %fd2;
      ret;
    $first:
      st.param.f64 [func_retval0+0], %fd1;
      ret;
    })");
  ASSERT_EQ(module.status(), absl::OkStatus());
  const double* const pointer = to.data();
  const void* const arguments[] = {&pointer};
  ASSERT_EQ(ptx::Run(*module->Find("test"), {}, arguments, memory), absl::OkStatus());
  EXPECT_EQ(to.values(), std::vector<double>{3});
}

TEST(ExecutionTest, ReadsStructParameters) {
  DeviceMemory memory;
  const Array<uint32_t> to(memory, {0, 0, 0});
  const auto module = Module::Parse(R"(
    .entry test(.param .u32 test_param_0, .param .align 8 .b8 test_param_1[24], .param .u8 test_param_2) {
      .reg .b32 %r<6>;
      .reg .b64 %rd<3>;
      mov.b64 %rd1, test_param_1;
      ld.param.u64 %rd2, [%rd1];
      ld.param.v2.u32 {%r1, %r2}, [%rd1+16];
      ld.param.u32 %r3, [test_param_0];
      ld.param.u8 %r4, [test_param_2];
      add.s32 %r5, %r3, %r4;
      st.global.u32 [%rd2], %r1;
      st.global.u32 [%rd2+4], %r2;
      st.global.u32 [%rd2+8], %r5;
      ret;
    })");
  ASSERT_EQ(module.status(), absl::OkStatus());
  const Kernel& kernel = *module->Find("test");
  ASSERT_EQ(kernel.parameters.size(), 3u);
  EXPECT_EQ(kernel.parameters[1].offset, 8u);
  EXPECT_EQ(kernel.parameters[1].bytes, 24u);
  EXPECT_EQ(kernel.parameters[2].offset, 32u);
  EXPECT_EQ(kernel.parameter_bytes, 33u);
  const uint32_t first = 40;
  const struct {
    uint32_t* to;
    int64_t unused;
    uint32_t pair[2];
  } second = {to.data(), 0, {10, 20}};
  const uint8_t third = 2;
  const void* const arguments[] = {&first, &second, &third};
  ASSERT_EQ(ptx::Run(kernel, {}, arguments, memory), absl::OkStatus());
  EXPECT_EQ(to.values(), (std::vector<uint32_t>{10, 20, 42}));
}

TEST(ExecutionTest, GenericAddresses) {
  DeviceMemory memory;
  const Array<uint32_t> to(memory, {0, 5});
  ASSERT_EQ(RunKernel(R"(
    .shared .align 4 .b8 buffer[8];
    mov.u64 %rd10, buffer;
    cvta.shared.u64 %rd11, %rd10;
    ld.u32 %r10, [%rd1+4];
    st.u32 [%rd11+4], %r10;
    ld.shared.u32 %r11, [buffer+4];
    cvta.to.global.u64 %rd12, %rd1;
    st.global.u32 [%rd12], %r11;)",
                      {}, memory, to.data()),
            absl::OkStatus());
  EXPECT_EQ(to.values(), (std::vector<uint32_t>{5, 5}));
}

TEST(ModuleTest, SyntaxErrorsNameTheLine) {
  const auto message = [](std::string_view ptx) {
    return std::string(Module::Parse(ptx).status().message());
  };
  EXPECT_EQ(message(".version 9.0\n.entry test(\n) { mov.u32 %r1 %r2; }"),
            "PTX line 3: expected ',' or ';', found '%r2'");
  EXPECT_EQ(message(".global .align 4 .b8 table[4];"),
            "PTX line 1: unsupported directive '.global'");
  EXPECT_EQ(message(".entry test() { ret; "), "PTX line 1: expected a name, found ''");
  EXPECT_EQ(message("/* a comment"), "PTX line 1: comment without end");
  EXPECT_EQ(message(".entry test() {\n bra $nowhere; }"),
            "test: PTX line 2 `bra $nowhere; }`: unknown label $nowhere");
}

TEST(ModuleTest, FindsKernelsByName) {
  const auto module =
      Module::Parse(".entry a() .maxntid 8, 2, 1 { ret; } .visible .entry b() { ret; }");
  ASSERT_EQ(module.status(), absl::OkStatus());
  ASSERT_NE(module->Find("a"), nullptr);
  EXPECT_EQ(module->Find("a")->max_threads, 16u);
  EXPECT_NE(module->Find("b"), nullptr);
  EXPECT_EQ(module->Find("c"), nullptr);
}

}  // namespace
}  // namespace muster::ptx
