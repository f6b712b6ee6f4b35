#include "worker/train/evaluate.h"

#include <algorithm>

#include "absl/types/span.h"
#include "common/status.h"
#include "worker/data/augment.h"
#include "worker/data/sampler.h"

namespace muster::train {

absl::StatusOr<Evaluation> Evaluate(const data::ImageDataset& dataset, uint32_t max_rows,
                                    nn::Plan& plan, collectives::Communicator& communicator) {
  const data::Normalizer normalizer(dataset.info());
  const data::RowRange share =
      data::Share(dataset.size(), communicator.rank(), communicator.size());
  double totals[2] = {0, 0};  // loss, correct
  for (uint64_t begin = share.begin; begin < share.end; begin += max_rows) {
    const auto rows = static_cast<uint32_t>(std::min<uint64_t>(max_rows, share.end - begin));
    // A split's images follow each other in memory.
    normalizer.Apply(absl::MakeConstSpan(dataset.image(begin), rows * dataset.image_bytes()),
                     plan.input());
    for (uint32_t i = 0; i < rows; ++i) plan.labels()[i] = dataset.label(begin + i);
    plan.Forward(rows, /*training=*/false, nn::StepContext{});
    const nn::LossResult loss = plan.Loss(rows, /*label_smoothing=*/0, /*scale=*/0);
    totals[0] += loss.loss_sum;
    totals[1] += static_cast<double>(loss.correct);
  }
  RETURN_IF_ERROR(communicator
                      .AllReduce(totals, totals, 2, collectives::DataType::kFloat64,
                                 collectives::ReduceOp::kSum)
                      ->Wait());
  const auto samples = static_cast<double>(dataset.size());
  return Evaluation{totals[0] / samples, totals[1] / samples};
}

}  // namespace muster::train
