#include "trainer/graph/memory.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "trainer/graph/arena.h"

namespace muster::nn {
namespace {

// Larger than any machine's memory, but small enough that sums do not overflow.
constexpr size_t kMaxBytes = size_t{1} << 60;

// Times at which memory is written and read. Operation i runs forward at time i and backward at
// 2n - i; the loss is computed at n.
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

// Lifetime from the first write to the last read.
struct Lifetime {
  int64_t first = 0;
  int64_t last = 0;

  void Include(const Lifetime& other) {
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
        max_samples_(options.max_batch),
        slots_(options.in_flight_micro_batches),
        training_(options.training),
        recompute_(options.training && options.recompute_activations),
        schedule_(program.operations.size(), options.training),
        consumers_(program.tensors.size()),
        producer_(program.tensors.size(), kGiven),
        crosses_(program.tensors.size(), false) {
    for (size_t t = 0; t < program.tensors.size(); ++t) index_[program.tensors[t].get()] = t;
    for (size_t i = 0; i < program.operations.size(); ++i) {
      const Operation& operation = *program.operations[i];
      memory_.push_back(operation.memory(options.max_batch));
      producer_[IndexOf(operation.output())] = i;
      for (const Tensor* input : operation.inputs()) consumers_[IndexOf(input)].push_back(i);
    }
    for (const auto* boundaries : {&program.inputs, &program.outputs}) {
      for (const Boundary& boundary : *boundaries) crosses_[IndexOf(boundary.tensor)] = true;
    }
  }

  absl::StatusOr<std::unique_ptr<PlacedMemory>> Run() && {
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
  // Producer index of the batch and of values from an earlier stage.
  static constexpr size_t kGiven = std::numeric_limits<size_t>::max();

  size_t IndexOf(const Tensor* tensor) const { return index_.at(tensor); }
  size_t Bytes(size_t tensor) const { return program_.tensors[tensor]->bytes(max_samples_); }
  bool IsBatch(size_t tensor) const { return program_.tensors[tensor].get() == program_.input; }
  bool IsLogits(size_t tensor) const { return program_.tensors[tensor].get() == program_.logits; }
  Lifetime Always() const { return {0, schedule_.end()}; }
  bool ReadByProducer(size_t tensor) const {
    return producer_[tensor] != kGiven && memory_[producer_[tensor]].output_in_backward;
  }

  // Whether the operation's backward reads the tensor.
  bool ReadsInBackward(size_t operation, size_t tensor) const {
    return memory_[operation].input_in_backward &&
           program_.operations[operation]->input() == program_.tensors[tensor].get();
  }

  // Selects outputs that backward reads and that their producers can recompute from inputs that are
  // kept.
  void ChooseRecomputed() {
    recomputed_.resize(program_.tensors.size(), false);
    placed_->recomputations.resize(program_.operations.size());
    if (!recompute_) return;
    for (size_t i = 0; i < program_.operations.size(); ++i) {
      Operation* const operation = program_.operations[i].get();
      const size_t tensor = IndexOf(operation->output());
      if (!operation->Recomputes() || recomputed_[IndexOf(operation->input())]) continue;
      if (crosses_[tensor]) continue;  // kept anyway
      // Consumers are in ascending order, and backward begins with the last.
      const std::vector<size_t>& consumers = consumers_[tensor];
      const auto reader = std::find_if(consumers.rbegin(), consumers.rend(), [&](size_t consumer) {
        return ReadsInBackward(consumer, tensor);
      });
      const bool overwritten = consumers.size() == 1 && memory_[consumers[0]].gradient_over_input;
      if (reader == consumers.rend() || overwritten) continue;
      recomputed_[tensor] = true;
      placed_->recomputations[*reader].push_back({.producer = operation});
    }
  }

  // Time of the last read of the operation's inputs in forward.
  int64_t LastForward(size_t operation) const {
    const Operation* const later = program_.operations[operation]->evaluated_by();
    return schedule_.forward(later == nullptr ? operation : producer_[IndexOf(later->output())]);
  }

  // Determines the lifetimes of all values, and which of them share memory.
  void PlanData() {
    for (size_t t = 0; t < program_.tensors.size(); ++t) {
      Lifetime life;
      // The caller may refill the batch, and logits are read after the step.
      if (IsBatch(t) || IsLogits(t)) life.last = schedule_.end();
      if (producer_[t] != kGiven) {
        life.first = schedule_.forward(producer_[t]);
        if (ReadByProducer(t)) life.last = std::max(life.last, schedule_.backward(producer_[t]));
      }
      for (const size_t consumer : consumers_[t]) {
        life.last = std::max(life.last, LastForward(consumer));
        if (ReadsInBackward(consumer, t) && !recomputed_[t]) {
          life.last = std::max(life.last, schedule_.backward(consumer));
        }
      }
      // Other code writes and reads boundary values before, after and between the passes.
      if (crosses_[t]) life = Always();
      data_.push_back(life);
      data_place_.push_back(t);
      alone_.push_back(true);
    }
    for (size_t i = 0; i < program_.operations.size(); ++i) {
      const size_t output = IndexOf(program_.operations[i]->output());
      if (!memory_[i].output_over_input || crosses_[output]) continue;
      for (const Tensor* tensor : program_.operations[i]->inputs()) {
        const size_t input = IndexOf(tensor);
        if (producer_[input] == kGiven || crosses_[input] || consumers_[input].size() != 1 ||
            ReadByProducer(input)) {
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

  // A gradient has its own memory, or overwrites the value if its only consumer allows that and
  // the value is not read any more.
  void PlanGradientPlaces() {
    flow_ = PlanGradients(program_);
    std::vector<Lifetime> lives(program_.tensors.size());
    gradient_over_data_.resize(program_.tensors.size(), false);
    for (size_t t = 0; t < program_.tensors.size(); ++t) {
      if (!program_.tensors[t]->needs_gradient) continue;
      lives[t] =
          crosses_[t] ? Always() : Lifetime{FirstGradient(t), schedule_.backward(producer_[t])};
    }
    for (size_t t = 0; t < program_.tensors.size(); ++t) {
      if (flow_.place[t] != t) lives[flow_.place[t]].Include(lives[t]);
    }
    for (size_t t = 0; t < program_.tensors.size(); ++t) {
      if (!program_.tensors[t]->needs_gradient || flow_.place[t] != t) continue;
      if (alone_[t] && !crosses_[t] && consumers_[t].size() == 1 && !ReadByProducer(t) &&
          memory_[consumers_[t][0]].gradient_over_input) {
        gradient_over_data_[t] = true;
        data_[t].Include(lives[t]);
      } else {
        AddPlace(Bytes(t), lives[t], [tensors = GradientsAt(t)](char* at) {
          for (Tensor* tensor : tensors) tensor->gradient = at;
        });
      }
    }
  }

  // The time at which a tensor's gradient is first written.
  int64_t FirstGradient(size_t tensor) const {
    if (IsLogits(tensor)) return schedule_.loss();
    const size_t consumer = consumers_[tensor].back();
    if (!memory_[consumer].backward_by_consumer) return schedule_.backward(consumer);
    return FirstGradient(IndexOf(program_.operations[consumer]->output()));
  }

  // The tensors whose gradients are in `place`.
  std::vector<Tensor*> GradientsAt(size_t place) const {
    std::vector<Tensor*> tensors;
    for (size_t t = 0; t < program_.tensors.size(); ++t) {
      Tensor* const tensor = program_.tensors[t].get();
      if (tensor->needs_gradient && flow_.place[t] == place) tensors.push_back(tensor);
    }
    return tensors;
  }

  void AddPlaceOfTensors(size_t place) {
    std::vector<Tensor*> tensors;
    for (size_t t = 0; t < program_.tensors.size(); ++t) {
      if (data_place_[t] == place) tensors.push_back(program_.tensors[t].get());
    }
    std::vector<Tensor*> gradients;
    if (training_ && gradient_over_data_[place]) gradients = GradientsAt(place);
    AddPlace(Bytes(place), data_[place],
             [tensors = std::move(tensors), gradients = std::move(gradients)](char* at) {
               for (Tensor* tensor : tensors) tensor->data = at;
               for (Tensor* tensor : gradients) tensor->gradient = at;
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
        const size_t added_by = contribution.deferred ? producer_[contribution.tensor] : i;
        const ImageShape& shape = program_.tensors[contribution.tensor]->shape;
        const auto covered = [&](int64_t pixels) {
          return static_cast<size_t>((pixels + contribution.stride - 1) / contribution.stride);
        };
        const size_t bytes = Bytes(contribution.tensor) /
                             static_cast<size_t>(shape.height * shape.width) *
                             covered(shape.height) * covered(shape.width);
        AddPlace(bytes, {schedule_.backward(i), schedule_.backward(added_by)},
                 [&contribution](char* at) { contribution.addend = at; });
      }
    }
    for (size_t i = 0; i < placed_->recomputations.size(); ++i) {
      for (Recomputation& recomputation : placed_->recomputations[i])
        AddSecondPlace(i, recomputation);
    }
    PlacedMemory& placed = *placed_;
    AddPlace(
        workspace_bytes, Always(), [&placed](char* at) { placed.workspace = at; }, kOnce);
    AddArray(max_samples_, placed.labels, kInEachSlot);
    AddArray(1, placed.loss, kOnce);
    AddArray(1, placed.draw, kInEachSlot);
    AddArray(program_.blocks.size(), placed.blocks, kOnce);
    const auto& blocks = program_.blocks;
    AddPlace(
        blocks.size() * sizeof(kernels::BlockState), Always(),
        [&placed, &blocks](char* at) {
          placed.block_states = reinterpret_cast<kernels::BlockState*>(at);
          for (size_t i = 0; i < blocks.size(); ++i) blocks[i]->state = placed.block_states + i;
        },
        kInEachSlot);
  }

  enum Copies { kOnce, kInEachSlot };

  // A buffer that is live at all times.
  template <typename T>
  void AddArray(size_t count, T*& array, Copies copies) {
    AddPlace(
        count * sizeof(T), Always(), [&array](char* at) { array = reinterpret_cast<T*>(at); },
        copies);
  }

  // Adds the second address of an output that is recomputed before the operation's backward. Called
  // after the first was added.
  void AddSecondPlace(size_t operation, Recomputation& recomputation) {
    const size_t tensor = IndexOf(recomputation.producer->output());
    Lifetime life = {schedule_.backward(operation), schedule_.backward(operation)};
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

  // Once per slot if the buffer is live at the time of the loss, where passes of other
  // micro-batches may run.
  void AddPlace(size_t bytes, const Lifetime& life, std::function<void(char*)> assign) {
    const bool kept = life.first <= schedule_.loss() && schedule_.loss() <= life.last;
    AddPlace(bytes, life, std::move(assign), kept ? kInEachSlot : kOnce);
  }

  // `assign` is called again for other slots and must outlive this planner.
  void AddPlace(size_t bytes, const Lifetime& life, std::function<void(char*)> assign,
                Copies copies) {
    Place place = {.copies = copies, .assign = std::move(assign)};
    if (copies == kInEachSlot) place.in_slot = slot_.Add(bytes, life.first, life.last);
    if (copies == kOnce || slots_ == 1) place.in_arena = arena_.Add(bytes, life.first, life.last);
    places_.push_back(std::move(place));
  }

  absl::StatusOr<std::unique_ptr<PlacedMemory>> Allocate() {
    arena_.Place();
    slot_.Place();
    placed_->slot_bytes = slot_.bytes();
    const std::string use =
        slots_ == 1 ? absl::StrCat("activations of a batch of ", max_samples_)
                    : absl::StrCat("activations of ", slots_, " batches of ", max_samples_);
    if (slot_.bytes() > kMaxBytes / slots_) {
      return absl::ResourceExhaustedError(
          absl::StrCat(use, " exceed the limit of ", kMaxBytes, " bytes"));
    }
    const size_t of_slots = slots_ == 1 ? 0 : slots_ * slot_.bytes();
    absl::StatusOr<kernels::DeviceMemory> arena =
        device_.Allocate(std::max(of_slots + arena_.bytes(), ArenaPlanner::kAlignment), use);
    if (!arena.ok()) return arena.status();
    placed_->arena = *std::move(arena);
    char* const slots = placed_->arena.as<char>();
    char* const rest = slots + of_slots;
    for (Place& place : places_) {
      if (place.copies == kOnce || slots_ == 1) {
        place.assign(rest + arena_.offset(place.in_arena));
      } else {
        const size_t offset = slot_.offset(place.in_slot);
        place.assign(slots + offset);
        placed_->slot_places.push_back({.offset = offset, .assign = std::move(place.assign)});
      }
    }
    placed_->contributions = std::move(flow_.contributions);
    return std::move(placed_);
  }

  struct Place {
    Copies copies = kOnce;
    size_t in_slot = 0;   // buffer index in slot_
    size_t in_arena = 0;  // buffer index in arena_
    std::function<void(char*)> assign;
  };

  const Program& program_;
  kernels::Device& device_;
  const size_t max_samples_;
  const size_t slots_;
  const bool training_;
  const bool recompute_;
  const Schedule schedule_;
  std::vector<Operation::Memory> memory_;       // by operation
  std::vector<std::vector<size_t>> consumers_;  // by tensor: operations
  std::vector<size_t> producer_;                // by tensor
  std::vector<bool> crosses_;                   // by tensor: to or from another stage
  std::unordered_map<const Tensor*, size_t> index_;
  std::vector<bool> recomputed_;  // by tensor
  // By tensor: the lifetime of its memory, valid for the first tensor there; that first tensor;
  // whether no other tensor shares the memory.
  std::vector<Lifetime> data_;
  std::vector<size_t> data_place_;
  std::vector<bool> alone_;
  GradientFlow flow_;
  std::vector<bool> gradient_over_data_;  // by tensor that is first in its gradient's memory
  ArenaPlanner arena_;                    // buffers that exist once; with one slot all buffers
  ArenaPlanner slot_;                     // buffers that each slot has
  std::vector<Place> places_;
  std::unique_ptr<PlacedMemory> placed_ = std::make_unique<PlacedMemory>();
};

}  // namespace

void PlacedMemory::SelectSlot(uint32_t slot) {
  char* const at = arena.as<char>() + slot * slot_bytes;
  for (const SlotPlace& place : slot_places) place.assign(at + place.offset);
}

absl::StatusOr<std::unique_ptr<PlacedMemory>> PlaceMemory(const Program& program,
                                                          const CompileOptions& options) {
  return MemoryPlanner(program, options).Run();
}

}  // namespace muster::nn
