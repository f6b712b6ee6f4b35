#include "worker/nn/memory.h"

#include <algorithm>
#include <functional>
#include <unordered_map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "worker/nn/arena.h"

namespace muster::nn {
namespace {

// When a place is written and read. Operation i runs forward at time i and backward at 2n - i; the
// loss between them at n.
class Schedule {
 public:
  Schedule(size_t operations, bool training)
      : loss_(static_cast<int64_t>(operations)), training_(training) {}

  int64_t forward(size_t operation) const { return static_cast<int64_t>(operation); }
  int64_t backward(size_t operation) const {
    return training_ ? 2 * loss_ - forward(operation) : forward(operation);
  }
  int64_t loss() const { return loss_; }
  int64_t end() const { return 2 * loss_ + 1; }

 private:
  const int64_t loss_;
  const bool training_;
};

// From the first write to the last read of what a place holds.
struct Life {
  int64_t first = 0;
  int64_t last = 0;

  void Include(const Life& other) {
    first = std::min(first, other.first);
    last = std::max(last, other.last);
  }
};

// Tensors are numbered as in the program.
class MemoryPlanner {
 public:
  MemoryPlanner(const Program& program, const CompileOptions& options)
      : program_(program),
        device_(*options.device),
        max_rows_(options.max_batch),
        training_(options.training),
        recompute_(options.training && options.recompute_activations),
        schedule_(program.operations.size(), options.training),
        consumers_(program.tensors.size()),
        producer_(program.tensors.size(), 0) {
    for (size_t t = 0; t < program.tensors.size(); ++t) index_[program.tensors[t].get()] = t;
    for (size_t i = 0; i < program.operations.size(); ++i) {
      const Operation& operation = *program.operations[i];
      memory_.push_back(operation.memory(options.max_batch));
      producer_[IndexOf(operation.output())] = i;
      for (const Tensor* input : operation.inputs()) consumers_[IndexOf(input)].push_back(i);
    }
  }

  absl::StatusOr<PlacedMemory> Run() && {
    ChooseRecomputed();
    PlanData();
    if (training_) PlanGradientPlaces();
    for (size_t t = 0; t < data_.size(); ++t) {
      if (data_place_[t] == t) AddPlaceOfTensors(t);
    }
    AddPlacesOfOperations();
    return Allocate();
  }

 private:
  static constexpr size_t kInputTensor = 0;

  size_t IndexOf(const Tensor* tensor) const { return index_.at(tensor); }
  size_t Bytes(size_t tensor) const { return program_.tensors[tensor]->bytes(max_rows_); }
  bool IsLogits(size_t tensor) const { return program_.tensors[tensor].get() == program_.logits; }
  bool ReadByProducer(size_t tensor) const {
    return tensor != kInputTensor && memory_[producer_[tensor]].output_in_backward;
  }

  // Whether the operation's backward reads the tensor.
  bool ReadsInBackward(size_t operation, size_t tensor) const {
    return memory_[operation].input_in_backward &&
           program_.operations[operation]->input() == program_.tensors[tensor].get();
  }

  // Outputs that backward reads, and that their producers can compute again from inputs that are
  // kept.
  void ChooseRecomputed() {
    recomputed_.resize(program_.tensors.size(), false);
    placed_.recomputations.resize(program_.operations.size());
    if (!recompute_) return;
    for (size_t i = 0; i < program_.operations.size(); ++i) {
      Operation* const operation = program_.operations[i].get();
      const size_t tensor = IndexOf(operation->output());
      if (!operation->Recomputes() || recomputed_[IndexOf(operation->input())]) continue;
      // Consumers stand in order, and backward begins with the last.
      const std::vector<size_t>& consumers = consumers_[tensor];
      const auto reader = std::find_if(consumers.rbegin(), consumers.rend(), [&](size_t consumer) {
        return ReadsInBackward(consumer, tensor);
      });
      const bool overwritten = consumers.size() == 1 && memory_[consumers[0]].gradient_over_input;
      if (reader == consumers.rend() || overwritten) continue;
      recomputed_[tensor] = true;
      placed_.recomputations[*reader].push_back({.producer = operation});
    }
  }

