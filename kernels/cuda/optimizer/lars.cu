#include "kernels/cuda/launch/block_reduce.h"
#include "kernels/cuda/launch/launch.h"
#include "kernels/cuda/optimizer/sgd.h"
#include "kernels/cuda/table/kernels.h"
#include "kernels/update_rules.h"

namespace muster::kernels::MUSTER_INSTRUCTION_SET {
namespace {

// The elements of one tensor that one block processes.
struct Piece {
  int64_t tensor;
  int64_t begin;  // in the flat arrays
  int64_t count;
  bool vectors;  // the first element is aligned for vector loads
};

MUSTER_HOST_DEVICE Piece PieceAt(const LarsTensor* tensors, int64_t count, int64_t piece,
                                 bool aligned) {
  // Binary search for the last tensor that begins at or before the piece.
  int64_t first = 0, after = count;
  while (after - first > 1) {
    const int64_t middle = first + (after - first) / 2;
    (tensors[middle].first_piece <= piece ? first : after) = middle;
  }
  const LarsTensor& tensor = tensors[first];
  const int64_t at = (piece - tensor.first_piece) * kLarsPiece;
  return {first, tensor.offset + at, Min(kLarsPiece, tensor.count - at),
          aligned && tensor.offset % kStepWidth == 0};
}

// Calls visit(n, at) for the elements [at, at + n) of the piece that the thread processes; n is a
// std::integral_constant.
template <typename Visit>
MUSTER_HOST_DEVICE void ForEachOfThread(const Piece& piece, int thread, const Visit& visit) {
  const int64_t vectors = piece.vectors ? piece.count / kStepWidth : 0;
  const int64_t end = piece.begin + piece.count;
  for (int64_t i = thread; i < vectors; i += kThreads) {
    visit(std::integral_constant<int, kStepWidth>(), piece.begin + i * kStepWidth);
  }
  for (int64_t at = piece.begin + vectors * kStepWidth + thread; at < end; at += kThreads) {
    visit(std::integral_constant<int, 1>(), at);
  }
}

struct SquaredNorms {
  double parameters;
  double gradients;
  MUSTER_HOST_DEVICE static SquaredNorms Identity() { return {0, 0}; }
  MUSTER_HOST_DEVICE void Add(const SquaredNorms& other) {
    parameters += other.parameters;
    gradients += other.gradients;
  }
};

template <int kCount>
MUSTER_HOST_DEVICE double SumOfSquaresAt(const float* x) {
  const Floats<kCount> values = Load<kCount>(x);
  double sum = 0;
  for (int i = 0; i < kCount; ++i) sum += double{values[i]} * double{values[i]};
  return sum;
}

struct AddSquares {
  const float* parameters;
  const float* gradients;
  SquaredNorms* sum;
  template <int kCount>
  MUSTER_HOST_DEVICE void operator()(std::integral_constant<int, kCount>, int64_t at) const {
    sum->Add({SumOfSquaresAt<kCount>(parameters + at), SumOfSquaresAt<kCount>(gradients + at)});
  }
};

// Squared norms of one piece per block.
struct PieceNormsBody {
  using Shared = BlockReduce<SquaredNorms>;
  static constexpr int kPhases = 3;

  LarsOptions options;
  const LarsTensor* tensors;
  bool aligned;
  const float* parameters;
  const float* gradients;
  SquaredNorms* pieces;

  MUSTER_HOST_DEVICE void Run(int phase, int64_t block, int thread, Shared& shared) const {
    if (phase == 0) {
      const Piece piece = PieceAt(tensors, options.tensors, block, aligned);
      SquaredNorms sum = SquaredNorms::Identity();
      if (tensors[piece.tensor].adapted) {
        ForEachOfThread(piece, thread, AddSquares{parameters, gradients, &sum});
      }
      shared.threads[thread] = sum;
    } else if (phase == 1) {
      shared.Reduce(thread);
    } else if (thread == 0) {
      pieces[block] = shared.Total();
    }
  }
};

// Rate of one tensor per block.
struct RatesBody {
  using Shared = BlockReduce<SquaredNorms>;
  static constexpr int kPhases = 3;

  LarsOptions options;
  const LarsTensor* tensors;
  const UpdateScalars* scalars;
  const SquaredNorms* pieces;
  UpdateScalars* rates;

  MUSTER_HOST_DEVICE void Run(int phase, int64_t block, int thread, Shared& shared) const {
    if (phase == 0) {
      const LarsTensor& tensor = tensors[block];
      const int64_t after = tensor.first_piece + LarsPieces(tensor.count);
      SquaredNorms sum = SquaredNorms::Identity();
      for (int64_t i = tensor.first_piece + thread; i < after; i += kThreads) sum.Add(pieces[i]);
      shared.threads[thread] = sum;
    } else if (phase == 1) {
      shared.Reduce(thread);
    } else if (thread == 0) {
      const SquaredNorms total = shared.Total();
      rates[block] =
          LarsRate(options, tensors[block].adapted, *scalars, total.parameters, total.gradients);
    }
  }
};

struct StepOf {
  SgdBody step;
  template <int kCount>
  MUSTER_HOST_DEVICE void operator()(std::integral_constant<int, kCount>, int64_t at) const {
    step.template Run<kCount>(at);
  }
};

// Step of one piece per block.
struct LarsStepBody {
  struct Shared {};
  static constexpr int kPhases = 1;

  LarsOptions options;
  const LarsTensor* tensors;
  bool aligned;
  const UpdateScalars* rates;
  float* parameters;
  float* velocities;  // or null
  const float* gradients;

  MUSTER_HOST_DEVICE void Run(int, int64_t block, int thread, Shared&) const {
    const Piece piece = PieceAt(tensors, options.tensors, block, aligned);
    SgdOptions step;
    step.momentum = options.momentum;
    step.weight_decay = tensors[piece.tensor].adapted ? options.weight_decay : 0;
    step.round_to = options.round_to;
    ForEachOfThread(piece, thread,
                    StepOf{{step, rates + piece.tensor, parameters, velocities, gradients}});
  }
};

}  // namespace

void LarsRates(const LarsOptions& options, const LarsTensor* tensors, const UpdateScalars* scalars,
               const float* parameters, const float* gradients, UpdateScalars* rates) {
  SquaredNorms* const pieces = Scratch<SquaredNorms>(Max(options.pieces, 1));
  if (pieces == nullptr) return;
  // The last piece of each tensor counts as a whole one.
  const double array = ArrayBytes(DataType::kFloat32, options.pieces * kLarsPiece);
  StateWork(2 * array);
  ForEachBlock(options.pieces, PieceNormsBody{options, tensors, Aligned({parameters, gradients}),
                                              parameters, gradients, pieces});
  ForEachBlock(options.tensors, RatesBody{options, tensors, scalars, pieces, rates});
}

void LarsStep(const LarsOptions& options, const LarsTensor* tensors, const UpdateScalars* rates,
              float* parameters, float* velocities, const float* gradients) {
  StateWork((velocities != nullptr ? 5 : 3) *
            ArrayBytes(DataType::kFloat32, options.pieces * kLarsPiece));
  ForEachBlock(options.pieces,
               LarsStepBody{options, tensors, Aligned({parameters, velocities, gradients}), rates,
                            parameters, velocities, gradients});
}

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET
