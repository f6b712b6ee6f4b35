// What networks with residual blocks share.
#ifndef MUSTER_TRAINER_MODELS_RESIDUAL_H_
#define MUSTER_TRAINER_MODELS_RESIDUAL_H_

namespace muster::nn {

// How often residual block `block` of `blocks`, counted from zero, is left out of a step: it rises
// linearly from zero for the first block to `last` for the last one (Huang et al., "Deep Networks
// with Stochastic Depth", 2016).
inline double DropProbability(double last, int block, int blocks) {
  return blocks > 1 ? last * block / (blocks - 1) : last;
}

}  // namespace muster::nn

#endif  // MUSTER_TRAINER_MODELS_RESIDUAL_H_
