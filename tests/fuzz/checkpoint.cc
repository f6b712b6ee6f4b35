// The small files of a checkpoint: the first byte of the input chooses which one has the rest as
// its contents.
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "common/sha256.h"
#include "tests/fuzz/check.h"
#include "tests/fuzz/temporary_folder.h"
#include "trainer/checkpoint/checkpoint_files.h"
#include "trainer/checkpoint/part_file.h"
#include "trainer/checkpoint/retention.h"
#include "trainer/checkpoint/tensor_set.h"

namespace muster {
namespace {

using namespace train;

// A folder that is complete except for the index of the model.
Manifest WriteFiles(const std::string& folder) {
  Manifest manifest;
  const Tensor tensor = {"w", {2}, std::vector<float>{1, 2}};
  fuzz::CheckOk(WriteTensors(folder, kModelFile, {tensor}, {}, manifest), "tensors are written");
  fuzz::CheckOk(WriteTensors(folder, kOptimizerFile, {tensor}, {}, manifest),
                "tensors are written");
  fuzz::CheckOk(WriteState(folder, {.step = 1, .job_id = "job"}, manifest), "the state is written");
  fuzz::CheckOk(WriteManifest(folder, manifest), "the manifest is written");
  return manifest;
}

void ReadManifest(const fuzz::TemporaryFolder& folder, const std::string& text) {
  folder.Write(kManifestFile, text);
  VerifyManifest(folder.path(), {}).IgnoreError();
  ReadState(folder.path()).IgnoreError();
  ReadSummary(folder.path()).IgnoreError();
}

void ReadStateText(const fuzz::TemporaryFolder& folder, Manifest manifest,
                   const std::string& text) {
  folder.Write(kStateFile, text);
  manifest[kStateFile] = {text.size(), Sha256Hex(text)};
  fuzz::CheckOk(WriteManifest(folder.path(), manifest), "the manifest is written");
  const absl::StatusOr<CheckpointState> state = ReadState(folder.path());
  if (!state.ok()) return;
  fuzz::CheckOk(WriteState(folder.path(), *state, manifest),
                "a state that was read can be written");
  fuzz::CheckOk(WriteManifest(folder.path(), manifest), "the manifest is written");
  const absl::StatusOr<CheckpointState> again = ReadState(folder.path());
  fuzz::CheckOk(again.status(), "a written state can be read");
  fuzz::Check(again->step == state->step && again->job_id == state->job_id &&
                  again->training == state->training,
              "a state is read as it was written", text);
}

void ReadPart(const fuzz::TemporaryFolder& folder, const std::string& text) {
  const absl::StatusOr<PartFile> part = ReadPartFile(folder.Write("part", text));
  if (!part.ok()) return;
  const std::string formatted = FormatPartFile(*part);
  const absl::StatusOr<PartFile> again = ReadPartFile(folder.Write("part", formatted));
  fuzz::CheckOk(again.status(), "a written part file can be read");
  fuzz::Check(FormatPartFile(*again) == formatted, "a part file is read as it was written",
              formatted);
}

void ReadName(const std::string& text) {
  const std::optional<FolderName> name = ParseFolderName(text);
  if (!name.has_value()) return;
  const std::optional<FolderName> again = ParseFolderName(FormatFolderName(*name));
  fuzz::Check(again.has_value() && again->step == name->step &&
                  again->generation == name->generation && again->job_id == name->job_id,
              "a name is parsed as it was formatted", text);
}

}  // namespace
}  // namespace muster

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster;
  if (size == 0) return 0;
  static const fuzz::TemporaryFolder folder;
  static const Manifest manifest = WriteFiles(folder.path());
  const std::string text = fuzz::Text(data + 1, size - 1);
  switch (data[0]) {
    case 'm':
      ReadManifest(folder, text);
      break;
    case 's':
      ReadStateText(folder, manifest, text);
      break;
    case 'i':
      TensorSet::Open(folder.Write("model.safetensors.index.json", text)).IgnoreError();
      break;
    case 'p':
      ReadPart(folder, text);
      break;
    default:
      ReadName(text);
  }
  return 0;
}