  // When the operation's inputs are last read in the forward direction.
  int64_t LastForward(size_t operation) const {
    const Operation* const later = program_.operations[operation]->evaluated_by();
    return schedule_.forward(later == nullptr ? operation : producer_[IndexOf(later->output())]);
  }

  // The lives of all values, and which of them lie in one place.
  void PlanData() {
    for (size_t t = 0; t < program_.tensors.size(); ++t) {
      Life life;
      // The batch may be computed anew, and logits are read after the step.
      if (t == kInputTensor || IsLogits(t)) life.last = schedule_.end();
      if (t != kInputTensor) {
        life.first = schedule_.forward(producer_[t]);
        if (ReadByProducer(t)) life.last = std::max(life.last, schedule_.backward(producer_[t]));
      }
      for (const size_t consumer : consumers_[t]) {
        life.last = std::max(life.last, LastForward(consumer));
        if (ReadsInBackward(consumer, t) && !recomputed_[t]) {
          life.last = std::max(life.last, schedule_.backward(consumer));
        }
      }
      data_.push_back(life);
      data_place_.push_back(t);
      alone_.push_back(true);
    }
    for (size_t i = 0; i < program_.operations.size(); ++i) {
      const size_t output = IndexOf(program_.operations[i]->output());
      if (!memory_[i].output_over_input) continue;
      for (const Tensor* tensor : program_.operations[i]->inputs()) {
        const size_t input = IndexOf(tensor);
        if (input == kInputTensor || consumers_[input].size() != 1 || ReadByProducer(input)) {
          continue;
        }
        const size_t place = data_place_[input];
        data_place_[output] = place;
        data_[place].Include(data_[output]);
        alone_[output] = alone_[input] = false;
        break;
      }
    }
  }

  // A gradient lies in a place of its own, or over the value where the only one who takes that
  // allows it and nobody reads the value any more.
  void PlanGradientPlaces() {
    flow_ = PlanGradients(program_);
    std::vector<Life> lives(program_.tensors.size());
    gradient_over_data_.resize(program_.tensors.size(), false);
    for (size_t t = 0; t < program_.tensors.size(); ++t) {
      if (!program_.tensors[t]->needs_gradient) continue;
      lives[t] = {IsLogits(t) ? schedule_.loss() : schedule_.backward(consumers_[t].back()),
                  schedule_.backward(producer_[t])};
    }
    for (size_t t = 0; t < program_.tensors.size(); ++t) {
      if (flow_.place[t] != t) lives[flow_.place[t]].Include(lives[t]);
    }
    for (size_t t = 0; t < program_.tensors.size(); ++t) {
      if (!program_.tensors[t]->needs_gradient || flow_.place[t] != t) continue;
      if (alone_[t] && consumers_[t].size() == 1 && !ReadByProducer(t) &&
          memory_[consumers_[t][0]].gradient_over_input) {
        gradient_over_data_[t] = true;
        data_[t].Include(lives[t]);
      } else {
        AddPlace(Bytes(t), lives[t], [this, t](char* at) { SetGradients(t, at); });
      }
    }
  }

  void SetGradients(size_t place, char* at) const {
    for (size_t t = 0; t < program_.tensors.size(); ++t) {
      Tensor& tensor = *program_.tensors[t];
      if (tensor.needs_gradient && flow_.place[t] == place) {
        tensor.gradient = at;
      }
    }
  }

  void AddPlaceOfTensors(size_t place) {
    AddPlace(Bytes(place), data_[place], [this, place](char* at) {
      for (size_t t = 0; t < program_.tensors.size(); ++t) {
        if (data_place_[t] == place) program_.tensors[t]->data = at;
      }
      if (training_ && gradient_over_data_[place]) SetGradients(place, at);
    });
  }

