// A deliberate defect for instruction_set_test.py: a function that any object might define, and
// that the linker may keep for all of them, compiled for AVX2.
namespace muster::kernels {

__attribute__((noinline)) inline float SharedSum(const float* x) {
  float sum = 0;
  for (int i = 0; i < 64; ++i) sum += x[i] * x[i];
  return sum;
}

float CallsSharedSum(const float* x) { return SharedSum(x); }

}  // namespace muster::kernels
