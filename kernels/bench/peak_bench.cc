// Measures the machine's limits: multiply-adds per second by precision, and bytes copied, by one
// thread and by several at once. Other benchmarks report fractions of these peaks.
//
//   bazel run -c opt //kernels/bench:peak_bench -- --threads=2 --json
//
// The loops are in assembly, because compilers spill arrays of vectors: independent accumulators in
// registers, enough to hide the instruction's latency, and no access to memory. The results are the
// best of several short runs; for several threads, the best run of all together. A precision that
// the CPU does not support is 0.
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "nlohmann/json.hpp"

namespace muster::kernels {
namespace {

using Clock = std::chrono::steady_clock;

// A repetition of a loop with `flops` operations; Run executes `repetitions` of them.
struct Loop {
  std::string instruction;  // empty if the CPU has none
  double flops = 0;
  void (*run)(int64_t repetitions) = nullptr;
};

// Operands are zero: never subnormal, and the time does not depend on the values. `loop` repeats
// its body `repetitions` times; its user declares the overwritten registers.
#define MUSTER_ASM_LOOP(body) "1:\n\t" body "dec %0\n\tjnz 1b\n\t"

#define MUSTER_REPEAT_12(op) \
  op(0) op(1) op(2) op(3) op(4) op(5) op(6) op(7) op(8) op(9) op(10) op(11)
#define MUSTER_REPEAT_24(op) \
  MUSTER_REPEAT_12(op)       \
  op(12) op(13) op(14) op(15) op(16) op(17) op(18) op(19) op(20) op(21) op(22) op(23)

#define MUSTER_YMM_ZERO(i) "vxorps %%ymm" #i ", %%ymm" #i ", %%ymm" #i "\n\t"
#define MUSTER_YMM_FMA(i) "vfmadd231ps %%ymm12, %%ymm13, %%ymm" #i "\n\t"
#define MUSTER_ZMM_ZERO(i) "vpxord %%zmm" #i ", %%zmm" #i ", %%zmm" #i "\n\t"
#define MUSTER_ZMM_FMA(i) "vfmadd231ps %%zmm24, %%zmm25, %%zmm" #i "\n\t"
#define MUSTER_ZMM_DOT(i) "vdpbf16ps %%zmm24, %%zmm25, %%zmm" #i "\n\t"

#define MUSTER_CLOBBER_16                                                                  \
  "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", \
      "xmm11", "xmm12", "xmm13", "xmm14", "xmm15"
#define MUSTER_CLOBBER_26                                                                    \
  MUSTER_CLOBBER_16, "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", \
      "xmm24", "xmm25"

__attribute__((target("avx2,fma"))) void RunAvx2(int64_t repetitions) {
  asm volatile(MUSTER_REPEAT_12(MUSTER_YMM_ZERO) MUSTER_YMM_ZERO(12) MUSTER_YMM_ZERO(13)
                   MUSTER_ASM_LOOP(MUSTER_REPEAT_12(MUSTER_YMM_FMA)) "vzeroupper\n\t"
               : "+r"(repetitions)
               :
               : "cc", MUSTER_CLOBBER_16);
}

__attribute__((target("avx512f"))) void RunAvx512(int64_t repetitions) {
  asm volatile(MUSTER_REPEAT_24(MUSTER_ZMM_ZERO) MUSTER_ZMM_ZERO(24) MUSTER_ZMM_ZERO(25)
                   MUSTER_ASM_LOOP(MUSTER_REPEAT_24(MUSTER_ZMM_FMA)) "vzeroupper\n\t"
               : "+r"(repetitions)
               :
               : "cc", MUSTER_CLOBBER_26);
}

__attribute__((target("avx512f,avx512bf16"))) void RunAvx512Bf16(int64_t repetitions) {
  asm volatile(MUSTER_REPEAT_24(MUSTER_ZMM_ZERO) MUSTER_ZMM_ZERO(24) MUSTER_ZMM_ZERO(25)
                   MUSTER_ASM_LOOP(MUSTER_REPEAT_24(MUSTER_ZMM_DOT)) "vzeroupper\n\t"
               : "+r"(repetitions)
               :
               : "cc", MUSTER_CLOBBER_26);
}

// Six tiles of 16 x 16 sums, for two tiles of one matrix and three of the other.
struct alignas(64) TileConfiguration {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfiguration) == 64);

#define MUSTER_TILE_ZERO(i) "tilezero %%tmm" #i "\n\t"
#define MUSTER_TILE_DOT(i) "tdpbf16ps %%tmm7, %%tmm6, %%tmm" #i "\n\t"
#define MUSTER_REPEAT_6(op) op(0) op(1) op(2) op(3) op(4) op(5)

__attribute__((target("amx-tile,amx-bf16"))) void RunAmxBf16(int64_t repetitions) {
  const TileConfiguration configuration;
  asm volatile("ldtilecfg %1\n\t" MUSTER_REPEAT_6(MUSTER_TILE_ZERO) MUSTER_TILE_ZERO(6)
                   MUSTER_TILE_ZERO(7)
                       MUSTER_ASM_LOOP(MUSTER_REPEAT_6(MUSTER_TILE_DOT)) "tilerelease\n\t"
               : "+r"(repetitions)
               : "m"(configuration)
               : "cc", "memory");
}

// The tile registers are large: Linux grants them to a process on request.
bool HasAmxBf16() {
  constexpr unsigned kAmxBf16Bit = 1u << 22, kAmxTileBit = 1u << 24;  // CPUID 7.0, EDX
  constexpr long kRequestPermission = 0x1023, kTileData = 18;         // arguments of arch_prctl
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  if ((d & kAmxBf16Bit) == 0 || (d & kAmxTileBit) == 0) return false;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

bool HasAvx512Bf16() {
  constexpr unsigned kAvx512Bf16Bit = 1u << 5;  // CPUID 7.1, EAX
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __builtin_cpu_supports("avx512f") && __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 &&
         (a & kAvx512Bf16Bit) != 0;
}

Loop Float32Loop() {
  // Two operations per lane, with 16 or 8 lanes.
  if (__builtin_cpu_supports("avx512f")) return {"avx512 vfmadd231ps", 24 * 16 * 2, RunAvx512};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    return {"avx2 vfmadd231ps", 12 * 8 * 2, RunAvx2};
  }
  return {};
}

Loop Bfloat16Loop() {
  // 16 x 16 sums of 32 products.
  if (HasAmxBf16()) return {"amx tdpbf16ps", 6 * 16 * 16 * 32 * 2, RunAmxBf16};
  if (HasAvx512Bf16()) return {"avx512 vdpbf16ps", 24 * 32 * 2, RunAvx512Bf16};
  return {};
}

// Runs `work` for about `seconds` in each of `threads` threads at once, and returns the sum of its
// results per second.
double RateOnce(int threads, double seconds, const std::function<double(int thread)>& work) {
  std::atomic<int> waiting{threads};
  std::vector<double> rates(threads);
  std::vector<std::thread> workers;
  for (int i = 0; i < threads; ++i) {
    workers.emplace_back([&, i] {
      waiting.fetch_sub(1);
      while (waiting.load() > 0) std::this_thread::yield();
      const Clock::time_point start = Clock::now();
      double done = 0, elapsed = 0;
      do {
        done += work(i);
        elapsed = std::chrono::duration<double>(Clock::now() - start).count();
      } while (elapsed < seconds);
      rates[i] = done / elapsed;
    });
  }
  for (std::thread& worker : workers) worker.join();
  double sum = 0;
  for (const double rate : rates) sum += rate;
  return sum;
}

struct Flags {
  int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  int rounds = 10;
  double seconds = 0.05;
  bool json = false;
};

double BestRate(const Flags& flags, int threads, const std::function<double(int)>& work) {
  double best = 0;
  for (int i = 0; i < flags.rounds; ++i) {
    best = std::max(best, RateOnce(threads, flags.seconds, work));
  }
  return best;
}

double Gigaflops(const Flags& flags, int threads, const Loop& loop) {
  if (loop.run == nullptr) return 0;
  constexpr int64_t kRepetitions = 20000;  // well below a millisecond
  return BestRate(flags, threads,
                  [&](int) {
                    loop.run(kRepetitions);
                    return loop.flops * kRepetitions;
                  }) /
         1e9;
}

// Gigabytes copied per second from memory to memory; each byte is read once and written once.
double CopyGigabytes(const Flags& flags, int threads) {
  constexpr size_t kBytes = size_t{96} << 20;  // exceeds the caches
  constexpr size_t kSlice = size_t{4} << 20;
  struct Arrays {
    std::vector<char> from = std::vector<char>(kBytes, 1), to = std::vector<char>(kBytes, 2);
    size_t next = 0;
  };
  std::vector<Arrays> arrays(threads);
  return BestRate(flags, threads,
                  [&](int thread) {
                    Arrays& mine = arrays[thread];
                    std::memcpy(mine.to.data() + mine.next, mine.from.data() + mine.next, kSlice);
                    mine.next = (mine.next + kSlice) % kBytes;
                    return static_cast<double>(kSlice);
                  }) /
         1e9;
}

nlohmann::json Measure(const Flags& flags) {
  const Loop float32 = Float32Loop(), bfloat16 = Bfloat16Loop();
  nlohmann::json result = {{"threads", flags.threads},
                           {"float32_instruction", float32.instruction},
                           {"bfloat16_instruction", bfloat16.instruction}};
  const auto measure = [&](int threads) -> nlohmann::json {
    return {{"float32_gflops", Gigaflops(flags, threads, float32)},
            {"bfloat16_gflops", Gigaflops(flags, threads, bfloat16)},
            {"copy_gigabytes_per_second", CopyGigabytes(flags, threads)}};
  };
  result["one_thread"] = measure(1);
  result["all_threads"] = flags.threads == 1 ? result["one_thread"] : measure(flags.threads);
  return result;
}

void Print(const nlohmann::json& result) {
  const auto row = [&](const std::string& what, const char* figure) {
    std::printf("%-36s %12.1f %12.1f\n", what.c_str(), result["one_thread"][figure].get<double>(),
                result["all_threads"][figure].get<double>());
  };
  const auto name = [&](const char* key) {
    const std::string instruction = result[key];
    return instruction.empty() ? "none" : instruction;
  };
  std::printf("%-36s %12s %10d together\n", "", "one thread", result["threads"].get<int>());
  row("float32 GFLOP/s: " + name("float32_instruction"), "float32_gflops");
  row("bfloat16 GFLOP/s: " + name("bfloat16_instruction"), "bfloat16_gflops");
  row("copied GB/s", "copy_gigabytes_per_second");
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Measure how fast this machine multiplies, adds and copies");
  app.add_option("--threads", flags.threads, "threads of the parallel runs; default: all CPUs")
      ->check(CLI::Range(1, 1024));
  app.add_option("--rounds", flags.rounds, "number of rounds; the best counts")
      ->check(CLI::Range(1, 1000));
  app.add_option("--seconds", flags.seconds, "duration of a round")->check(CLI::Range(0.001, 10.0));
  app.add_flag("--json", flags.json, "print one line of JSON");
  CLI11_PARSE(app, argc, argv);
  const nlohmann::json result = Measure(flags);
  if (flags.json) {
    std::printf("%s\n", result.dump().c_str());
  } else {
    Print(result);
  }
  return 0;
}

}  // namespace
}  // namespace muster::kernels

int main(int argc, char** argv) { return muster::kernels::Main(argc, argv); }
