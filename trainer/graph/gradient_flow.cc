#include "trainer/graph/gradient_flow.h"

#include <algorithm>
#include <cstdint>
#include <unordered_map>

namespace muster::nn {
namespace {

// Lifetime of a gradient from its first contribution to its producer's backward, in time steps of
// backward: the loss is at 0.
struct Lifetime {
  int64_t first = 0;
  int64_t last = 0;
  std::vector<int64_t> changes;  // after the first contribution

  bool Overlaps(const Lifetime& other) const { return first <= other.last && other.first <= last; }
  bool ChangesUntil(int64_t time) const {
    return std::any_of(changes.begin(), changes.end(),
                       [time](int64_t change) { return change <= time; });
  }
};

class GradientPlanner {
 public:
  explicit GradientPlanner(const Program& program)
      : program_(program), lives_(program.tensors.size()), members_(program.tensors.size()) {
    for (size_t t = 0; t < program.tensors.size(); ++t) {
      index_[program.tensors[t].get()] = t;
      flow_.place.push_back(t);
      members_[t] = {t};
    }
    alone_.resize(program.tensors.size(), false);
    for (const auto* boundaries : {&program.inputs, &program.outputs}) {
      for (const Boundary& boundary : *boundaries) alone_[index_.at(boundary.tensor)] = true;
    }
    for (const auto& operation : program.operations) {
      producer_[index_.at(operation->output())] = operation.get();
    }
  }

  GradientFlow Run() && {
    Collect();
    Defer();
    Share();
    return std::move(flow_);
  }

 private:
  int64_t Time(size_t operation) const {
    return static_cast<int64_t>(program_.operations.size() - operation);
  }

  void Collect() {
    std::vector<bool> written(program_.tensors.size(), false);
    if (program_.logits != nullptr) written[index_.at(program_.logits)] = true;  // by the loss
    for (const Boundary& output : program_.outputs) written[index_.at(output.tensor)] = true;
    flow_.contributions.resize(program_.operations.size());
    for (size_t i = program_.operations.size(); i-- > 0;) {
      const Operation& operation = *program_.operations[i];
      Lifetime& own = lives_[index_.at(operation.output())];
      own.last = Time(i);
      if (operation.memory(1).activation_in_backward) own.changes.push_back(own.last);
      for (size_t input = 0; input < operation.inputs().size(); ++input) {
        if (!operation.inputs()[input]->needs_gradient) continue;
        const size_t tensor = index_.at(operation.inputs()[input]);
        const auto producer = producer_.find(tensor);
        const int64_t stride = operation.GradientStride(input);
        flow_.contributions[i].push_back(
            {.input = input,
             .tensor = tensor,
             .producer = producer == producer_.end() ? nullptr : producer->second,
             .first = !written[tensor] && stride == 1,
             .stride = stride});
        if (stride > 1) continue;  // stays in its own memory until the producer adds it
        if (written[tensor]) {
          lives_[tensor].changes.push_back(Time(i));
        } else {
          lives_[tensor].first = Time(i);
        }
        written[tensor] = true;
      }
    }
  }

  // Lets producers add the last contributions to their outputs' gradients.
  void Defer() {
    std::vector<bool> last_seen(program_.tensors.size(), false);
    for (size_t i = 0; i < program_.operations.size(); ++i) {
      for (Contribution& contribution : flow_.contributions[i]) {
        const bool last = !last_seen[contribution.tensor];
        last_seen[contribution.tensor] = true;
        contribution.deferred = contribution.stride > 1;
        if (contribution.deferred) continue;
        contribution.deferred = last && !contribution.first && contribution.producer != nullptr &&
                                contribution.producer->TakesGradientAddend() &&
                                !program_.operations[i]->PassesGradient(contribution.input);
      }
    }
  }

  void Share() {
    for (size_t i = program_.operations.size(); i-- > 0;) {
      const Operation& operation = *program_.operations[i];
      const size_t place = flow_.place[index_.at(operation.output())];
      std::vector<Contribution>& contributions = flow_.contributions[i];
      // A shortcut is the last input, and its gradient lives longest.
      for (auto at = contributions.rbegin(); at != contributions.rend(); ++at) {
        at->in_place = at->first && operation.PassesGradient(at->input) &&
                       MayJoin(at->tensor, place, operation);
        if (!at->in_place) continue;
        flow_.place[at->tensor] = place;
        members_[place].push_back(at->tensor);
      }
    }
  }

  // Whether the gradient of `tensor`, an input of `operation`, may share `place`.
  bool MayJoin(size_t tensor, size_t place, const Operation& operation) const {
    if (alone_[tensor] || alone_[place]) return false;
    const Lifetime& life = lives_[tensor];
    for (const size_t member : members_[place]) {
      // The output's gradient ends where the input's begins.
      if (program_.tensors[member].get() == operation.output()) continue;
      const Lifetime& other = lives_[member];
      if (!life.Overlaps(other)) continue;
      // Inputs of the same operation have the same gradient until one of the two changes.
      const auto& inputs = operation.inputs();
      const bool sibling =
          std::count(inputs.begin(), inputs.end(), program_.tensors[member].get()) > 0 &&
          other.first == life.first;
      if (!sibling || other.ChangesUntil(life.last) || life.ChangesUntil(other.last)) return false;
    }
    return true;
  }

  const Program& program_;
  std::unordered_map<const Tensor*, size_t> index_;
  std::unordered_map<size_t, const Operation*> producer_;
  std::vector<bool> alone_;                   // by tensor
  std::vector<Lifetime> lives_;               // by tensor
  std::vector<std::vector<size_t>> members_;  // by place
  GradientFlow flow_;
};

}  // namespace

GradientFlow PlanGradients(const Program& program) { return GradientPlanner(program).Run(); }

}  // namespace muster::nn
