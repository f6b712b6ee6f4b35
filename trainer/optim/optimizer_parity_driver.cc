// Runs an optimizer and a schedule on given gradients, for optimizer_parity_test.py.
//
//   optimizer_parity_driver OPTIMIZER SCHEDULE TOTAL_STEPS STEPS_PER_EPOCH SHAPE…
//
// OPTIMIZER and SCHEDULE are OptimizerSpec and ScheduleSpec in text format; each SHAPE, e.g. 3x5,
// is that of a parameter. stdin: the parameters, then the gradients of each step, float32 without
// padding. stdout: for each step the learning rate and the gradient norm (0 without clipping) as
// two float64, then the parameters as float32.
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "google/protobuf/text_format.h"
#include "proto/muster/v1/job.pb.h"
#include "trainer/loop/testing.h"
#include "trainer/optim/optimizer.h"
#include "trainer/optim/schedule.h"

namespace muster::train {
namespace {

constexpr size_t kAlignedElements = 16;  // parameters are padded to a multiple, as in a plan

[[noreturn]] void Fail(const std::string& what) {
  std::cerr << "optimizer_parity_driver: " << what << "\n";
  std::exit(1);
}

template <typename Message>
Message Parse(const std::string& text) {
  Message message;
  if (!google::protobuf::TextFormat::ParseFromString(text, &message)) Fail("cannot parse " + text);
  return message;
}

int64_t ParseNumber(absl::string_view text) {
  int64_t number = 0;
  if (!absl::SimpleAtoi(text, &number) || number <= 0) Fail(absl::StrCat("invalid size: ", text));
  return number;
}

size_t CountOf(const nn::ParameterInfo& parameter) {
  size_t count = 1;
  for (const int64_t dimension : parameter.shape) count *= static_cast<size_t>(dimension);
  return count;
}

class Driver {
 public:
  explicit Driver(absl::Span<const std::string> shapes) {
    size_t offset = 0;
    for (const std::string& text : shapes) {
      nn::ParameterInfo parameter;
      for (const absl::string_view number : absl::StrSplit(text, 'x')) {
        parameter.shape.push_back(ParseNumber(number));
      }
      parameter.offset = offset;
      parameter.count =
          (CountOf(parameter) + kAlignedElements - 1) / kAlignedElements * kAlignedElements;
      offset += parameter.count;
      parameters_.push_back(std::move(parameter));
    }
    values_.resize(offset);
    gradients_.resize(offset);
  }

  void Run(const v1::OptimizerSpec& optimizer_spec, const v1::ScheduleSpec& schedule_spec,
           uint64_t total_steps, uint64_t steps_per_epoch) {
    const auto optimizer = Optimizer::Create(optimizer_spec, parameters_);
    if (!optimizer.ok()) Fail(optimizer.status().ToString());
    const auto schedule = Schedule::Create(schedule_spec, optimizer_spec.learning_rate(),
                                           total_steps, steps_per_epoch);
    if (!schedule.ok()) Fail(schedule.status().ToString());
    TestUpdates updates(UpdateRulesOf(optimizer_spec));
    Read(values_);
    for (uint64_t step = 0; step < total_steps; ++step) {
      Read(gradients_);
      const double rate = schedule->LearningRate(step);
      (*optimizer)
          ->Step(updates.Decide(rate, step, gradients_.data(), gradients_.size()), values_.data(),
                 gradients_.data());
      const double figures[] = {rate, updates.gradient_norm().value_or(0)};
      Write(figures, 2);
      for (const nn::ParameterInfo& parameter : parameters_) {
        Write(values_.data() + parameter.offset, CountOf(parameter));
      }
    }
  }

 private:
  void Read(std::vector<float>& flat) {
    for (const nn::ParameterInfo& parameter : parameters_) {
      const size_t count = CountOf(parameter);
      if (std::fread(flat.data() + parameter.offset, sizeof(float), count, stdin) != count) {
        Fail("unexpected end of stdin");
      }
    }
  }

  template <typename Value>
  void Write(const Value* values, size_t count) {
    if (std::fwrite(values, sizeof(Value), count, stdout) != count) Fail("cannot write to stdout");
  }

  std::vector<nn::ParameterInfo> parameters_;
  std::vector<float> values_;
  std::vector<float> gradients_;
};

int Main(const std::vector<std::string>& arguments) {
  if (arguments.size() < 6) Fail("too few arguments");
  Driver driver(absl::MakeConstSpan(arguments).subspan(5));
  driver.Run(Parse<v1::OptimizerSpec>(arguments[1]), Parse<v1::ScheduleSpec>(arguments[2]),
             static_cast<uint64_t>(ParseNumber(arguments[3])),
             static_cast<uint64_t>(ParseNumber(arguments[4])));
  return 0;
}

}  // namespace
}  // namespace muster::train

int main(int argc, char** argv) {
  return muster::train::Main(std::vector<std::string>(argv, argv + argc));
}