  void AddPlacesOfOperations() {
    size_t workspace_bytes = 0;
    for (size_t i = 0; i < program_.operations.size(); ++i) {
      Operation* const operation = program_.operations[i].get();
      workspace_bytes = std::max(workspace_bytes, memory_[i].workspace_bytes);
      AddPlace(memory_[i].saved_bytes, {schedule_.forward(i), schedule_.backward(i)},
               [operation](char* at) { operation->set_saved(at); });
    }
    for (size_t i = 0; i < flow_.contributions.size(); ++i) {
      for (Contribution& contribution : flow_.contributions[i]) {
        if (contribution.first || program_.operations[i]->PassesGradient(contribution.input)) {
          continue;
        }
        AddPlace(Bytes(contribution.tensor), {schedule_.backward(i), schedule_.backward(i)},
                 [&contribution](char* at) { contribution.addend = at; });
      }
    }
    for (size_t i = 0; i < placed_.recomputations.size(); ++i) {
      for (Recomputation& recomputation : placed_.recomputations[i])
        AddSecondPlace(i, recomputation);
    }
    AddPlace(workspace_bytes, {0, schedule_.end()}, [this](char* at) { placed_.workspace = at; });
    AddPlace(max_rows_ * sizeof(int32_t), {0, schedule_.end()},
             [this](char* at) { placed_.labels = reinterpret_cast<int32_t*>(at); });
    AddArray(1, placed_.loss);
    AddArray(1, placed_.draw);
    AddArray(program_.blocks.size(), placed_.blocks);
    AddArray(program_.blocks.size(), placed_.block_states);
  }

  // That is alive all the time.
  template <typename T>
  void AddArray(size_t count, T*& array) {
    AddPlace(count * sizeof(T), {0, schedule_.end()},
             [&array](char* at) { array = reinterpret_cast<T*>(at); });
  }

  // Of an output that is computed again before the operation's backward. Comes after the first
  // place.
  void AddSecondPlace(size_t operation, Recomputation& recomputation) {
    const size_t tensor = IndexOf(recomputation.producer->output());
    Life life = {schedule_.backward(operation), schedule_.backward(operation)};
    for (const size_t consumer : consumers_[tensor]) {
      if (ReadsInBackward(consumer, tensor)) {
        life.last = std::max(life.last, schedule_.backward(consumer));
      }
    }
    AddPlace(Bytes(tensor), life, [&recomputation](char* at) {
      recomputation.kept = recomputation.producer->output()->data;
      recomputation.again = at;
    });
  }

  void AddPlace(size_t bytes, const Life& life, std::function<void(char*)> assign) {
    places_.emplace_back(arena_.Add(bytes, life.first, life.last), std::move(assign));
  }

  absl::StatusOr<PlacedMemory> Allocate() {
    arena_.Place();
    absl::StatusOr<kernels::DeviceMemory> arena =
        device_.Allocate(std::max(arena_.bytes(), ArenaPlanner::kAlignment));
    if (!arena.ok()) {
      return Annotate(arena.status(), absl::StrCat("the activations of a batch of ", max_rows_));
    }
    placed_.arena = *std::move(arena);
    for (const auto& [buffer, assign] : places_) {
      assign(placed_.arena.as<char>() + arena_.offset(buffer));
    }
    for (size_t i = 0; i < program_.blocks.size(); ++i) {
      program_.blocks[i]->state = placed_.block_states + i;
    }
    placed_.contributions = std::move(flow_.contributions);
    return std::move(placed_);
  }

  const Program& program_;
  kernels::Device& device_;
  const size_t max_rows_;
  const bool training_;
  const bool recompute_;
  const Schedule schedule_;
  std::vector<Operation::Memory> memory_;       // by operation
  std::vector<std::vector<size_t>> consumers_;  // by tensor, operations
  std::vector<size_t> producer_;                // by tensor; of the input without meaning
  std::unordered_map<const Tensor*, size_t> index_;
  std::vector<bool> recomputed_;  // by tensor
  // By tensor: the life of what its place holds, for those that are their place's first; that
  // first one; whether no other tensor lies there.
  std::vector<Life> data_;
  std::vector<size_t> data_place_;
  std::vector<bool> alone_;
  GradientFlow flow_;
  std::vector<bool> gradient_over_data_;  // by tensor that is its gradient place's first
  ArenaPlanner arena_;
  std::vector<std::pair<size_t, std::function<void(char*)>>> places_;  // by buffer of the arena
  PlacedMemory placed_;
};

}  // namespace

absl::StatusOr<PlacedMemory> PlaceMemory(const Program& program, const CompileOptions& options) {
  return MemoryPlanner(program, options).Run();
}

}  // namespace muster::nn
