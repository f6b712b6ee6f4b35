// Job specs as other clients may send them: any values of any fields.
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "fuzzer/FuzzedDataProvider.h"
#include "spec/spec.h"
#include "tests/fuzz/check.h"
#include "tests/fuzz/edit_message.h"
#include "tests/fuzz/spec_round_trip.h"

namespace muster {
namespace {

constexpr char kTrain[] =
    "{train: {model: {name: small_cnn}, dataset: {name: fashion_mnist, path: /data}, epochs: 1}}";
constexpr char kCommand[] = "{command: [python3, train.py], files: [a], env: {A: b}}";

v1::JobSpec Parsed(const char* yaml) {
  const absl::StatusOr<v1::JobSpec> spec = spec::Parse(yaml, "base");
  fuzz::CheckOk(spec.status(), "the specs to begin with are valid");
  return *spec;
}

}  // namespace
}  // namespace muster

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster;
  static const std::vector<std::string> words = {
      "small_cnn",     "resnet18",    "mlp",      "ddp",    "dp",       "hybrid",
      "pipeline",      "sgd",         "adam",     "auto",   "gloo",     "nccl",
      "shm",           "mpi",         "cpu",      "cuda",   "O1",       "O2",
      "cosine",        "a",           "a-b",      "/a/b",   "all",      "1",
      "never",         "end",         "continue", "joined", "separate", "afterok",
      "cross_entropy", "image_folder"};
  static const v1::JobSpec train = Parsed(kTrain);
  static const v1::JobSpec command = Parsed(kCommand);
  FuzzedDataProvider input(data, size);
  v1::JobSpec spec = input.ConsumeBool() ? train : command;
  while (input.remaining_bytes() > 0) fuzz::EditMessage(input, words, spec);
  fuzz::CheckSpec(spec);
  return 0;
}
