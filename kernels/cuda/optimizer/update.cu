#include "kernels/cuda/launch/launch.h"
#include "kernels/cuda/table/kernels.h"
#include "kernels/update_rules.h"

namespace muster::kernels::MUSTER_INSTRUCTION_SET {
namespace {

struct DrawBody {
  const RandomDraw* draw;
  const BlockDraw* blocks;
  BlockState* states;
  MUSTER_HOST_DEVICE void operator()(int64_t i) const {
    states[i] = DrawnState(blocks, i, draw->key);
  }
};

struct DecideBody {
  UpdateRules rules;
  UpdateInputs inputs;
  UpdateState* state;
  UpdateScalars* scalars;
  StepRecord* records;
  MUSTER_HOST_DEVICE void operator()(int64_t) const {
    DecideUpdate(rules, inputs, *state, *scalars, records);
  }
};

struct RestoreBody {
  const UpdateScalars* scalars;
  const float* kept;
  float* values;
  MUSTER_HOST_DEVICE void operator()(int64_t i) const {
    if (scalars->skip != 0) values[i] = kept[i];
  }
};

}  // namespace

void DrawBlocks(const RandomDraw* draw, int64_t count, const BlockDraw* blocks,
                BlockState* states) {
  ForEachItem(count, DrawBody{draw, blocks, states});
}

void BeginUpdate(const UpdateRules& rules, const UpdateInputs& inputs, UpdateState* state,
                 UpdateScalars* scalars, StepRecord* records) {
  ForEachItem(1, DecideBody{rules, inputs, state, scalars, records});
}

void RestoreSkipped(const UpdateScalars* scalars, const float* kept, float* values, size_t count) {
  StateWork(2 * ArrayBytes(DataType::kFloat32, static_cast<int64_t>(count)));
  ForEachItem(static_cast<int64_t>(count), RestoreBody{scalars, kept, values});
}

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET
