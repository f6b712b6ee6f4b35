// Shared by networks with residual blocks.
#ifndef MUSTER_TRAINER_MODELS_RESIDUAL_H_
#define MUSTER_TRAINER_MODELS_RESIDUAL_H_

namespace muster::nn {

// Probability that a step drops residual block `block` of `blocks`, counted from zero: it increases
// linearly from 0 for the first block to `last` for the last (Huang et al., "Deep Networks with
// Stochastic Depth", 2016).
inline double DropProbability(double last, int block, int blocks) {
  return blocks > 1 ? last * block / (blocks - 1) : last;
}

}  // namespace muster::nn

#endif  // MUSTER_TRAINER_MODELS_RESIDUAL_H_
