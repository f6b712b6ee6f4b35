// Values of instructions, evaluated one at a time.
#include <bit>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/half.h"
#include "tests/gpu/ptx/form.h"
#include "tests/gpu/ptx/launch_memory.h"

namespace muster::ptx {
namespace {

constexpr uint32_t kNan = 0x7fffffff;

uint64_t Bits(float value) { return std::bit_cast<uint32_t>(value); }
uint64_t Bits(double value) { return std::bit_cast<uint64_t>(value); }

// The destination's bits after an instruction with these operands.
uint64_t Evaluate(const std::string& opcode, std::initializer_list<uint64_t> operands) {
  const auto form = Forms().find(opcode);
  if (form == Forms().end()) {
    ADD_FAILURE() << "unknown " << opcode;
    return 0;
  }
  EXPECT_EQ(static_cast<size_t>(form->second.operands), operands.size() + 1) << opcode;
  static const Kernel kernel;
  static DeviceMemory global;
  static LaunchMemory memory(kernel, 0, global);
  Thread thread(memory);
  std::vector<uint64_t> registers = {0};
  registers.insert(registers.end(), operands);
  thread.registers = registers.data();
  const Instruction instruction{form->second.run, 0, {0, 1, 2, 3, 4}};
  form->second.run(instruction, thread);
  const int bits = form->second.bits[0];
  return bits == 64 ? registers[0] : registers[0] & ((uint64_t{1} << bits) - 1);
}

uint64_t Signed(int64_t value, int bits) {
  return bits == 64 ? static_cast<uint64_t>(value)
                    : static_cast<uint64_t>(value) & ((uint64_t{1} << bits) - 1);
}

TEST(FormsTest, IntegerArithmeticWrapsAround) {
  EXPECT_EQ(Evaluate("add.s32", {0x7fffffff, 1}), 0x80000000u);
  EXPECT_EQ(Evaluate("sub.u16", {0, 1}), 0xffffu);
  EXPECT_EQ(Evaluate("mul.lo.s64", {uint64_t{1} << 62, 4}), 0u);
  EXPECT_EQ(Evaluate("mul.lo.u16", {0xffff, 0xffff}), 1u);
  EXPECT_EQ(Evaluate("neg.s64", {1}), ~uint64_t{0});
  EXPECT_EQ(Evaluate("mad.lo.s32", {3, 5, Signed(-16, 32)}), 0xffffffffu);
}

TEST(FormsTest, WideAndHighProducts) {
  EXPECT_EQ(Evaluate("mul.wide.u32", {0xffffffff, 0xffffffff}), 0xfffffffe00000001u);
  EXPECT_EQ(Evaluate("mul.wide.s32", {0xffffffff, 2}), Signed(-2, 64));
  EXPECT_EQ(Evaluate("mad.wide.u32", {0x80000000, 2, 5}), 0x100000005u);
  EXPECT_EQ(Evaluate("mul.hi.u32", {0x80000000, 4}), 2u);
  EXPECT_EQ(Evaluate("mul.hi.s32", {0xffffffff, 2}), 0xffffffffu);
  EXPECT_EQ(Evaluate("mul.hi.u64", {uint64_t{1} << 63, 6}), 3u);
  EXPECT_EQ(Evaluate("mul.hi.s64", {Signed(-1, 64), 1}), Signed(-1, 64));
}

TEST(FormsTest, DivisionTruncates) {
  EXPECT_EQ(Evaluate("div.s32", {Signed(-7, 32), 2}), Signed(-3, 32));
  EXPECT_EQ(Evaluate("rem.s32", {Signed(-7, 32), 2}), Signed(-1, 32));
  EXPECT_EQ(Evaluate("div.u32", {0xfffffff9, 2}), 0x7ffffffcu);
  EXPECT_EQ(Evaluate("div.s64", {uint64_t{1} << 63, Signed(-1, 64)}), uint64_t{1} << 63);
  EXPECT_EQ(Evaluate("rem.s64", {uint64_t{1} << 63, Signed(-1, 64)}), 0u);
  EXPECT_EQ(Evaluate("div.u32", {7, 0}), 0xffffffffu);
}

TEST(FormsTest, ShiftsByTheWidthOrMore) {
  EXPECT_EQ(Evaluate("shl.b32", {1, 31}), 0x80000000u);
  EXPECT_EQ(Evaluate("shl.b32", {1, 32}), 0u);
  EXPECT_EQ(Evaluate("shl.b64", {3, 100}), 0u);
  EXPECT_EQ(Evaluate("shr.u64", {~uint64_t{0}, 63}), 1u);
  EXPECT_EQ(Evaluate("shr.u64", {~uint64_t{0}, 64}), 0u);
  EXPECT_EQ(Evaluate("shr.s32", {0x80000000, 40}), 0xffffffffu);
  EXPECT_EQ(Evaluate("shr.s32", {0x80000000, 4}), 0xf8000000u);
  EXPECT_EQ(Evaluate("shr.u16", {0x8000, 15}), 1u);
}

TEST(FormsTest, BitOperations) {
  EXPECT_EQ(Evaluate("prmt.b32", {0x33221100, 0x77665544, 0x7604}), 0x77660044u);
  EXPECT_EQ(Evaluate("prmt.b32", {0x000080ff, 0, 0x0982}), 0xffffff00u);
  EXPECT_EQ(Evaluate("lop3.b32", {0xf0f0, 0xcccc, 0xaaaa, 0xe8}) & 0xff, 0xe8u);
  EXPECT_EQ(Evaluate("shf.l.wrap.b32", {0x80000000, 1, 1}), 3u);
  EXPECT_EQ(Evaluate("shf.r.wrap.b32", {2, 1, 1}), 0x80000001u);
  EXPECT_EQ(Evaluate("brev.b32", {1}), 0x80000000u);
  EXPECT_EQ(Evaluate("popc.b64", {0xff00ff}), 16u);
  EXPECT_EQ(Evaluate("clz.b32", {1}), 31u);
  EXPECT_EQ(Evaluate("bfe.u32", {0xabcd, 4, 8}), 0xbcu);
  EXPECT_EQ(Evaluate("bfe.s32", {0xabcd, 4, 8}), 0xffffffbcu);
  EXPECT_EQ(Evaluate("bfe.u32", {0xabcd, 4, 0}), 0u);
  EXPECT_EQ(Evaluate("bfi.b32", {0x3f, 0xffff0000, 4, 4}), 0xffff00f0u);
  EXPECT_EQ(Evaluate("bfi.b32", {0, 0xffffffff, 31, 8}), 0x7fffffffu);
  EXPECT_EQ(Evaluate("bfi.b32", {0x12345678, 0, 0, 32}), 0x12345678u);
  EXPECT_EQ(Evaluate("bfi.b32", {0xff, 0xabcd, 4, 0}), 0xabcdu);
  EXPECT_EQ(Evaluate("bfi.b32", {0xff, 0xabcd, 40, 8}), 0xabcdu);
  EXPECT_EQ(Evaluate("bfi.b64", {1, 0, 63, 1}), uint64_t{1} << 63);
  EXPECT_EQ(Evaluate("not.pred", {1}), 0u);
  EXPECT_EQ(Evaluate("selp.b32", {7, 9, 0}), 9u);
}

TEST(FormsTest, FloatArithmeticRoundsToNearestEven) {
  EXPECT_EQ(Evaluate("add.f32", {Bits(1.0f), Bits(0x1p-24f)}), Bits(1.0f));
  EXPECT_EQ(Evaluate("add.f32", {Bits(1.0f), Bits(0x1.8p-24f)}), Bits(1.0f + 0x1p-23f));
  EXPECT_EQ(Evaluate("div.rn.f32", {Bits(1.0f), Bits(3.0f)}), Bits(1.0f / 3.0f));
  EXPECT_EQ(Evaluate("sqrt.rn.f64", {Bits(2.0)}), Bits(std::sqrt(2.0)));
  // One rounding only: the product 1 + 2^-11 + 2^-24 is not a float32.
  const float a = 1 + 0x1p-12f;
  EXPECT_EQ(Evaluate("fma.rn.f32", {Bits(a), Bits(a), Bits(-1 - 0x1p-11f)}), Bits(0x1p-24f));
}

TEST(FormsTest, FloatNanIsCanonical) {
  EXPECT_EQ(Evaluate("add.f32", {0x7f800001, Bits(1.0f)}), kNan);
  EXPECT_EQ(Evaluate("mul.f32", {Bits(0.0f), 0xff800000}), kNan);
  EXPECT_EQ(Evaluate("fma.rn.f32", {0xffc00000, Bits(1.0f), Bits(1.0f)}), kNan);
  EXPECT_EQ(Evaluate("max.f32", {0x7fc00000, 0xffc00000}), kNan);
}

TEST(FormsTest, MinimumAndMaximum) {
  EXPECT_EQ(Evaluate("max.f32", {kNan, Bits(2.0f)}), Bits(2.0f));
  EXPECT_EQ(Evaluate("min.f32", {Bits(2.0f), kNan}), Bits(2.0f));
  EXPECT_EQ(Evaluate("max.f32", {Bits(-0.0f), Bits(0.0f)}), Bits(0.0f));
  EXPECT_EQ(Evaluate("min.f32", {Bits(0.0f), Bits(-0.0f)}), Bits(-0.0f));
  EXPECT_EQ(Evaluate("max.f64", {Bits(-3.0), Bits(-2.0)}), Bits(-2.0));
  EXPECT_EQ(Evaluate("max.s64", {Signed(-3, 64), 2}), 2u);
  EXPECT_EQ(Evaluate("min.u64", {Signed(-3, 64), 2}), 2u);
}

TEST(FormsTest, FlushesSubnormals) {
  const float subnormal = 0x1p-140f;
  EXPECT_EQ(Evaluate("add.f32", {Bits(subnormal), Bits(0.0f)}), Bits(subnormal));
  EXPECT_EQ(Evaluate("add.ftz.f32", {Bits(subnormal), Bits(0.0f)}), Bits(0.0f));
  EXPECT_EQ(Evaluate("mul.ftz.f32", {Bits(-0x1p-100f), Bits(0x1p-40f)}), Bits(-0.0f));
  EXPECT_EQ(Evaluate("ex2.approx.ftz.f32", {Bits(-130.0f)}), Bits(0.0f));
  EXPECT_EQ(Evaluate("ex2.approx.ftz.f32", {Bits(3.0f)}), Bits(8.0f));
  EXPECT_EQ(Evaluate("rcp.approx.ftz.f64", {Bits(3.0)}), Bits(1.0 / 3.0) & ~uint64_t{0xffffffff});
}

// Directed rounding brackets the exact value, and is the exact value where nearest rounding is.
TEST(FormsTest, DirectedRounding) {
  EXPECT_EQ(Evaluate("add.rm.f32", {Bits(1.0f), Bits(0x1p-100f)}), Bits(1.0f));
  EXPECT_EQ(Evaluate("add.rp.f32", {Bits(1.0f), Bits(0x1p-100f)}), Bits(1.0f + 0x1p-23f));
  EXPECT_EQ(Evaluate("add.rm.f32", {Bits(1.0f), Bits(-0x1p-100f)}), Bits(1.0f - 0x1p-24f));
  EXPECT_EQ(Evaluate("add.rz.f32", {Bits(-1.0f), Bits(-0x1p-100f)}), Bits(-1.0f));
  EXPECT_EQ(Evaluate("sub.rm.f32", {Bits(1.0f), Bits(1.0f)}), Bits(-0.0f));
  EXPECT_EQ(Evaluate("sub.rp.f32", {Bits(1.0f), Bits(1.0f)}), Bits(0.0f));
  EXPECT_EQ(Evaluate("mul.rz.f32", {Bits(0x1p127f), Bits(4.0f)}),
            Bits(std::numeric_limits<float>::max()));
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) {
    const auto operand = [&] {
      return std::ldexp(static_cast<float>(random()), random() % 60 - 60);
    };
    const float a = operand(), b = operand(), c = -operand();
    const auto run = [&](const char* mode) {
      return std::bit_cast<float>(static_cast<uint32_t>(
          Evaluate(std::string("fma.") + mode + ".f32", {Bits(a), Bits(b), Bits(c)})));
    };
    const float nearest = run("rn"), down = run("rm"), up = run("rp"), zero = run("rz");
    const __float128 exact = static_cast<__float128>(a) * b + c;
    ASSERT_LE(static_cast<__float128>(down), exact);
    ASSERT_GE(static_cast<__float128>(up), exact);
    ASSERT_TRUE(nearest == down || nearest == up);
    ASSERT_EQ(zero, exact > 0 ? down : up);
    ASSERT_EQ(down == up, static_cast<__float128>(nearest) == exact);
    ASSERT_LE(up, std::nextafter(down, std::numeric_limits<float>::infinity()));
  }
}

TEST(FormsTest, ComparisonsWithNan) {
  const uint64_t one = Bits(1.0f);
  EXPECT_EQ(Evaluate("setp.lt.f32", {one, kNan}), 0u);
  EXPECT_EQ(Evaluate("setp.ltu.f32", {one, kNan}), 1u);
  EXPECT_EQ(Evaluate("setp.ne.f32", {one, kNan}), 0u);
  EXPECT_EQ(Evaluate("setp.neu.f32", {one, kNan}), 1u);
  EXPECT_EQ(Evaluate("setp.neu.f32", {one, one}), 0u);
  EXPECT_EQ(Evaluate("setp.equ.f32", {one, kNan}), 1u);
  EXPECT_EQ(Evaluate("setp.num.f32", {one, kNan}), 0u);
  EXPECT_EQ(Evaluate("setp.nan.f32", {one, kNan}), 1u);
  EXPECT_EQ(Evaluate("setp.geu.f32", {one, Bits(2.0f)}), 0u);
  EXPECT_EQ(Evaluate("setp.lt.s32", {Signed(-1, 32), 1}), 1u);
  EXPECT_EQ(Evaluate("setp.lt.u32", {Signed(-1, 32), 1}), 0u);
  EXPECT_EQ(Evaluate("setp.lo.u64", {1, Signed(-1, 64)}), 1u);
  EXPECT_EQ(Evaluate("setp.eq.and.s32", {1, 1, 0}), 0u);
}

TEST(FormsTest, IntegerConversions) {
  EXPECT_EQ(Evaluate("cvt.s64.s32", {0xffffffff}), Signed(-1, 64));
  EXPECT_EQ(Evaluate("cvt.u64.u32", {0xffffffff}), 0xffffffffu);
  EXPECT_EQ(Evaluate("cvt.u32.u64", {0x1ffffffff}), 0xffffffffu);
  EXPECT_EQ(Evaluate("cvt.s32.s8", {0x80}), Signed(-128, 32));
  EXPECT_EQ(Evaluate("cvt.rn.f32.u32", {0xffffffff}), Bits(0x1p32f));
  EXPECT_EQ(Evaluate("cvt.rn.f32.s64", {(uint64_t{1} << 24) + 1}), Bits(0x1p24f));
  EXPECT_EQ(Evaluate("cvt.rn.f64.s64", {Signed(-3, 64)}), Bits(-3.0));
}

TEST(FormsTest, FloatToIntegerConversionsSaturate) {
  EXPECT_EQ(Evaluate("cvt.rzi.s32.f32", {Bits(-1.9f)}), Signed(-1, 32));
  EXPECT_EQ(Evaluate("cvt.rni.s32.f32", {Bits(2.5f)}), 2u);
  EXPECT_EQ(Evaluate("cvt.rmi.s32.f32", {Bits(-1.1f)}), Signed(-2, 32));
  EXPECT_EQ(Evaluate("cvt.rpi.f64.f64", {Bits(1.1)}), Bits(2.0));
  EXPECT_EQ(Evaluate("cvt.rzi.u32.f32", {Bits(-5.0f)}), 0u);
  EXPECT_EQ(Evaluate("cvt.rzi.u32.f32", {Bits(1e20f)}), 0xffffffffu);
  EXPECT_EQ(Evaluate("cvt.rzi.s64.f64", {Bits(1e20)}), 0x7fffffffffffffffu);
  EXPECT_EQ(Evaluate("cvt.rzi.s64.f64", {Bits(-1e20)}), uint64_t{1} << 63);
  EXPECT_EQ(Evaluate("cvt.rzi.s32.f32", {kNan}), 0u);
  EXPECT_EQ(Evaluate("cvt.rzi.s64.f64", {Bits(std::nan(""))}), uint64_t{1} << 63);
}

TEST(FormsTest, FloatConversions) {
  const double third = 1.0 / 3.0;
  EXPECT_EQ(Evaluate("cvt.rn.f32.f64", {Bits(third)}), Bits(static_cast<float>(third)));
  EXPECT_EQ(Evaluate("cvt.rm.f32.f64", {Bits(1 + 0x1p-40)}), Bits(1.0f));
  EXPECT_EQ(Evaluate("cvt.rp.f32.f64", {Bits(1 + 0x1p-40)}), Bits(1.0f + 0x1p-23f));
  EXPECT_EQ(Evaluate("cvt.rz.f32.f64", {Bits(-1 - 0x1p-40)}), Bits(-1.0f));
  EXPECT_EQ(Evaluate("cvt.sat.f32.f32", {Bits(1.5f)}), Bits(1.0f));
  EXPECT_EQ(Evaluate("cvt.sat.f32.f32", {Bits(-0.5f)}), Bits(0.0f));
  EXPECT_EQ(Evaluate("cvt.sat.f32.f32", {kNan}), Bits(0.0f));
}

TEST(FormsTest, SixteenBitFloats) {
  EXPECT_EQ(Evaluate("cvt.rn.f16.f32", {Bits(1.0f)}), 0x3c00u);
  EXPECT_EQ(Evaluate("cvt.rn.f16.f32", {Bits(65520.0f)}), 0x7c00u);
  EXPECT_EQ(Evaluate("cvt.rn.f16.f32", {Bits(0x1p-25f)}), 0u);
  EXPECT_EQ(Evaluate("cvt.rn.f16.f32", {kNan}), 0x7fffu);
  EXPECT_EQ(Evaluate("cvt.f32.f16", {0x0001}), Bits(0x1p-24f));
  EXPECT_EQ(Evaluate("cvt.rn.bf16.f32", {Bits(1.0f + 0x1p-8f)}), 0x3f80u);
  EXPECT_EQ(Evaluate("cvt.rn.bf16.f32", {Bits(1.0f + 0x1.8p-7f)}), 0x3f82u);
  EXPECT_EQ(Evaluate("cvt.rn.bf16.f32", {0xffc00000}), 0x7fffu);
  EXPECT_EQ(Evaluate("cvt.f32.bf16", {0x4049}), 0x40490000u);
  EXPECT_EQ(Evaluate("cvt.rn.bf16x2.f32", {Bits(2.0f), Bits(1.0f)}), 0x40003f80u);
  EXPECT_EQ(Evaluate("cvt.rn.f16x2.f32", {Bits(2.0f), Bits(1.0f)}), 0x40003c00u);
}

}  // namespace
}  // namespace muster::ptx
