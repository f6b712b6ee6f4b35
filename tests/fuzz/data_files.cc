// Files of datasets: the first byte of the input chooses whether the rest is a plain or compressed
// IDX file, or one of CIFAR-100.
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "tests/fuzz/check.h"
#include "tests/fuzz/temporary_folder.h"
#include "trainer/data/dataset.h"
#include "trainer/data/idx.h"

namespace muster {
namespace {

using namespace data;

void ReadIdx(const fuzz::TemporaryFolder& folder, const std::string& name,
             const std::string& bytes) {
  const absl::StatusOr<IdxFile> file =
      IdxFile::Open(folder.Write(name, bytes), Cache(folder.path()));
  if (!file.ok()) return;
  uint64_t elements = 1;
  for (const uint32_t dimension : file->dimensions()) elements *= dimension;
  fuzz::Check(file->elements().size() == elements, "a file has the elements that it announces");
  uint64_t sum = 0;
  for (const uint8_t element : file->elements()) sum += element;
  fuzz::Check(sum <= 255 * elements, "all elements can be read");
}

void ReadCifar(const fuzz::TemporaryFolder& folder, const std::string& bytes) {
  folder.Write("test.bin", bytes);
  const auto dataset =
      OpenDataset({.name = "cifar100", .path = folder.path()}, Split::kTest, Cache(folder.path()));
  if (!dataset.ok()) return;
  for (size_t i = 0; i < (*dataset)->size(); ++i) {
    fuzz::Check((*dataset)->label(i) < 100, "labels are in range");
    const uint8_t* image = (*dataset)->image(i);
    fuzz::Check(image[0] <= 255 && image[3 * 32 * 32 - 1] <= 255, "all pixels can be read");
  }
}

}  // namespace
}  // namespace muster

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster;
  if (size == 0) return 0;
  // Not kept: the cache in it grows with each input.
  const fuzz::TemporaryFolder folder;
  const std::string bytes = fuzz::Text(data + 1, size - 1);
  switch (data[0]) {
    case 'i':
      ReadIdx(folder, "file", bytes);
      break;
    case 'z':
      ReadIdx(folder, "file.gz", bytes);
      break;
    default:
      ReadCifar(folder, bytes);
  }
  return 0;
}
