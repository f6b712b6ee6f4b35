#include "kernels/reference/reference_kernels.h"
#include "kernels/update_rules.h"

namespace muster::kernels::reference {

void DrawBlocks(const RandomDraw* draw, int64_t count, const BlockDraw* blocks,
                BlockState* states) {
  for (int64_t i = 0; i < count; ++i) states[i] = DrawnState(blocks, i, draw->key);
}

void BeginUpdate(const UpdateRules& rules, const UpdateInputs& inputs, UpdateState* state,
                 UpdateScalars* scalars, StepRecord* records) {
  DecideUpdate(rules, inputs, *state, *scalars, records);
}

void RestoreSkipped(const UpdateScalars* scalars, const float* kept, float* values, size_t count) {
  for (size_t i = 0; i < count; ++i) values[i] = scalars->skip != 0 ? kept[i] : values[i];
}

}  // namespace muster::kernels::reference
